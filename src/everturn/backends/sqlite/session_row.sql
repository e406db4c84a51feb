-- load_session: the session that bears this name now (it may have expired); i is the index alone, s the row it leads to
SELECT s.no, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept, s.messages, s.bytes, s.dimension, s.ttl, s.expires_at,
       s.namespace, s.session_id, s.ended
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ? AND i.session_id = ? AND i.ended = 0

-- wrong_neighbour: whether the index of names, before or behind where this name would stand, leads to a row of another name
SELECT 1
  FROM (SELECT * FROM (SELECT namespace, session_id, no FROM sessions INDEXED BY sessions_by_name
                        WHERE ended = 0 AND (namespace, session_id) < (?1, ?2)
                        ORDER BY namespace DESC, session_id DESC LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT namespace, session_id, no FROM sessions INDEXED BY sessions_by_name
                        WHERE ended = 0 AND (namespace, session_id) > (?1, ?2)
                        ORDER BY namespace, session_id LIMIT 1)) i
  LEFT JOIN sessions s ON s.no = i.no
 WHERE (i.namespace, i.session_id, 0) IS NOT (s.namespace, s.session_id, s.ended)

-- load_snapshot: the state a snapshot points to
SELECT head, cleared, floor, kept, messages FROM snapshots WHERE snapshot_id = ? AND session = ?

-- list_jumps: all of them, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- latest_jumps: the last ones up to a place in the log, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- name_of: what a session is called
SELECT session_id FROM sessions WHERE no = ?
