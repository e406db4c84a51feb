-- load_version: load the change that made a version
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id = ?

-- row_at: whether a row begins at this id
SELECT 1 FROM entries WHERE id = ?

-- last_row: find the id of the last entry in the last row up to an id
SELECT id + count - 1 FROM entries WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- rows_of_messages: load one range of the log, with as few columns as possible
SELECT count, created_at, body_checksum, CAST(body AS BLOB), id FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message' ORDER BY id

-- messages_in_ranges: load the rows that hold messages of ranges: a JSON array of where to look from, first seq, last seq
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.id - ?2, e.created_at, e.body_checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.kind = 'message' AND e.id - ?2 + e.count > r.first

-- others_in_ranges: load entries of one other kind by the index of kinds (which is used only if the query excludes messages)
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.id - ?2, e.created_at, e.body_checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = ?3 AND e.kind <> 'message'

-- all_in_ranges: load entries of every kind
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.id - ?2, e.created_at, e.body_checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last

-- list_changes: list the latest changes, newest first
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?
