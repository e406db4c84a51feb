-- row_across: find the row that holds both the entry before this seq and the entry at it
SELECT seq, created_at, checksum, CAST(body AS BLOB), kind, turn, count, checksums
  FROM entries WHERE id BETWEEN ?1 AND ?2 - 1 AND id + count > ?2 ORDER BY id DESC LIMIT 1

-- delete_row: delete a row that is written again in parts
DELETE FROM entries WHERE id = ?

-- some_rows: list the next rows of a range to delete, with their bytes: only rows that end before ?3, and no summaries unless ?4
SELECT id, octet_length(body), count FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR id + count <= ?3) AND (?4 OR kind <> 'summary')
 ORDER BY id LIMIT ?5

-- delete_rows: delete these rows
DELETE FROM entries
 WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR id + count <= ?3) AND (?4 OR kind <> 'summary')

-- some_ended: find a session whose rows can go: it expired, or has a successor; not one that is staged (transfer.sql) or being erased
SELECT no FROM sessions WHERE ended = 1 AND life <> '' AND expires_at IS NULL
UNION ALL
SELECT no FROM sessions WHERE expires_at <= ?
LIMIT 1

-- end: end a session: one that expired gives up its name, one that was staged cannot be published any more
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = NULL WHERE no = ?

-- end_by_erasing: end a session; until this moment its rows are left to the caller of erase, who counts them
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = ? WHERE no = ?

-- living: find the live session of this name
SELECT no FROM sessions WHERE namespace = ? AND session_id = ? AND ended = 0

-- lives_of: find every life of this name that has rows, except a live one other than the life given
SELECT no FROM sessions
 WHERE namespace = ?1 AND session_id = ?2 AND ended = 0 AND (?3 IS NULL OR life = ?3 OR expires_at <= ?4)
UNION ALL
SELECT no FROM sessions WHERE namespace = ?1 AND session_id = ?2 AND ended = 1

-- reap_changes: delete some changes of a session that ended
DELETE FROM changes WHERE id IN (SELECT id FROM changes WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)

-- reap_jumps: delete some jumps of a session that ended
DELETE FROM jumps WHERE id IN (SELECT id FROM jumps WHERE id BETWEEN ?1 AND ?2 LIMIT ?3)

-- reap_snapshots: delete some snapshots of a session that ended
DELETE FROM snapshots WHERE snapshot_id IN (SELECT snapshot_id FROM snapshots WHERE session = ?1 LIMIT ?2)

-- delete_undo_steps: delete all undo steps of a session
DELETE FROM undo_steps WHERE id BETWEEN ? AND ?

-- delete_session: delete the row of a session, after all its others
DELETE FROM sessions WHERE no = ?
