-- load_session: load the session of this name, which may have expired; i is the index alone, s the row it leads to
SELECT s.no, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept, s.messages, s.bytes, s.dimension, s.ttl, s.expires_at,
       s.namespace, s.session_id, s.ended
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ? AND i.session_id = ? AND i.ended = 0

-- wrong_neighbour: whether a neighbour of this name in the index of names leads to a row of another name
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

-- load_snapshot: load the state of a snapshot
SELECT head, cleared, floor, kept, messages FROM snapshots WHERE snapshot_id = ? AND session = ?

-- list_jumps: list every jump up to an id, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- latest_jumps: list the last jumps up to an id, newest first
SELECT seq, after FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- name_of: load the name of a session
SELECT session_id FROM sessions WHERE no = ?

-- list_roots: list every state a session can return to: its own, those of snapshots, and those before its undo steps
SELECT head, cleared, floor, kept, messages, 'the head' FROM sessions WHERE no = :no
UNION ALL
SELECT head, cleared, floor, kept, messages, 'snapshot ' || snapshot_id FROM snapshots WHERE session = :no
UNION ALL
SELECT head, cleared, floor, kept, messages, 'the undo step of version ' || version FROM undo_steps
 WHERE id BETWEEN :no << 32 AND (:no << 32) + 4294967295

-- list_remembered: list the states of the change log that can still be read
SELECT id, head, cleared, floor, kept, messages FROM changes
 WHERE id BETWEEN ? AND ? AND head IS NOT NULL

-- load_version: load the state after a change, unless compact has reclaimed part of it
SELECT head, cleared, floor, kept, messages FROM changes WHERE id = ? AND head IS NOT NULL

-- row_of_change: whether a change is remembered
SELECT 1 FROM changes WHERE id = ?
