-- Version 1 of the stored form. docs/storage.md explains it; it is a contract, so it only ever changes by a new file.
--
-- A row of a session's log, its jumps and its changes is found by `id` = session number * 2^32 + seq (or version):
-- one B-tree, clustered by session, with no second index to write. `session` and `seq` spell it out at no cost.

CREATE TABLE sessions (
    no          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never reused: a late reader cannot meet another session's rows
    namespace   TEXT    NOT NULL,
    session_id  TEXT    NOT NULL,
    ended       INTEGER NOT NULL DEFAULT 0,         -- 1: expired and succeeded by a new life; waits to be reaped
    life        TEXT    NOT NULL,
    version     INTEGER NOT NULL DEFAULT 0,
    last_seq    INTEGER NOT NULL DEFAULT 0,
    head        INTEGER NOT NULL DEFAULT 0,         -- the state (see rules.State), here and wherever these five stand
    cleared     INTEGER NOT NULL DEFAULT 0,
    floor       INTEGER NOT NULL DEFAULT 0,
    kept        TEXT,                               -- JSON array of seqs; NULL for none
    messages    INTEGER NOT NULL DEFAULT 0,
    bytes       INTEGER NOT NULL DEFAULT 0,
    dimension   INTEGER,                            -- length of the embeddings; set by the first
    ttl         REAL,
    expires_at  REAL,
    created_at  REAL    NOT NULL,
    changed_at  REAL    NOT NULL,
    forked_from TEXT
) STRICT;

CREATE UNIQUE INDEX sessions_by_name ON sessions (namespace, session_id) WHERE ended = 0;
CREATE INDEX sessions_ended ON sessions (namespace, session_id) WHERE ended = 1;
CREATE INDEX sessions_by_expiry ON sessions (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE entries (
    id         INTEGER PRIMARY KEY,
    turn       INTEGER NOT NULL,  -- seq of the first entry of its turn
    kind       TEXT    NOT NULL,
    created_at REAL    NOT NULL,
    checksum   INTEGER NOT NULL,  -- codec.checksum
    body       TEXT    NOT NULL,  -- JSON
    session    INTEGER AS (id >> 32) VIRTUAL,
    seq        INTEGER AS (id & 4294967295) VIRTUAL
) STRICT;

CREATE INDEX entries_not_messages ON entries (kind) WHERE kind <> 'message';

-- An entry follows the one before it, except where a jump says otherwise: the first entry after the head was moved.
CREATE TABLE jumps (
    id      INTEGER PRIMARY KEY,
    after   INTEGER NOT NULL,
    session INTEGER AS (id >> 32) VIRTUAL,
    seq     INTEGER AS (id & 4294967295) VIRTUAL
) STRICT;

CREATE TABLE snapshots (
    snapshot_id TEXT    PRIMARY KEY,
    session     INTEGER NOT NULL,
    label       TEXT,
    version     INTEGER NOT NULL,
    head        INTEGER NOT NULL,
    cleared     INTEGER NOT NULL,
    floor       INTEGER NOT NULL,
    kept        TEXT,
    messages    INTEGER NOT NULL,
    created_at  REAL    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX snapshots_by_session ON snapshots (session, version);

-- What undo goes back to: the state before a rollback, replace, trim or clear. At most ten a session.
CREATE TABLE undo_steps (
    id       INTEGER PRIMARY KEY,
    kind     TEXT    NOT NULL,
    moved_to INTEGER NOT NULL,  -- the head right after the change
    hidden   INTEGER NOT NULL,  -- how many messages the change hid
    head     INTEGER NOT NULL,
    cleared  INTEGER NOT NULL,
    floor    INTEGER NOT NULL,
    kept     TEXT,
    messages INTEGER NOT NULL,
    session  INTEGER AS (id >> 32) VIRTUAL,
    version  INTEGER AS (id & 4294967295) VIRTUAL
) STRICT;

-- The change log: what makes a retry find its first attempt, and a version a state that can be read.
CREATE TABLE changes (
    id          INTEGER PRIMARY KEY,
    kind        TEXT    NOT NULL,
    call        BLOB    NOT NULL,
    key         BLOB,
    content     BLOB,               -- digest of what the key was used with
    first_seq   INTEGER NOT NULL,
    count       INTEGER NOT NULL,
    snapshot_id TEXT,
    label       TEXT,
    created_at  REAL    NOT NULL,
    head        INTEGER,            -- NULL once compact has reclaimed entries that this state shows
    cleared     INTEGER NOT NULL,
    floor       INTEGER NOT NULL,
    kept        TEXT,
    messages    INTEGER NOT NULL,
    session     INTEGER AS (id >> 32) VIRTUAL,
    version     INTEGER AS (id & 4294967295) VIRTUAL
) STRICT;

CREATE INDEX changes_by_key ON changes (key) WHERE key IS NOT NULL;

-- What a store would read, for people with a SQL prompt: SELECT * FROM history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW history AS
WITH RECURSIVE path (session, first, last, after) AS (
    SELECT s.no, ifnull(j.seq, 1), s.head, ifnull(j.after, 0)
      FROM sessions s
      LEFT JOIN jumps j
        ON j.id = (SELECT max(id) FROM jumps WHERE id BETWEEN s.no << 32 AND (s.no << 32) + s.head)
     WHERE s.ended = 0
    UNION ALL
    SELECT p.session, ifnull(j.seq, 1), p.after, ifnull(j.after, 0)
      FROM path p
      LEFT JOIN jumps j
        ON j.id = (SELECT max(id) FROM jumps WHERE id BETWEEN p.session << 32 AND (p.session << 32) + p.after)
     WHERE p.after > 0
)
SELECT s.namespace, s.session_id, e.seq, e.turn, e.kind, e.created_at, e.body
  FROM sessions s
  JOIN path p ON p.session = s.no
  JOIN entries e ON e.id BETWEEN (s.no << 32) + p.first AND (s.no << 32) + p.last
 WHERE e.seq > s.cleared
   AND (e.seq > s.floor OR e.kind = 'summary' OR e.seq IN (SELECT value FROM json_each(ifnull(s.kept, '[]'))))
   AND (s.expires_at IS NULL OR s.expires_at > (julianday('now') - 2440587.5) * 86400.0);
