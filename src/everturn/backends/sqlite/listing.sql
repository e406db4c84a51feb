-- sessions_by_name: list names in byte order, with all columns of their rows; i is the index alone, s the row it leads to
SELECT i.session_id, s.no, s.namespace, s.session_id, s.ended, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept,
       s.messages, s.bytes, s.dimension, s.ttl, s.expires_at, s.created_at, s.changed_at, s.forked_from, s.snapshots,
       s.undo_steps, s.last_jump, s.facts, s.effects, s.checksum
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND i.session_id > :past AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
 ORDER BY i.session_id

-- sessions_by_change: list names with the latest changed first; i and s as above; a name that leads to no row comes before all others
SELECT i.session_id
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND (s.changed_at IS NULL OR (s.changed_at, i.session_id) < (:bound, :past))
   AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
 ORDER BY s.changed_at IS NOT NULL, s.changed_at DESC, i.session_id DESC

-- sessions_changed_later: list names whose row is behind the bound, which no page shows; i and s as above
SELECT i.session_id
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND (s.changed_at, i.session_id) >= (:bound, :past)
   AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)

-- sessions_by_fact: list names in byte order that have a fact, with all columns of their rows; f is the index alone, s the row it leads to
SELECT f.session_id, s.no, s.namespace, s.session_id, s.ended, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept,
       s.messages, s.bytes, s.dimension, s.ttl, s.expires_at, s.created_at, s.changed_at, s.forked_from, s.snapshots,
       s.undo_steps, s.last_jump, s.facts, s.effects, s.checksum
  FROM facts f INDEXED BY facts_by_value LEFT JOIN sessions s ON s.no = f.session
 WHERE f.namespace = :namespace AND f.name = :name AND f.value = :value AND f.session_id > :past AND f.session_id >= :prefix
   AND (:beyond IS NULL OR f.session_id < :beyond) AND s.ended IS NOT 1
 ORDER BY f.session_id

-- names_with_fact_again: list names that have a fact by the second index alone; up to :last, if there is one
SELECT f.session_id
  FROM facts f INDEXED BY facts_again LEFT JOIN sessions s ON s.no = f.session
 WHERE f.value = :value AND f.name = :name AND f.namespace = :namespace AND f.session_id > :past AND f.session_id >= :prefix
   AND (:beyond IS NULL OR f.session_id < :beyond) AND (:last IS NULL OR f.session_id <= :last) AND s.ended IS NOT 1
 ORDER BY f.session_id

-- lacks_ends_of_facts: find an end of an index of facts that is not within its reach
SELECT 1 FROM (SELECT '' AS least, char(1) AS text UNION ALL SELECT char(1114111, 1114111, 1114111, 1114111), char(1114111, 1114111, 1114111, 1114111)) e
 WHERE NOT EXISTS (SELECT 1 FROM facts INDEXED BY facts_by_value
                    WHERE namespace = e.least AND name = e.least AND value = e.text AND session_id = '' AND session = 0)
    OR NOT EXISTS (SELECT 1 FROM facts INDEXED BY facts_again
                    WHERE value = e.text AND name = e.least AND namespace = e.least AND session_id = '' AND session = 0)

-- count_with_fact: count sessions with a fact, up to a bound
SELECT count(*) FROM (SELECT 1 FROM facts WHERE namespace = ? AND name = ? AND value = ? LIMIT ?)

-- load_by_number: load all columns of a session, which may have ended
SELECT s.no, s.namespace, s.session_id, s.ended, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept,
       s.messages, s.bytes, s.dimension, s.ttl, s.expires_at, s.created_at, s.changed_at, s.forked_from, s.snapshots,
       s.undo_steps, s.last_jump, s.facts, s.effects, s.checksum
  FROM sessions s WHERE s.no = ?

-- names_in_order: list the names of a listing by the index of names alone
SELECT session_id FROM sessions INDEXED BY sessions_by_name
 WHERE namespace = :namespace AND ended = 0 AND session_id >= :prefix AND (:beyond IS NULL OR session_id < :beyond)
 ORDER BY session_id

-- names_again: list names by the second index alone; up to :last, if there is one
SELECT session_id FROM sessions INDEXED BY sessions_by_id
 WHERE namespace = :namespace AND ended = 0 AND (:past IS NULL OR session_id > :past) AND session_id >= :prefix
   AND (:beyond IS NULL OR session_id < :beyond) AND (:last IS NULL OR session_id <= :last)
 ORDER BY session_id

-- sizes_from: list ids and bytes of the log from an id on, newest first
SELECT id, octet_length(body) - count + 1 FROM entries WHERE id >= ? ORDER BY id DESC

-- sessions_from: list the bytes of live sessions from a number on; i is the index of names alone, so that no row is passed over
SELECT i.no, s.bytes FROM sessions i INDEXED BY sessions_by_name LEFT JOIN sessions s ON s.no = i.no
 WHERE i.ended = 0 AND i.no >= ?

-- find_in_all: find entries whose body contains the pattern, those of the session begun last first. LIKE passes over a BLOB, which one flipped bit makes of a text
SELECT id, seq, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums
  FROM entries WHERE CAST(body AS TEXT) LIKE :pattern ESCAPE '\' ORDER BY id DESC

-- find_in_range: find such entries in a part of one session's log
SELECT id - :base, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries
 WHERE id BETWEEN :first AND :last AND CAST(body AS TEXT) LIKE :pattern ESCAPE '\'
 ORDER BY id DESC

-- sizes_between: list ids and counts of a part of the log, newest first
SELECT id, count FROM entries WHERE id BETWEEN ? AND ? ORDER BY id DESC

-- rows_between: load a part of the log
SELECT id, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries WHERE id BETWEEN ? AND ?
