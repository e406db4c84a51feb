-- end_session: an expired session gives up its name; its rows are removed later
UPDATE sessions SET ended = 1, expires_at = NULL WHERE namespace = ? AND session_id = ? AND ended = 0

-- begin_session: insert a new life
INSERT INTO sessions (namespace, session_id, life, created_at, changed_at, forked_from) VALUES (?, ?, ?, ?, ?, ?)

-- update_session: write the state of the session after a change
UPDATE sessions
   SET version = ?, last_seq = ?, head = ?, cleared = ?, floor = ?, kept = ?, messages = ?, bytes = ?, dimension = ?,
       ttl = ?, expires_at = ?, changed_at = ?
 WHERE no = ?

-- insert_row: insert one row of a turn (the body is bound as bytes, and stored as text)
INSERT INTO entries (id, turn, kind, created_at, checksum, body, count, checksums) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)

-- insert_jump: insert a jump: the next entry does not follow the one before it in the log
INSERT INTO jumps (id, after) VALUES (?, ?)

-- insert_change: insert the record by which a retry finds its first attempt
INSERT INTO changes (id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
                     head, cleared, floor, kept, messages)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- find_call: find the change that an earlier attempt made, among the latest
SELECT version, first_seq, count, content, snapshot_id, label, created_at, messages
  FROM changes WHERE id BETWEEN ? AND ? AND call = ?

-- find_key: find the changes made with a caller's key, newest first
SELECT version, first_seq, count, content, snapshot_id, label, created_at, messages
  FROM changes WHERE key = ? AND id BETWEEN ? AND ? ORDER BY id DESC

-- insert_snapshot: insert a copy of the state, with an id and a label
INSERT INTO snapshots (snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- delete_snapshot: delete the pointer; the entries it reached stay until compact
DELETE FROM snapshots WHERE snapshot_id = ?

-- push_undo: insert the state before a change
INSERT INTO undo_steps (id, kind, moved_to, hidden, head, cleared, floor, kept, messages)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- drop_old_undo: delete all but the ten latest steps
DELETE FROM undo_steps
 WHERE id BETWEEN ? AND ? AND id <= (SELECT id FROM undo_steps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1 OFFSET 10)

-- pop_undo: delete a step that has been taken back
DELETE FROM undo_steps WHERE id = ?
