-- lowest_summary: find the lowest seq of a summary in a part of the log
SELECT seq FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id LIMIT 1
