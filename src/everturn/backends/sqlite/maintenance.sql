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
