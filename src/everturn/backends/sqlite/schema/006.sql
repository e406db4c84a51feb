-- Version 6: the keys of a session's effects, linked. docs/storage.md and docs/decisions/121 explain it.

-- The keys of a session in their order, each with the one after it; the last with the first. A link shows that no key between
-- the two was begun, so a lost effect is told from a new one by one row, however many there are.
CREATE TABLE effect_keys (
    session  INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    next_key TEXT    NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;

-- A session that has lost an effect, or has a damaged one, gets no links: it begins nothing any more, and says why.
INSERT INTO effect_keys (session, key, next_key, checksum)
WITH sound AS (
    SELECT DISTINCT session, key FROM effects
     WHERE checksum = everturn_row(session, key, status, attempt, began, ended, token, by, at, ended_at,
                                   request, result, error, note)
), linked AS (
    SELECT session, key, ifnull(lead(key) OVER in_order, first_value(key) OVER in_order) AS next_key,
           count(*) OVER (PARTITION BY session) AS found
      FROM sound
    WINDOW in_order AS (PARTITION BY session ORDER BY key)
)
SELECT l.session, l.key, l.next_key, everturn_row(l.session, l.key, l.next_key)
  FROM linked l JOIN sessions s ON s.no = l.session AND s.effects = l.found
 WHERE s.ended = 0;
