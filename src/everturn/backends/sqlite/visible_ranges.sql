-- latest_messages: the rows of the latest messages in a range of the log
SELECT seq, count FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message' ORDER BY id DESC LIMIT ?

-- lowest_summary: where the first one in a part of the log is
SELECT seq FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id LIMIT 1
