-- Version 1 of the stored form. docs/storage-postgres.md explains it; from the first release on it is a contract, and only ever
-- changes by a new file beside this one. `everturn.` stands for the schema the store was opened with.
--
-- Three folders make a schema. tables/ has one file for each version that changed tables or types: they are run in order, from the
-- version that is found on. functions/ has the one text in force of each function, for the tables as they are now: every
-- migration creates all of them anew. after_functions/ has, again by version, all that needs functions: triggers, the view, rows that
-- are brought up to date, functions that nobody calls any more.
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
    seal        bytea,                                    -- session_seal_v1; set to NULL by every other change (functions/02-seals.sql)
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

-- Forks under way, in steps. The copy is staged under a number of its own (functions/18-transfer.sql), whose row in `sessions` has the
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

-- Ranges of seqs, the newest first.
CREATE TYPE everturn.ranges_v1 AS (
    firsts bigint[],
    lasts  bigint[],
    size   bigint,  -- how many seqs they hold
    at     bigint   -- the seq at which the path goes on below them
);

CREATE TYPE everturn.request_v1 AS (
    session_id       text,
    kind             text,
    call             bytea,
    ttl              double precision,
    key              bytea,
    content          bytea,
    expected_version bigint,
    expected_life    text,
    retry            boolean,
    issued           double precision,  -- on the server's clock, like the next
    not_after        double precision,
    entries          integer,           -- append, replace: how many bodies are its own
    kinds            text[],            -- NULL: all are messages
    checksums        bigint[],
    messages         integer,
    dimension        integer,
    after            bigint,
    floor            bigint,            -- trim: NULL if there is nothing to hide
    kept             bigint[],
    hidden           bigint,
    seen_life        text,
    seen_head        bigint,
    seen_cleared     bigint,
    seen_floor       bigint,
    seen_kept        bigint[],
    snapshot_id      text,              -- snapshot, delete_snapshot, rollback
    label            text,
    drop_turns       boolean,           -- undo
    seconds          double precision   -- ttl
);

CREATE TYPE everturn.plan_v1 AS (
    refusal  text,      -- the reason, a Status; then nothing else is set
    head     bigint,    -- the state after the change
    cleared  bigint,
    floor    bigint,
    kept     bigint[],
    messages bigint,
    follows  bigint,    -- the entry before the first new one, where that is not the last of the log
    undoable boolean,
    undone   bigint     -- the undo step that is taken back
);

CREATE TYPE everturn.outcome_v1 AS (
    status      text,
    life        text,
    version     bigint,
    first_seq   bigint,
    count       bigint,
    detail      integer,
    snapshot_id text,              -- of the change in question, as the log has it
    label       text,
    messages    bigint,
    created_at  double precision,
    told        double precision   -- the server's clock
);

-- A turn whose session is updated, and whose rows are still to be written.
CREATE TYPE everturn.turn_v1 AS (
    session    bigint,
    version    bigint,
    first_seq  bigint,
    count      bigint,
    head       bigint,
    cleared    bigint,
    floor      bigint,
    messages   bigint,
    created_at double precision,
    kept       bigint[],
    call       bytea,
    before     bigint  -- bodies of the turns before it
);

CREATE TYPE everturn.row_v1 AS (
    seq        bigint,
    created_at double precision,
    checksum   bigint,
    body       bytea,
    kind       text,
    turn       bigint
);

CREATE TYPE everturn.match_v1 AS (
    session    bigint,
    session_id text,
    seq        bigint,
    created_at double precision,
    checksum   bigint,
    body       bytea,
    kind       text,
    turn       bigint
);

CREATE TYPE everturn.reclaimed_v1 AS (
    sessions bigint,
    entries  bigint,
    bytes    bigint,
    others   bigint,  -- of the entries, those that are no messages
    looked   bigint,  -- at so many rows: as many as were allowed means that more may be left
    last     bigint   -- of changes: the last version that was looked at
);

CREATE TYPE everturn.work_v1 AS (
    unreadable    bigint[],  -- versions whose states show entries that will be reclaimed
    firsts        bigint[],  -- ranges of entries that no root shows
    lasts         bigint[],
    summaries     boolean,   -- whether summaries go as well
    jumps         bigint[],  -- on the way to nothing, in order
    forget_to     bigint,    -- the version up to which changes can no longer be read
    forget_beyond bigint     -- and beyond which they are deleted (NULL: not yet)
);

CREATE TYPE everturn.removed_v1 AS (
    entries   bigint,
    bytes     bigint,
    snapshots bigint,
    is_gone   boolean  -- with its last row
);

CREATE TYPE everturn.erased_v1 AS (
    entries   bigint,
    snapshots bigint,
    bytes     bigint,
    xid       xid,              -- of the transaction that did it
    spared    boolean,          -- another life than the one named lives there
    told      double precision, -- the server's clock
    left_over boolean           -- rows are left, which nobody can read; erase_more_v1 removes them
);

CREATE TYPE everturn.part_v1 AS (
    part       text,              -- session, entry, jump, root, remembered, version
    seq        bigint,            -- or version; of a session: its version
    after      bigint,            -- of a jump; of a session: its last seq
    checksum   bigint,
    created_at double precision,
    body       bytea,
    name       text,              -- kind of an entry, or the name of a state
    state      json
);
