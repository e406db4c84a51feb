-- sessions_by_name: list a page in byte order of the names; i is the index alone, s the row it leads to; NULL where they differ
SELECT CASE WHEN i.session_id = s.session_id AND i.namespace = s.namespace AND s.ended = 0 THEN i.session_id END,
       s.life, s.version, s.messages, s.last_seq, s.bytes,
       (SELECT count(*) FROM snapshots p WHERE p.session = s.no),
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND i.session_id > :past AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
   AND (s.expires_at IS NULL OR s.expires_at > :now) AND (s.changed_at IS NULL OR s.changed_at >= :bound)
 ORDER BY i.session_id LIMIT :limit

-- sessions_by_change: list a page with the latest changed first; i and s as above
SELECT CASE WHEN i.session_id = s.session_id AND i.namespace = s.namespace AND s.ended = 0 THEN i.session_id END,
       s.life, s.version, s.messages, s.last_seq, s.bytes,
       (SELECT count(*) FROM snapshots p WHERE p.session = s.no),
       (SELECT count(*) FROM undo_steps u WHERE u.id BETWEEN s.no << 32 AND (s.no << 32) + 4294967295),
       s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
  FROM sessions i LEFT JOIN sessions s ON s.no = i.no
 WHERE i.namespace = :namespace AND i.ended = 0 AND (s.changed_at IS NULL OR (s.changed_at, i.session_id) < (:bound, :past))
   AND i.session_id >= :prefix AND (:beyond IS NULL OR i.session_id < :beyond)
   AND (s.expires_at IS NULL OR s.expires_at > :now)
 ORDER BY s.changed_at DESC, i.session_id DESC LIMIT :limit

-- find_in_all: find entries whose body contains the pattern, those of the session begun last first
SELECT s.session_id, e.seq, e.created_at, e.checksum, CAST(e.body AS BLOB), e.kind, e.turn, e.count, e.checksums
  FROM entries e JOIN sessions s ON s.no = e.id >> 32
 WHERE e.body LIKE :pattern ESCAPE '\' AND s.namespace = :namespace AND s.ended = 0 AND (s.expires_at IS NULL OR s.expires_at > :now)
 ORDER BY e.id DESC

-- find_in_range: find such entries in a part of one session's log
SELECT seq, created_at, checksum, CAST(body AS BLOB), kind, turn, count, checksums FROM entries
 WHERE id BETWEEN :first AND :last AND body LIKE :pattern ESCAPE '\'
 ORDER BY id DESC
