-- end_session: an expired session gives up its name; its rows wait to be reaped
UPDATE sessions SET ended = 1, expires_at = NULL WHERE namespace = ? AND session_id = ? AND ended = 0

-- begin_session: a new life
INSERT INTO sessions (namespace, session_id, life, created_at, changed_at, forked_from) VALUES (?, ?, ?, ?, ?, ?)

-- update_session: where the session stands after a change
UPDATE sessions
   SET version = ?, last_seq = ?, head = ?, cleared = ?, floor = ?, kept = ?, messages = ?, bytes = ?, dimension = ?,
       ttl = ?, expires_at = ?, changed_at = ?
 WHERE no = ?

-- insert_run: one row of a turn (the body comes as bytes, to be stored as text)
INSERT INTO entries (id, turn, kind, created_at, checksum, body, count, checksums) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)

-- insert_jump: the next entry does not follow the one before it in the log
INSERT INTO jumps (id, after) VALUES (?, ?)

-- insert_change: the record that makes a retry find its first attempt
INSERT INTO changes (id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
                     head, cleared, floor, kept, messages)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- find_call: the change an earlier attempt made, among the latest
SELECT version, first_seq, count, content, snapshot_id, label, created_at, messages
  FROM changes WHERE id BETWEEN ? AND ? AND call = ?

-- find_key: the changes made with a caller's key, newest first
SELECT version, first_seq, count, content, snapshot_id, label, created_at, messages
  FROM changes WHERE key = ? AND id BETWEEN ? AND ? ORDER BY id DESC

-- insert_snapshot: a copy of the state, with a name
INSERT INTO snapshots (snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- delete_snapshot: forget the pointer; what it pointed to stays until compact
DELETE FROM snapshots WHERE snapshot_id = ?

-- push_undo: remember the state before a change
INSERT INTO undo_steps (id, kind, moved_to, hidden, head, cleared, floor, kept, messages)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- drop_old_undo: keep the ten latest steps
DELETE FROM undo_steps
 WHERE id BETWEEN ? AND ? AND id <= (SELECT id FROM undo_steps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1 OFFSET 10)

-- pop_undo: it has been taken back
DELETE FROM undo_steps WHERE id = ?
