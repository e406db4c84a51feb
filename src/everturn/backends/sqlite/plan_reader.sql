-- count_messages: count the messages in a range of the log
SELECT ifnull(sum(min(id + count - 1, ?3) - max(id, ?2) + 1), 0)
  FROM entries WHERE id BETWEEN ?1 AND ?3 AND id + count > ?2 AND kind = 'message'

-- count_entries: count the entries in a range of the log
SELECT ifnull(sum(min(id + count - 1, ?3) - max(id, ?2) + 1), 0)
  FROM entries WHERE id BETWEEN ?1 AND ?3 AND id + count > ?2

-- summaries_between: list the summaries in a part of the log, newest first
SELECT seq FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id DESC
