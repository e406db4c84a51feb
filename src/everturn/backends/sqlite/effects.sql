-- load_effect: load an effect of a session
SELECT session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note, checksum
  FROM effects WHERE session = ? AND key = ?

-- list_effects: list the effects of a session, in the order in which they were begun
SELECT session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note, checksum
  FROM effects WHERE session = ? ORDER BY began, key

-- store_effect: write an effect
INSERT OR REPLACE INTO effects
       (session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- reap_effects: delete some effects of a session that ended
DELETE FROM effects WHERE (session, key) IN (SELECT session, key FROM effects WHERE session = ?1 LIMIT ?2)

-- delete_effects: delete all effects of a session
DELETE FROM effects WHERE session = ?
