-- end_session: an expired session gives up its name; its rows are removed later
UPDATE sessions SET ended = 1, expires_at = NULL WHERE namespace = ? AND session_id = ? AND ended = 0

-- begin_session: insert a new life; session_row.py writes its other columns
INSERT INTO sessions (namespace, session_id, life, created_at, changed_at) VALUES (?, ?, ?, ?, ?)

-- insert_row: insert one row of a turn (the body is bound as bytes, and stored as text)
INSERT INTO entries (id, turn, kind, created_at, checksum, body, count, checksums) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)

-- insert_jump: insert a jump: the next entry does not follow the one before it in the log
INSERT INTO jumps (id, after, prior, checksum) VALUES (?, ?, ?, ?)

-- insert_change: insert the record by which a retry finds its first attempt
INSERT INTO changes (id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
                     head, cleared, floor, kept, messages, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- find_call: find the change that an earlier attempt made, among the latest
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id BETWEEN ? AND ? AND call = ?

-- find_key: find the changes made with a caller's key, newest first
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE key = ? AND id BETWEEN ? AND ? ORDER BY id DESC

-- misplaced_key: find an end of the index of keys that is not within its reach, or a neighbour of the changes with this key there that is not found by its own key, or leads to a change with another
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM changes INDEXED BY changes_by_key WHERE key = x'' AND id = 0)
            OR NOT EXISTS (SELECT 1 FROM changes INDEXED BY changes_by_key WHERE key = x'ffffffffffffffffffffffffffffffffff' AND id = 1)
UNION ALL
SELECT 1 FROM (SELECT * FROM (SELECT key, id FROM changes INDEXED BY changes_by_key WHERE key = ?1 AND id > ?3 ORDER BY id LIMIT 1)
               UNION ALL SELECT * FROM (SELECT key, id FROM changes INDEXED BY changes_by_key WHERE key > ?1 ORDER BY key, id LIMIT 1)
               UNION ALL SELECT * FROM (SELECT key, id FROM changes INDEXED BY changes_by_key WHERE key = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1)
               UNION ALL SELECT * FROM (SELECT key, id FROM changes INDEXED BY changes_by_key WHERE key < ?1 ORDER BY key DESC, id DESC LIMIT 1)) n
  LEFT JOIN changes c ON c.id = n.id
 WHERE c.key IS NOT n.key OR NOT EXISTS (SELECT 1 FROM changes f INDEXED BY changes_by_key WHERE f.key = n.key AND f.id = n.id)

-- count_changes: count the changes of these versions
SELECT count(*) FROM changes WHERE id BETWEEN ? AND ?

-- insert_snapshot: insert a copy of the state, with an id and a label
INSERT INTO snapshots (snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- delete_snapshot: delete the pointer; the entries it reached stay until compact
DELETE FROM snapshots WHERE snapshot_id = ?

-- push_undo: insert the state before a change
INSERT INTO undo_steps (id, kind, moved_to, hidden, head, cleared, floor, kept, messages, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- drop_old_undo: delete all but the ten latest steps
DELETE FROM undo_steps
 WHERE id BETWEEN ? AND ? AND id <= (SELECT id FROM undo_steps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1 OFFSET 10)

-- pop_undo: delete a step that has been taken back
DELETE FROM undo_steps WHERE id = ?
