-- Version 1 of the stored form. docs/storage-postgres.md explains it; from the first release on it is a contract, and only
-- ever changes by a new folder beside this one. `everturn.` stands for the schema the store was opened with.
--
--   01-tables         tables and indexes                    08-reads       one session: facts, states, entries, changes
--   02-paths          the entries that a head shows         09-listing     pages of sessions, text search
--   03-seals          checksums that make damage loud       10-forks       copies of a state, in steps
--   04-plans          the rules of a change                 11-compaction  reclaiming what nothing can reach
--   05-late-requests  windows, fences, tombstones           12-removal     reaping and erasing
--   06-changes        every change, the general way         13-verify      everything stored of a session, and its damage
--   07-appends        plain turns, of one session or many   14-transfer    sessions in and out, for copies
--                                                           15-settings    the settings that every function runs under
--
-- Every table but `sessions` is keyed by (session number, seq or version): the rows of a session stand together, and the
-- tables can be partitioned by `session`. There are no foreign keys: they would lock the session's row once more.

CREATE TABLE everturn.sessions (
    no          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- never reused
    namespace   text             COLLATE "C" NOT NULL,
    session_id  text             COLLATE "C" NOT NULL,
    ended       boolean          NOT NULL DEFAULT false,  -- expired, and succeeded or being reaped
    life        text             COLLATE "C" NOT NULL,
    version     bigint           NOT NULL,
    last_seq    bigint           NOT NULL,
    head        bigint           NOT NULL,                -- the state (core/paths.py, State), here and where these five stand
    cleared     bigint           NOT NULL DEFAULT 0,
    floor       bigint           NOT NULL DEFAULT 0,
    kept        bigint[]         NOT NULL DEFAULT '{}',
    messages    bigint           NOT NULL,
    bytes       bigint           NOT NULL,
    dimension   integer,                                  -- length of the embeddings; set by the first
    ttl         double precision,
    expires_at  double precision,
    created_at  double precision NOT NULL,
    changed_at  double precision NOT NULL,
    forked_from text             COLLATE "C",
    -- Counts of other rows of the session, so that rows which vanish are missed (docs/decisions/024-damage-on-servers.md).
    snapshots   bigint           NOT NULL DEFAULT 0,
    undo_steps  bigint           NOT NULL DEFAULT 0,
    others      bigint           NOT NULL DEFAULT 0,      -- entries that are no messages
    forgotten   bigint           NOT NULL DEFAULT 0,      -- changes up to this version are gone, but for keys
    last_jump   bigint           NOT NULL DEFAULT 0,      -- seq of the newest jump
    seal        bytea,                                    -- session_seal_v1; set to NULL by every other change (03-seals.sql)
    tally       bigint,                                   -- tally_v1 of the columns that an append changes
    -- step_v1 of the times: five minutes at a time. An index on the times themselves would make every change write to every
    -- index of the table; one on these lets most changes be heap-only updates. (Not GENERATED: that is a tenth of an append.)
    changed_in  bigint,
    expires_in  bigint,
    -- Time of the latest rollback, undo, replace that moved the head, or refused retry. A request that was issued before it
    -- is not applied behind it (docs/decisions/020-late-requests.md).
    fence       double precision
) WITH (fillfactor = 50);  -- every change updates a row here: leave room for its next versions on the same page

-- One live session a name. This index, not a lock, is what makes two workers that begin one session begin the same.
CREATE UNIQUE INDEX sessions_by_name ON everturn.sessions (namespace, session_id) WHERE NOT ended;
-- IS NOT NULL, which always holds: a lookup by name, which does not say so, cannot take this index for the one above. In
-- a table that was not analyzed yet the planner could not tell them apart, and walked over every session.
CREATE INDEX sessions_by_change ON everturn.sessions (namespace, changed_in) WHERE NOT ended AND changed_in IS NOT NULL;
CREATE INDEX sessions_ended ON everturn.sessions (namespace, session_id) WHERE ended;
CREATE INDEX sessions_by_expiry ON everturn.sessions (expires_in) WHERE expires_in IS NOT NULL;

-- Each session once more by name: a row of `sessions` that is lost, renamed or hidden is missed.
CREATE TABLE everturn.names (
    namespace  text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    no         bigint NOT NULL,
    PRIMARY KEY (namespace, session_id, no)
);

