-- latest_jumps: list the last jumps up to an id, newest first
SELECT id, after, checksum FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- misplaced_jump: find a jump that is not found by its id, among the neighbours of a range: the first above ?1, the last up to ?1, the first from ?2 on, and the last below ?2
SELECT id FROM (SELECT (SELECT id FROM jumps WHERE id > ?1 ORDER BY id LIMIT 1) AS id
                UNION ALL SELECT (SELECT id FROM jumps WHERE id <= ?1 ORDER BY id DESC LIMIT 1)
                UNION ALL SELECT (SELECT id FROM jumps WHERE id >= ?2 ORDER BY id LIMIT 1)
                UNION ALL SELECT (SELECT id FROM jumps WHERE id < ?2 ORDER BY id DESC LIMIT 1)) n
 WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM jumps j WHERE j.id = n.id)
