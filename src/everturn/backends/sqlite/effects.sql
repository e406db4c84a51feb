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

-- load_link: load the link of the greatest key before another
SELECT session, key, next_key, checksum FROM effect_keys WHERE session = ? AND key < ? ORDER BY key DESC LIMIT 1

-- load_last_link: load the link of the greatest key
SELECT session, key, next_key, checksum FROM effect_keys WHERE session = ? ORDER BY key DESC LIMIT 1

-- list_links: list the links of a session
SELECT session, key, next_key, checksum FROM effect_keys WHERE session = ? ORDER BY key

-- store_link: write a link
INSERT OR REPLACE INTO effect_keys (session, key, next_key, checksum) VALUES (?, ?, ?, ?)

-- reap_links: delete some links of a session that ended
DELETE FROM effect_keys WHERE (session, key) IN (SELECT session, key FROM effect_keys WHERE session = ?1 LIMIT ?2)

-- delete_links: delete all links of a session
DELETE FROM effect_keys WHERE session = ?

-- reap_effects: delete some effects of a session that ended
DELETE FROM effects WHERE (session, key) IN (SELECT session, key FROM effects WHERE session = ?1 LIMIT ?2)

-- delete_effects: delete all effects of a session
DELETE FROM effects WHERE session = ?
