-- list_roots: every state a session can return to: its own, its snapshots', and those before its undo steps
SELECT head, cleared, floor, kept, messages, 'the head' FROM sessions WHERE no = :no
UNION ALL
SELECT head, cleared, floor, kept, messages, 'snapshot ' || snapshot_id FROM snapshots WHERE session = :no
UNION ALL
SELECT head, cleared, floor, kept, messages, 'the undo step of version ' || version FROM undo_steps
 WHERE id BETWEEN :no << 32 AND (:no << 32) + 4294967295

-- list_remembered: the states of the change log that can still be read
SELECT head, cleared, floor, kept, messages, 'version ' || version, id FROM changes
 WHERE id BETWEEN ? AND ? AND head IS NOT NULL

-- forget_states: part of what these versions show is to be reclaimed
UPDATE changes SET head = NULL WHERE id IN (SELECT value FROM json_each(?))

-- row_across: the row that holds what stands before this place in the log, and what stands behind it
SELECT seq, created_at, checksum, CAST(body AS BLOB), kind, turn, count, checksums
  FROM entries WHERE id BETWEEN ?1 AND ?2 - 1 AND id + count > ?2 ORDER BY id DESC LIMIT 1

-- delete_row: it is written anew, in two
DELETE FROM entries WHERE id = ?

-- some_rows: the next rows of a range that can go, with their bytes: those that end in it (?3), and no summaries (?4)
SELECT id, octet_length(body), count FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR id + count <= ?3) AND (?4 OR kind <> 'summary')
 ORDER BY id LIMIT ?5

-- delete_rows: the same, all of them
DELETE FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR id + count <= ?3) AND (?4 OR kind <> 'summary')

-- shrink_session: entries were reclaimed
UPDATE sessions SET bytes = bytes - ? WHERE no = ?

-- some_ended: a session whose rows can go: it expired, or was succeeded; not one that arrives (see transfer.sql) or is being erased
SELECT no FROM sessions WHERE ended = 1 AND life <> '' AND expires_at IS NULL
UNION ALL
SELECT no FROM sessions WHERE expires_at <= ?
LIMIT 1

-- end: an expired session gives up its name; one that was arriving arrives no more
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = NULL WHERE no = ?

-- end_by_erasing: the same; until this moment its rows are left to whoever erases it, and counts them
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = ? WHERE no = ?

-- living: the life that a session's name has now
SELECT no FROM sessions WHERE namespace = ? AND session_id = ? AND ended = 0

-- lives_of: every life a session's name has rows of, but for a living one that is not the one named
SELECT no FROM sessions
 WHERE namespace = ?1 AND session_id = ?2 AND ended = 0 AND (?3 IS NULL OR life = ?3 OR expires_at <= ?4)
UNION ALL
SELECT no FROM sessions WHERE namespace = ?1 AND session_id = ?2 AND ended = 1

-- old_changes: those too old to be asked for again, but for those with a key, unless they had a turn that is stored no more
SELECT c.id FROM changes c
 WHERE c.id BETWEEN ?1 AND ?2
   AND (c.key IS NULL OR c.count > 0 AND NOT EXISTS (
        SELECT 1 FROM entries e
         WHERE e.id BETWEEN ?1 + max(1, c.first_seq + c.count - 8) AND ?1 + c.first_seq + c.count - 1
           AND e.id + e.count > ?1 + c.first_seq + c.count - 1))

-- went_back: whether the session was rolled back since a version
SELECT 1 FROM changes WHERE id BETWEEN ? AND ? AND kind = 'rollback' LIMIT 1

-- is_living: whether this is still a session, and this its life
SELECT 1 FROM sessions WHERE no = ? AND life = ? AND ended = 0

-- stored_ranges: those in which there is a row that can go: a JSON array of where to look from, first seq, last seq
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT first, last FROM range r
 WHERE EXISTS (SELECT 1 FROM entries e
                WHERE e.id BETWEEN ?2 + r.low AND ?2 + r.last AND e.seq + e.count > r.first AND (?3 OR e.kind <> 'summary'))

-- delete_changes: these
DELETE FROM changes WHERE id IN (SELECT value FROM json_each(?))

-- delete_jumps: these
DELETE FROM jumps WHERE id IN (SELECT value FROM json_each(?))

-- reap_changes: some of a session that ended
DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)

-- reap_jumps: likewise
DELETE FROM jumps WHERE id IN (SELECT id FROM jumps WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)

-- reap_snapshots: likewise
DELETE FROM snapshots WHERE snapshot_id IN (SELECT snapshot_id FROM snapshots WHERE session = ?1 LIMIT ?2)

-- delete_undo_steps: all of a session's
DELETE FROM undo_steps WHERE id BETWEEN ? AND ?

-- delete_session: the last row of it
DELETE FROM sessions WHERE no = ?

-- copy_ranges: the rows that hold entries of these ranges into another session, under the same seqs
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
INSERT OR IGNORE INTO entries (id, turn, kind, created_at, checksum, body, count, checksums)
SELECT ?3 + e.seq, e.turn, e.kind, e.created_at, e.checksum, e.body, e.count, e.checksums
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.seq + e.count > r.first

-- too_much: of the rows that were copied, those that hold more than was wanted of them, and what was
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT e.seq, max(e.seq, r.first), min(e.seq + e.count - 1, r.last)
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.low AND ?2 + r.last
 WHERE e.seq + e.count > r.first AND (e.seq < r.first OR e.seq + e.count > r.last + 1)

-- load_row: all of it
SELECT seq, created_at, checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries WHERE id = ?

-- copy_summaries: the same for summaries alone
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
INSERT INTO entries (id, turn, kind, created_at, checksum, body)
SELECT ?3 + e.seq, e.turn, e.kind, e.created_at, e.checksum, e.body
  FROM range r CROSS JOIN entries e ON e.id BETWEEN ?2 + r.first AND ?2 + r.last
 WHERE e.kind = 'summary' AND e.kind <> 'message'

-- stored_bytes: of a session's bodies
SELECT ifnull(sum(octet_length(body) - count + 1), 0) FROM entries WHERE id BETWEEN ? AND ?
