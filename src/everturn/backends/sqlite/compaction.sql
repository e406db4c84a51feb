-- rolled_back_since: whether the session was rolled back since a version
SELECT 1 FROM changes WHERE id BETWEEN ? AND ? AND kind = 'rollback' LIMIT 1

-- old_changes: find changes that no retry asks for any more: those without a key, and those whose turn is not stored any more
SELECT c.id FROM changes c
 WHERE c.id BETWEEN ?1 AND ?2
   AND (c.key IS NULL OR c.count > 0 AND NOT EXISTS (
        SELECT 1 FROM entries e
         WHERE e.id BETWEEN ?1 + max(1, c.first_seq + c.count - 8) AND ?1 + c.first_seq + c.count - 1
           AND e.id + e.count > ?1 + c.first_seq + c.count - 1))

-- stored_ranges: keep the ranges that hold a row to delete; ranges are a JSON array of where to look from, first seq, last seq
WITH range (low, first, last) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1))
SELECT first, last FROM range r
 WHERE EXISTS (SELECT 1 FROM entries e
                WHERE e.id BETWEEN ?2 + r.low AND ?2 + r.last AND e.seq + e.count > r.first AND (?3 OR e.kind <> 'summary'))

-- load_changes: load changes by id
SELECT id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
       head, cleared, floor, kept, messages, checksum
  FROM changes WHERE id IN (SELECT value FROM json_each(?))

-- forget_state: mark a version that can no longer be read
UPDATE changes SET head = NULL, checksum = ? WHERE id = ?

-- delete_changes: delete changes by id
DELETE FROM changes WHERE id IN (SELECT value FROM json_each(?))

-- load_jumps: load jumps by id, newest first: deleting one changes only the one behind it
SELECT id, after, prior, checksum FROM jumps WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id DESC

-- delete_jump: delete a jump
DELETE FROM jumps WHERE id = ?

-- next_jump: load the first jump above an id
SELECT id, after, prior, checksum FROM jumps WHERE id > ? AND id <= ? ORDER BY id LIMIT 1

-- relink_jump: name another as the one before it
UPDATE jumps SET prior = ?, checksum = ? WHERE id = ?
