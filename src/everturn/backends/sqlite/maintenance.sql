-- row_across: find the row that holds both the entry before this seq and the entry at it
SELECT seq, created_at, body_checksum, CAST(body AS BLOB), kind, turn, count, checksums
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

-- some_ended: find a session whose rows can go: it has a successor; not one that is staged (transfer.sql) or being erased. i is the index alone, s the row it leads to
SELECT s.no FROM sessions i JOIN sessions s ON s.no = i.no
 WHERE i.ended = 1 AND s.ended = 1 AND s.life <> '' AND s.expires_at IS NULL
 LIMIT 1

-- some_expired: find sessions that expired, and all of their columns; i and s as above
SELECT s.no, s.namespace, s.session_id, s.ended, s.life, s.version, s.last_seq, s.head, s.cleared, s.floor, s.kept,
       s.messages, s.bytes, s.dimension, s.ttl, s.expires_at, s.created_at, s.changed_at, s.forked_from, s.snapshots,
       s.undo_steps, s.last_jump, s.facts, s.effects, s.checksum
  FROM sessions i JOIN sessions s ON s.no = i.no
 WHERE i.expires_at <= ?1 AND s.expires_at <= ?1

-- end: end a session: one that expired gives up its name, one that was staged cannot be published any more
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = NULL WHERE no = ?

-- end_by_erasing: end a session; until this moment its rows are left to the caller of erase, who counts them
UPDATE sessions SET ended = 1, life = ifnull(nullif(life, ''), '-'), expires_at = ? WHERE no = ?

-- living: find the live session of this name
SELECT no FROM sessions WHERE namespace = ? AND session_id = ? AND ended = 0

-- lives_of: find every life of this name that has rows, except a live one that is another than the life given, or at another version than the one given
SELECT s.no FROM sessions i JOIN sessions s ON s.no = i.no AND (s.namespace, s.session_id) = (?1, ?2)
 WHERE i.namespace = ?1 AND i.session_id = ?2 AND i.ended = 0 AND (?3 IS NULL OR (s.life = ?3 AND (?5 IS NULL OR s.version = ?5)) OR s.expires_at <= ?4)
UNION ALL
SELECT s.no FROM sessions i JOIN sessions s ON s.no = i.no AND (s.namespace, s.session_id) = (?1, ?2)
 WHERE i.namespace = ?1 AND i.session_id = ?2 AND i.ended = 1

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
