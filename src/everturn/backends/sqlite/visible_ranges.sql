-- latest_messages: list the rows of the latest messages in a range of the log
SELECT seq, count FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message' ORDER BY id DESC LIMIT ?

-- lowest_summary: find the lowest seq of a summary in a part of the log
SELECT seq FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id LIMIT 1
