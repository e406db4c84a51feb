-- count_messages: how many messages stand in a range of the log
SELECT count(*) FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message'

-- load_undo: the latest step
SELECT id, kind, moved_to, hidden, head, cleared, floor, kept, messages
  FROM undo_steps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1
