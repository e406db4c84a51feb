-- load_lease: load the latest lease of this name
SELECT namespace, session_id, life, token, holder, until, checksum FROM leases WHERE namespace = ? AND session_id = ?

-- lease_before: name of the lease that is stored before this name would be
SELECT namespace, session_id FROM leases WHERE (namespace, session_id) < (?, ?) ORDER BY namespace DESC, session_id DESC LIMIT 1

-- lease_after: name of the lease that is stored behind this name
SELECT namespace, session_id FROM leases WHERE (namespace, session_id) > (?, ?) ORDER BY namespace, session_id LIMIT 1

-- store_lease: write the lease of this name
INSERT OR REPLACE INTO leases (namespace, session_id, life, token, holder, until, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)

-- delete_lease: delete the lease of this name
DELETE FROM leases WHERE namespace = ? AND session_id = ?

-- delete_idle_leases: delete some leases that are over, of names that have no session
DELETE FROM leases WHERE (namespace, session_id) IN (
    SELECT l.namespace, l.session_id FROM leases l
     WHERE l.until <= ?1 AND NOT EXISTS (
        SELECT 1 FROM sessions s WHERE s.namespace = l.namespace AND s.session_id = l.session_id AND s.ended = 0)
     LIMIT ?2)