CREATE TABLE everturn.entries (
    session    bigint           NOT NULL,
    seq        bigint           NOT NULL,
    turn       bigint           NOT NULL,              -- seq of the first entry of its turn
    created_at double precision NOT NULL,
    checksum   bigint           NOT NULL,              -- codec.checksum in the lower 32 bits; above them place_v1
    kind       text             COLLATE "C" NOT NULL,
    body       text             COLLATE "C" NOT NULL,  -- JSON; text, because jsonb refuses \u0000 and reorders
    PRIMARY KEY (session, seq)
);

CREATE INDEX entries_not_messages ON everturn.entries (session, kind, seq) WHERE kind <> 'message';

-- An entry follows the one before it, except where a jump says otherwise: the first entry after the head was moved.
CREATE TABLE everturn.jumps (
    session bigint NOT NULL,
    seq     bigint NOT NULL,
    after   bigint NOT NULL,
    prior   bigint NOT NULL,  -- the jump before this one in the log (0: none), so that one which vanishes is missed
    seal    bigint NOT NULL,  -- jump_seal_v1
    PRIMARY KEY (session, seq)
);

CREATE TABLE everturn.snapshots (
    session     bigint           NOT NULL,
    snapshot_id text             COLLATE "C" NOT NULL,
    label       text             COLLATE "C",
    version     bigint           NOT NULL,
    head        bigint           NOT NULL,
    cleared     bigint           NOT NULL,
    floor       bigint           NOT NULL,
    kept        bigint[]         NOT NULL,
    messages    bigint           NOT NULL,
    created_at  double precision NOT NULL,
    seal        bytea,
    PRIMARY KEY (session, snapshot_id)
);

-- States that undo goes back to: the one before a rollback, replace, trim or clear. At most ten a session.
CREATE TABLE everturn.undo_steps (
    session  bigint   NOT NULL,
    version  bigint   NOT NULL,
    kind     text     COLLATE "C" NOT NULL,
    moved_to bigint   NOT NULL,  -- the head right after the change
    hidden   bigint   NOT NULL,  -- how many messages the change hid
    head     bigint   NOT NULL,
    cleared  bigint   NOT NULL,
    floor    bigint   NOT NULL,
    kept     bigint[] NOT NULL,
    messages bigint   NOT NULL,
    seal     bytea,
    PRIMARY KEY (session, version)
);

-- The change log. A retry finds its first attempt here, and a read the state of a version.
CREATE TABLE everturn.changes (
    session     bigint           NOT NULL,
    version     bigint           NOT NULL,
    first_seq   bigint           NOT NULL,
    count       bigint           NOT NULL,
    head        bigint,                      -- NULL once compact has reclaimed entries that this state shows
    cleared     bigint           NOT NULL,
    floor       bigint           NOT NULL,
    messages    bigint           NOT NULL,
    created_at  double precision NOT NULL,
    kept        bigint[]         NOT NULL,
    kind        text             COLLATE "C" NOT NULL,
    call        bytea            NOT NULL,
    key         bytea,
    content     bytea,                       -- digest of what the key was used with
    snapshot_id text             COLLATE "C",
    label       text             COLLATE "C",
    seal        bytea            NOT NULL,   -- change_seal_v1
    PRIMARY KEY (session, version)
);

CREATE INDEX changes_by_key ON everturn.changes (session, key) WHERE key IS NOT NULL;

-- Forks under way, in steps. The copy is staged under a number of its own (14-transfer.sql), whose row in `sessions` has the
-- state to copy.
CREATE TABLE everturn.forks (
    no     bigint PRIMARY KEY,
    source bigint NOT NULL,  -- number of the session to copy from
    next   bigint NOT NULL,  -- seq of the path at which copying goes on
    rest   bigint NOT NULL   -- entries to copy from there on
);

-- Fences of sessions that are not there: left by an erasure, or by a retry that was refused; and the receipts of changes that
-- were erased, by their call ids. They live as long as a request can be under way, and hold no text.
CREATE TABLE everturn.tombstones (
    namespace text             COLLATE "C" NOT NULL,
    digest    bytea            NOT NULL,  -- digest_v1 of the session id
    fence     double precision NOT NULL,
    until     double precision NOT NULL,
    calls     jsonb            NOT NULL,  -- as calls_of_v1 has them
    PRIMARY KEY (namespace, digest)
);

CREATE INDEX tombstones_by_end ON everturn.tombstones (until);
