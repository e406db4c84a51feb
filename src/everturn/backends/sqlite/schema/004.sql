-- Version 4: rows at both ends of the indexes of keys and of kinds; leases, and effects. docs/storage.md explains it.

-- Where both ends of an index are found, everything between them can be. If the root page of an index lies in the place of
-- another of its pages, one end is out of reach (docs/decisions/030). No session has the number 0.
INSERT INTO changes (id, kind, call, key, first_seq, count, created_at, cleared, floor, messages, checksum)
SELECT id, 'end', x'', key, 0, 0, 0.0, 0, 0, 0, everturn_row(id, 'end', x'', key, NULL, 0, 0, NULL, NULL, 0.0, NULL, 0, 0, NULL, 0)
  FROM (SELECT 0 AS id, x'' AS key UNION ALL SELECT 1, x'ffffffffffffffffffffffffffffffffff');
INSERT INTO entries (id, turn, kind, created_at, checksum, body)
VALUES (0, 0, '', 0.0, 0, ''), (1, 0, char(1114111), 0.0, 0, '');

-- The latest lease of a session, by its name: there may be no session yet. Its token grows with every holder.
CREATE TABLE leases (
    namespace  TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    life       TEXT    NOT NULL,  -- of the session when it was taken; '' if there was none
    token      INTEGER NOT NULL,
    holder     TEXT    NOT NULL,  -- random, made for each lease
    until      REAL    NOT NULL,  -- seconds since 1970; 0 once it was released
    checksum   INTEGER NOT NULL,
    PRIMARY KEY (namespace, session_id)
) STRICT, WITHOUT ROWID;

-- Effects of a session, by key. They belong to the life: no rollback, undo, trim, fold or clear touches them.
CREATE TABLE effects (
    session  INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    status   TEXT    NOT NULL,  -- started, finished, failed
    attempt  INTEGER NOT NULL,
    began    INTEGER NOT NULL,  -- version of the change that began it
    ended    INTEGER NOT NULL,  -- version of the change that ended it; 0 while it is started
    token    INTEGER NOT NULL,  -- of the lease it was begun under; 0 for none
    by       TEXT    NOT NULL,
    at       REAL    NOT NULL,
    ended_at REAL,
    request  TEXT,              -- JSON, like the next two
    result   TEXT,
    error    TEXT,
    note     TEXT,              -- reason of a person who ended it
    checksum INTEGER NOT NULL,
    PRIMARY KEY (session, key)
) STRICT, WITHOUT ROWID;
