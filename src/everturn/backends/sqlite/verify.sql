-- every_row: load a session's whole log
SELECT id - ?1, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries WHERE id BETWEEN ?1 AND ?2 ORDER BY id

-- every_version: list the versions of the remembered changes
SELECT id - ?1 FROM changes WHERE id BETWEEN ?1 AND ?2 ORDER BY id

-- orphans: find entries whose session does not exist, except the two at the ends of the index of kinds
SELECT DISTINCT e.id >> 32 FROM entries e WHERE e.id > 1 AND NOT EXISTS (SELECT 1 FROM sessions s WHERE s.no = e.id >> 32)

-- every_name: list the names of sessions, by the table alone
SELECT CAST(session_id AS BLOB), CAST(namespace AS BLOB) FROM sessions NOT INDEXED WHERE ended = 0 ORDER BY no

-- every_indexed_name: list the names of sessions, by the index alone
SELECT CAST(session_id AS BLOB), CAST(namespace AS BLOB) FROM sessions INDEXED BY sessions_by_name WHERE ended = 0

-- texts_of_changes: load the text columns of changes, to see that they can be read
SELECT version, kind, snapshot_id, label, kept FROM changes WHERE id BETWEEN :low AND :high ORDER BY id

-- wrong_standing: the row of a session must agree with its latest change; a copy may bring one whose state its source had reclaimed by then
SELECT 'its row does not agree with its latest change, version ' || s.version
  FROM sessions s JOIN changes c ON c.id = :low + s.version
 WHERE s.no = :no
   AND ((s.cleared, s.floor, s.kept, s.messages, s.changed_at) IS NOT (c.cleared, c.floor, c.kept, c.messages, c.created_at)
        OR s.head <> c.head)

-- wrong_beginning: a session must have begun with its first change
SELECT 'it is said to have begun at another time than that of its first change'
  FROM sessions s JOIN changes c ON c.id = :low + 1
 WHERE s.no = :no AND s.created_at <> c.created_at

-- wrong_size: the bytes of a session must be those of its entries
SELECT 'its row tells of ' || s.bytes || ' bytes, and there are ' || e.bytes
  FROM sessions s
  JOIN (SELECT ifnull(sum(octet_length(body) - count + 1), 0) AS bytes FROM entries WHERE id BETWEEN :low AND :high) e
 WHERE s.no = :no AND s.bytes <> e.bytes

-- wrong_snapshots: a snapshot must agree with the change that took it, except for a state that compact has reclaimed
SELECT 'snapshot ' || p.snapshot_id || ' does not agree with the change that took it, version ' || p.version
  FROM snapshots p JOIN changes c ON c.id = :low + p.version
 WHERE p.session = :no
   AND ((p.snapshot_id, p.label, p.cleared, p.floor, p.kept, p.messages, p.created_at)
        IS NOT (c.snapshot_id, c.label, c.cleared, c.floor, c.kept, c.messages, c.created_at)
        OR p.head <> c.head)

-- wrong_turns: a change that wrote a turn must have the time of its entries, and they its first seq
SELECT 'version ' || c.version || ' does not agree with the entries that it wrote, from ' || c.first_seq || ' on'
  FROM changes c JOIN entries e ON e.id = :low + c.first_seq
 WHERE c.id BETWEEN :low AND :high AND c.count > 0 AND (e.turn, e.created_at) IS NOT (c.first_seq, c.created_at)

-- wrong_rows: the rows of a turn must have one time
SELECT 'entry ' || e.seq || ' was written at another time than the first of its turn, ' || e.turn
  FROM entries e JOIN entries f ON f.id = :low + e.turn
 WHERE e.id BETWEEN :low AND :high AND (f.turn, f.created_at) IS NOT (e.turn, e.created_at)

-- wrong_order: turns must follow each other; the last one must reach the end of the log, if it is recent enough to be remembered for sure (copies of summaries stand before the turn of a replace, and at the end if it has no entries)
SELECT 'version ' || version || ' is said to have written entries ' || first_seq || ' to ' || (first_seq + count - 1)
  FROM (SELECT c.version, c.first_seq, c.count, lead(c.first_seq) OVER (ORDER BY c.id) AS following,
               s.last_seq + 1 AS beyond, s.version - :remembered AS forgotten
          FROM changes c JOIN sessions s ON s.no = :no
         WHERE c.id BETWEEN :low AND :high AND (c.count <> 0 OR c.first_seq <> 0)) w
 WHERE first_seq < 1 OR count < 1 OR first_seq + count > ifnull(following, beyond)
    OR following IS NULL AND version > forgotten AND first_seq + count <> beyond
       AND NOT EXISTS (SELECT 1 FROM changes r
                        WHERE r.id BETWEEN :low + w.version + 1 AND :high AND r.kind = 'replace' AND r.count = 0
                          AND ifnull(r.head + 1, beyond) = beyond)

-- wrong_returns: where all changes are remembered, a snapshot that one of them returned to or deleted must have been taken by an earlier one
SELECT 'version ' || c.version || ' names the snapshot ' || c.snapshot_id || ', which no change took'
  FROM changes c
 WHERE c.id BETWEEN :low AND :high AND c.kind IN ('rollback', 'delete_snapshot') AND c.snapshot_id IS NOT NULL
   AND c.snapshot_id NOT IN (SELECT snapshot_id FROM changes WHERE id BETWEEN :low AND :high AND kind = 'snapshot')
   AND (SELECT count(*) = max(version) FROM changes WHERE id BETWEEN :low AND :high)

-- wrong_facts: the facts of a session must be those that it is found by
SELECT 'the index of facts has not the facts of its row'
  FROM sessions s
 WHERE s.no = :no AND json_valid(ifnull(s.facts, '{}'))
   AND (EXISTS (SELECT key, value FROM json_each(s.facts)
                EXCEPT SELECT f.name, f.value FROM facts f INDEXED BY facts_by_value
                        WHERE f.namespace = s.namespace AND f.session_id = s.session_id AND f.session = s.no
                          AND (f.name, f.value) IN (SELECT key, value FROM json_each(s.facts)))
        OR (SELECT count(*) FROM facts f WHERE f.session = s.no) <> (SELECT count(*) FROM json_each(s.facts)))
