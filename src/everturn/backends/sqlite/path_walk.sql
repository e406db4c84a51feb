-- latest_jumps: list the last jumps up to an id, newest first
SELECT id, after, prior, checksum FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- next_jump: load the first jump above an id
SELECT id, after, prior, checksum FROM jumps WHERE id > ?1 AND id <= ?2 ORDER BY id LIMIT 1
