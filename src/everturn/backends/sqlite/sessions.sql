-- load_session: the session that bears this name now (it may have expired); i is the index alone, s the row it leads to
SELECT s.no, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept, s.messages, s.bytes, s.dimension, s.ttl, s.expires_at,
       s.namespace, s.session_id, s.ended
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ? AND i.session_id = ? AND i.ended = 0

-- load_snapshot: the state a snapshot points to
SELECT head, cleared, floor, kept, messages FROM snapshots WHERE snapshot_id = ? AND session = ?

-- list_jumps: all of them, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- latest_jumps: the last ones up to a place in the log, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- name_of: what a session is called
SELECT session_id FROM sessions WHERE no = ?
