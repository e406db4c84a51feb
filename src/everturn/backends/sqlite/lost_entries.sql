-- count_in_ranges: count the entries in ranges, and the messages among them
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)),
part AS (
    SELECT min((e.id - ?2) + e.count - 1, r.last) - max((e.id - ?2), r.first) + 1 AS size, e.kind = 'message' AS is_message
      FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
     WHERE (e.id - ?2) + e.count > r.first)
SELECT ifnull(sum(size), 0), ifnull(sum(size) FILTER (WHERE is_message), 0) FROM part

-- spans_in_ranges: list the spans of seqs that are stored, of any kind
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT max((e.id - ?2), r.first), min((e.id - ?2) + e.count - 1, r.last)
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE (e.id - ?2) + e.count > r.first
 ORDER BY e.id

-- no_messages_in_ranges: list the entries that are not messages, to check them
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT max((e.id - ?2), r.first), e.kind, e.body_checksum, CAST(e.body AS BLOB)
  FROM range r CROSS JOIN entries e NOT INDEXED ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.kind <> 'message' AND (e.id - ?2) + e.count > r.first
