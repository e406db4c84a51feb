-- load_session: load all columns of the session of this name, which may have expired; i is the index alone, s the row it leads to
SELECT s.no, s.namespace, s.session_id, s.ended, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept,
       s.messages, s.bytes, s.dimension, s.ttl, s.expires_at, s.created_at, s.changed_at, s.forked_from, s.snapshots,
       s.undo_steps, s.last_jump, s.facts, s.effects, s.checksum
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ? AND i.session_id = ? AND i.ended = 0

-- update_session: write the columns of a live session; not its facts, nor those of the index of names: a write to them is one to their index, too
UPDATE sessions
   SET life = ?, version = ?, last_seq = ?, head = ?, cleared = ?, floor = ?, kept = ?, messages = ?, bytes = ?,
       dimension = ?, ttl = ?, expires_at = ?, created_at = ?, changed_at = ?, forked_from = ?, snapshots = ?,
       undo_steps = ?, last_jump = ?, effects = ?, checksum = ?
 WHERE no = ?

-- update_facts: write the facts of a session; triggers write their index
UPDATE sessions SET facts = ? WHERE no = ?

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

-- is_in_second_index: whether a name is found the other way round
SELECT 1 FROM sessions INDEXED BY sessions_by_id WHERE session_id = ?2 AND namespace = ?1 AND ended = 0

-- load_snapshot: load a snapshot
SELECT snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at, checksum
  FROM snapshots WHERE snapshot_id = ?

-- list_snapshots: list snapshots in the order they were taken
SELECT snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at, checksum
  FROM snapshots WHERE session = ? ORDER BY version

-- list_undo_steps: list undo steps, oldest first
SELECT id, kind, moved_to, hidden, head, cleared, floor, kept, messages, checksum
  FROM undo_steps WHERE id BETWEEN ? AND ? ORDER BY id

-- list_jumps: list every jump, newest first
SELECT id, after, prior, checksum FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- list_changes: list every remembered change, oldest first
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at, head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id

-- load_version: load the change that made a version
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id = ?
