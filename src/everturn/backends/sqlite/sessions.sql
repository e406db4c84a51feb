-- load_session: the session that bears this name now (it may have expired)
SELECT no, life, version, last_seq, head, cleared, floor, kept, messages, bytes, dimension, ttl, expires_at
  FROM sessions WHERE namespace = ? AND session_id = ? AND ended = 0

-- load_snapshot: the state a snapshot points to
SELECT head, cleared, floor, kept, messages FROM snapshots WHERE snapshot_id = ? AND session = ?

-- list_jumps: all of them, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- latest_jumps: the last ones up to a place in the log, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- name_of: what a session is called
SELECT session_id FROM sessions WHERE no = ?
