-- latest_jumps: list the last jumps up to an id, newest first
SELECT id, after, checksum FROM jumps WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?

-- jumps_beside: load the jumps around a range of ids from ?2 to ?1, on both sides of each end, and whether each is found by its id
SELECT EXISTS (SELECT 1 FROM jumps j WHERE j.id = n.id), n.*
  FROM (SELECT * FROM (SELECT id, after, checksum FROM jumps WHERE id > ?1 ORDER BY id LIMIT 1)
        UNION ALL SELECT * FROM (SELECT id, after, checksum FROM jumps WHERE id <= ?1 ORDER BY id DESC LIMIT 1)
        UNION ALL SELECT * FROM (SELECT id, after, checksum FROM jumps WHERE id >= ?2 ORDER BY id LIMIT 1)
        UNION ALL SELECT * FROM (SELECT id, after, checksum FROM jumps WHERE id < ?2 ORDER BY id DESC LIMIT 1)) n
