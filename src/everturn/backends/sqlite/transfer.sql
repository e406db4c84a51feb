-- load_change: load the change that made a version
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id = ?

-- some_entries: load the next rows of the log
SELECT id - ?6, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums, ?4, ?5
  FROM entries WHERE id BETWEEN ?1 AND ?2 ORDER BY id LIMIT ?3

-- some_changes: load the next remembered changes
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?

-- begin_staged: insert a session for staged rows: ended, and without a life; if it is abandoned, it is removed when it expires
INSERT INTO sessions (namespace, session_id, ended, life, created_at, changed_at, expires_at) VALUES (?, ?, 1, '', ?, ?, ?)

-- load_staged: load the bytes staged under this number, unless they are being removed
SELECT bytes FROM sessions WHERE no = ? AND namespace = ? AND session_id = ? AND ended = 1 AND life = '' AND expires_at > ?

-- extend_staged: add bytes to a staged session, and put off its expiry
UPDATE sessions SET bytes = ?, expires_at = ? WHERE no = ?

-- insert_entry: insert an entry as it was stored elsewhere; staging it twice is the same as once
INSERT OR IGNORE INTO entries (id, turn, kind, created_at, checksum, body) VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT))

-- insert_change: insert a change as it was stored elsewhere, once
INSERT OR IGNORE INTO changes (id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
                               head, cleared, floor, kept, messages, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- publish: publish: the staged session becomes live; session_row.py writes its other columns
UPDATE sessions SET ended = 0 WHERE no = ? AND ended <> 0

-- forget_snapshots: delete the snapshots of every life of this name: the arriving life may have the same ones
DELETE FROM snapshots WHERE session IN (
    SELECT no FROM sessions WHERE namespace = ?1 AND session_id = ?2 AND ended = 0
    UNION ALL
    SELECT no FROM sessions WHERE namespace = ?1 AND session_id = ?2 AND ended = 1)

-- snapshot_elsewhere: whether this snapshot belongs to a session of another name; its id is unique in a file
SELECT 1 FROM snapshots p JOIN sessions s ON s.no = p.session
 WHERE p.snapshot_id = ? AND NOT (s.namespace = ? AND s.session_id = ?)
