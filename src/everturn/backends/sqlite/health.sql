-- held_leases: the holders of leases that are in force (is_held of core/leases.py)
SELECT l.holder FROM leases l
  LEFT JOIN sessions s ON s.namespace = l.namespace AND s.session_id = l.session_id AND s.ended = 0
                      AND (s.expires_at IS NULL OR s.expires_at > :now)
 WHERE l.namespace = :namespace AND l.until > :now AND l.until <= :now + :longest AND l.life IN ('', s.life)

-- effects_in_doubt: count the effects that have not ended, and are under no lease that is in force
SELECT count(*) FROM effects e JOIN sessions s ON s.no = e.session
 WHERE e.status = 'started' AND s.namespace = :namespace AND s.ended = 0
   AND (s.expires_at IS NULL OR s.expires_at > :now)
   AND NOT EXISTS (
        SELECT 1 FROM leases l
         WHERE l.namespace = s.namespace AND l.session_id = s.session_id AND e.token > 0 AND l.token = e.token
           AND l.until > :now AND l.until <= :now + :longest AND l.life IN ('', s.life))
