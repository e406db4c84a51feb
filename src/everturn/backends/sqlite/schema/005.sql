-- Version 5: facts, which a session is found by; effects are counted. docs/storage.md explains it.

-- Names and texts of a session, as a JSON object, names in order. They belong to the life. NULL for none.
ALTER TABLE sessions ADD COLUMN facts TEXT;

-- How many effects a session has, so that none is missed: one that vanishes would begin again.
ALTER TABLE sessions ADD COLUMN effects INTEGER NOT NULL DEFAULT 0;

UPDATE sessions SET effects = (SELECT count(*) FROM effects WHERE session = no);

UPDATE sessions
   SET checksum = everturn_row(no, namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept,
                               messages, bytes, dimension, ttl, expires_at, created_at, changed_at, forked_from,
                               snapshots, undo_steps, last_jump, facts, effects)
 WHERE ended = 0 AND checksum = everturn_row(no, namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept,
                               messages, bytes, dimension, ttl, expires_at, created_at, changed_at, forked_from,
                               snapshots, undo_steps, last_jump);

-- The same facts once more, a row each, so that sessions are found by them: kept by the triggers below.
CREATE TABLE facts (
    session    INTEGER NOT NULL,
    namespace  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX facts_by_value ON facts (namespace, name, value, session_id);

-- The other way round: a session that one index has lost is noticed.
CREATE INDEX facts_again ON facts (value, name, namespace, session_id);

-- Ends of no session, of each index here and of the leases: where one is not found, a part of it is out of reach.
INSERT INTO facts (session, namespace, session_id, name, value)
VALUES (0, '', '', '', char(1)),
       (0, char(1114111, 1114111, 1114111, 1114111), '', char(1114111, 1114111, 1114111, 1114111),
        char(1114111, 1114111, 1114111, 1114111));
INSERT INTO leases (namespace, session_id, life, token, holder, until, checksum)
SELECT name, '', '', 0, '', 9e15, everturn_row(name, '', '', 0, '', 9e15)
  FROM (SELECT '' AS name UNION ALL SELECT char(1114111, 1114111, 1114111, 1114111));

CREATE TRIGGER facts_set AFTER UPDATE OF facts ON sessions BEGIN
    DELETE FROM facts WHERE session = NEW.no;
    INSERT INTO facts (session, namespace, session_id, name, value)
    SELECT NEW.no, NEW.namespace, NEW.session_id, key, value FROM json_each(NEW.facts);
END;

CREATE TRIGGER facts_gone AFTER DELETE ON sessions WHEN OLD.facts IS NOT NULL BEGIN
    DELETE FROM facts WHERE session = OLD.no;
END;
