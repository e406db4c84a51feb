-- copy_ranges: copy the rows that hold entries of these ranges into another session, under the same seqs; ?4 is what its number adds to checksums
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
INSERT OR IGNORE INTO entries (id, turn, kind, created_at, checksum, body, count, checksums)
SELECT ?3 + e.seq, e.turn, e.kind, e.created_at, ((e.checksum + 2147483648 + ?4) & 4294967295) - 2147483648, e.body, e.count, e.checksums
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.id - ?2 + e.count > r.first

-- copy_summaries: copy only the summaries of these ranges
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
INSERT INTO entries (id, turn, kind, created_at, checksum, body)
SELECT ?3 + e.seq, e.turn, e.kind, e.created_at, ((e.checksum + 2147483648 + ?4) & 4294967295) - 2147483648, e.body
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = 'summary' AND e.kind <> 'message' AND e.id - ?2 >= r.first

-- too_much: find copied rows that reach beyond a range, and the part of each that was wanted
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, max(e.seq, r.first), min(e.seq + e.count - 1, r.last)
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.seq + e.count > r.first AND (e.seq < r.first OR e.seq + e.count > r.last + 1)

-- load_row: load one whole row
SELECT seq, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries WHERE id = ?

-- stored_bytes: add up the bytes of a session's bodies, without the newlines between lines
SELECT ifnull(sum(octet_length(body) - count + 1), 0) FROM entries WHERE id BETWEEN ? AND ?
