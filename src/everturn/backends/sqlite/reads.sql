-- load_info: load the facts of a live session, and its state; snapshots are counted only if ?4
SELECT s.no, s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes,
       CASE WHEN ?4 THEN (SELECT count(*) FROM snapshots p WHERE p.session = s.no) ELSE 0 END,
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.head, s.cleared, s.floor, s.kept, s.messages,
       s.namespace, s.ended
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ?1 AND i.session_id = ?2 AND i.ended = 0 AND (s.expires_at IS NULL OR s.expires_at > ?3)

-- list_snapshots: list snapshots in the order they were taken
SELECT snapshot_id, label, version, messages, created_at FROM snapshots WHERE session = ? ORDER BY version


-- others_in_ranges: load entries of one other kind by the index of kinds (which is used only if the query excludes messages)
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = ?3 AND e.kind <> 'message'

-- list_changes: list the latest changes, newest first
SELECT version, kind, first_seq, count, created_at, snapshot_id, label, key
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?
