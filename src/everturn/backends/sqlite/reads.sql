-- load_info: the facts of a live session, and its state; how many snapshots it has is counted if that is asked for (?4)
SELECT s.no, s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes,
       CASE WHEN ?4 THEN (SELECT count(*) FROM snapshots p WHERE p.session = s.no) ELSE 0 END,
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.head, s.cleared, s.floor, s.kept, s.messages,
       s.namespace, s.ended
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = ?1 AND i.session_id = ?2 AND i.ended = 0 AND (s.expires_at IS NULL OR s.expires_at > ?3)

-- list_snapshots: in the order they were taken
SELECT snapshot_id, label, version, messages, created_at FROM snapshots WHERE session = ? ORDER BY version

-- load_version: the state after a change, unless compact has reclaimed part of it
SELECT head, cleared, floor, kept, messages FROM changes WHERE id = ? AND head IS NOT NULL

-- row_of_change: whether a change is remembered
SELECT 1 FROM changes WHERE id = ?

-- turns: what each remembered change wrote, and when
SELECT first_seq, count, created_at FROM changes WHERE id BETWEEN ? AND ? AND count > 0

-- latest_messages: the rows of the latest messages in a range of the log
SELECT seq, count FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message' ORDER BY id DESC LIMIT ?

-- lowest_summary: where the first one in a part of the log is
SELECT seq FROM entries WHERE kind = 'summary' AND kind <> 'message' AND id BETWEEN ? AND ? ORDER BY id LIMIT 1

-- row_at: whether a row begins here
SELECT 1 FROM entries WHERE id = ?

-- last_row: where the last row up to a place in the log ends
SELECT id + count - 1 FROM entries WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- rows_of_messages: one range of the log, as quickly as can be
SELECT count, created_at, checksum, CAST(body AS BLOB) FROM entries WHERE id BETWEEN ? AND ? AND kind = 'message' ORDER BY id

-- messages_in_ranges: the rows that hold messages of these ranges: a JSON array of where to look from, first seq, last seq
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.kind = 'message' AND e.seq + e.count > r.first

-- others_in_ranges: entries of one other kind, by way of the index (which wants to hear that they are no messages)
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = ?3 AND e.kind <> 'message'

-- all_in_ranges: every entry
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums, r.first, r.last
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last

-- no_messages_in_ranges: all entries that are not messages, to be looked at
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT max(e.seq, r.first), e.kind, e.checksum, CAST(e.body AS BLOB)
  FROM range r CROSS JOIN entries e NOT INDEXED ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.kind <> 'message' AND e.seq + e.count > r.first

-- count_in_ranges: how many entries there are, and how many of them are messages
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)),
part AS (
    SELECT min(e.seq + e.count - 1, r.last) - max(e.seq, r.first) + 1 AS size, e.kind = 'message' AS is_message
      FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
     WHERE e.seq + e.count > r.first)
SELECT ifnull(sum(size), 0), ifnull(sum(size) FILTER (WHERE is_message), 0) FROM part

-- spans_in_ranges: which entries, of any kind, are there
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT max(e.seq, r.first), min(e.seq + e.count - 1, r.last)
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.seq + e.count > r.first
 ORDER BY e.id

-- list_changes: the latest changes, newest first
SELECT version, kind, first_seq, count, created_at, snapshot_id, label
  FROM changes WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- sessions_by_name: a page in byte order of the names; i is the index alone, s the row it leads to; NULL where they do not agree
SELECT CASE WHEN i.session_id = s.session_id AND i.namespace = s.namespace AND s.ended = 0 THEN i.session_id END,
       s.life, s.version, s.messages, s.last_seq, s.bytes,
       (SELECT count(*) FROM snapshots p WHERE p.session = s.no),
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND i.session_id > :past AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
   AND (s.expires_at IS NULL OR s.expires_at > :now) AND (s.changed_at IS NULL OR s.changed_at >= :bound)
 ORDER BY i.session_id LIMIT :limit

-- sessions_by_change: a page with the latest changed first; likewise
SELECT CASE WHEN i.session_id = s.session_id AND i.namespace = s.namespace AND s.ended = 0 THEN i.session_id END,
       s.life, s.version, s.messages, s.last_seq, s.bytes,
       (SELECT count(*) FROM snapshots p WHERE p.session = s.no),
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND (s.changed_at IS NULL OR (s.changed_at, i.session_id) < (:bound, :past))
   AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
   AND (s.expires_at IS NULL OR s.expires_at > :now)
 ORDER BY s.changed_at DESC, i.session_id DESC LIMIT :limit

-- find_in_all: entries whose body contains the pattern, those of the session begun last first
SELECT s.session_id, e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums
  FROM entries e JOIN sessions s ON s.no = e.id >> 32
 WHERE e.body LIKE :pattern ESCAPE '\' AND s.namespace = :namespace AND s.ended = 0 AND (s.expires_at IS NULL OR s.expires_at > :now)
 ORDER BY e.id DESC

-- find_in_range: the same within a part of one session's log
SELECT seq, created_at, checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries
 WHERE id BETWEEN :first AND :last AND body LIKE :pattern ESCAPE '\'
 ORDER BY id DESC
