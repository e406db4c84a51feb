-- others_in_ranges: load entries of one other kind by the index of kinds (which is used only if the query excludes messages)
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.id - ?2, e.created_at, e.body_checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = ?3 AND e.kind <> 'message'

-- list_changes: list the latest changes, newest first
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?
