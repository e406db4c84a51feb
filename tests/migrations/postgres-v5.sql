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
-- Version 2: folds, and rollbacks to a version.

ALTER TYPE everturn.request_v1 ADD ATTRIBUTE to_version bigint;  -- rollback, where no snapshot is named
-- Version 3: leases and effects; and tombstones as version 1 has had them since they remember receipts. A schema that was made before
-- that has a version 1 without it, and is made like the others here; in a schema that was made since, this changes nothing.

-- A tombstone from before has no receipts: retries of changes that were erased until now are refused as late, as they were then.
ALTER TABLE everturn.tombstones ADD COLUMN IF NOT EXISTS calls jsonb NOT NULL DEFAULT '{}';
ALTER TABLE everturn.tombstones ALTER COLUMN calls DROP DEFAULT;

-- The part of a log that a read shows.
CREATE TYPE everturn.window_v3 AS (
    firsts       bigint[],  -- ranges that are visible whatever their kind, the newest first
    lasts        bigint[],
    size         bigint,    -- how many seqs they hold
    below_firsts bigint[],  -- ranges that a trim hid: there, summaries alone are visible
    below_lasts  bigint[],
    cut          boolean    -- whether the limit left out earlier messages
);

-- The latest lease of a session, by its name: there may be no session yet. Its token grows with every holder.
CREATE TABLE everturn.leases (
    namespace  text             COLLATE "C" NOT NULL,
    session_id text             COLLATE "C" NOT NULL,
    life       text             COLLATE "C" NOT NULL,  -- of the session when it was taken; '' if there was none
    token      bigint           NOT NULL,
    holder     text             COLLATE "C" NOT NULL,  -- random, made for each lease
    until      double precision NOT NULL,              -- 0 once it was released
    seal       bytea            NOT NULL,              -- lease_seal_v3
    PRIMARY KEY (namespace, session_id)
) WITH (fillfactor = 50);

CREATE INDEX leases_without_session ON everturn.leases (until) WHERE life = '';

-- A change: the lease that it names, and the effect that it begins or ends. (The effect's key is its label.)
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE lease_token bigint;     -- NULL: it names none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE lease_holder text;      -- NULL: whoever holds it
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_attempt bigint;  -- the attempt that may be repeated, or that ends; 0: none, or any
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_body text;       -- JSON: request, result or error
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_by text;
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_note text;

CREATE TYPE everturn.lease_outcome_v3 AS (
    status text,
    token  bigint,
    until  double precision,
    left_  double precision,
    told   double precision
);

-- Effects of a session, by key. They belong to the life: no rollback, undo, trim, fold or clear touches them.
CREATE TABLE everturn.effects (
    session  bigint           NOT NULL,
    key      text             COLLATE "C" NOT NULL,
    status   text             COLLATE "C" NOT NULL,  -- started, finished, failed
    attempt  bigint           NOT NULL,
    began    bigint           NOT NULL,              -- version of the change that began it
    ended    bigint           NOT NULL,              -- version of the change that ended it; 0 while it is started
    token    bigint           NOT NULL,              -- of the lease it was begun under; 0 for none
    by       text             COLLATE "C" NOT NULL,
    at       double precision NOT NULL,
    ended_at double precision,
    request  text             COLLATE "C",           -- JSON, like the next two; text, as the bodies of entries
    result   text             COLLATE "C",
    error    text             COLLATE "C",
    note     text             COLLATE "C",           -- reason of a person who ended it
    seal     bytea,                                  -- effect_seal_v3
    PRIMARY KEY (session, key)
);
-- Version 4: facts, and a count of the effects of a session.

ALTER TABLE everturn.sessions ADD COLUMN facts jsonb;      -- they belong to the life; NULL for none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE facts jsonb;  -- to set; null removes one. NULL: the request is about no facts

-- The same facts once more, a row each, so that sessions are found by them: kept by triggers.
CREATE TABLE everturn.facts (
    session    bigint NOT NULL,
    namespace  text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE INDEX facts_by_value ON everturn.facts (namespace, name, value, session_id);

CREATE TYPE everturn.listed_v4 AS (
    session_id  text,
    life        text,
    version     bigint,
    messages    bigint,
    last_seq    bigint,
    bytes       bigint,
    snapshots   bigint,
    undo_steps  bigint,
    created_at  double precision,
    changed_at  double precision,
    ttl         double precision,
    expires_at  double precision,
    forked_from text,
    facts       text
);

ALTER TABLE everturn.sessions ADD COLUMN effects bigint NOT NULL DEFAULT 0;
-- Version 5: turns that name a lease are tried without a look, too; a replace keeps summaries that stand for hidden entries; the keys
-- of effects are linked.

-- Token of the lease as its holder last named it; NULL once it was released, or where none was named. Whoever takes or releases the lease
-- writes here: so a turn that waits for this row meanwhile sees that its own token is no longer there.
-- Beside the row in `leases`, which says until when it holds, and not instead of it: seals do not cover this column.
ALTER TABLE everturn.sessions ADD COLUMN lease bigint;

-- How many of the bodies of a replace, the first of them, are copies of summaries: a turn of their own, which `entries` does not count.
-- -1: refuse a replace that drops a summary while entries stay hidden. NULL: neither, as workers of version 4 send it.
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE carried integer;

-- The keys of a session's effects in their order, each with the one after it; the last with the first. A link shows that no key
-- between the two was begun, so a lost effect is told from a new one by one row, however many there are.
CREATE TABLE everturn.effect_keys (
    session  bigint NOT NULL,
    key      text   COLLATE "C" NOT NULL,
    next_key text   COLLATE "C" NOT NULL,
    seal     bytea  NOT NULL,              -- effect_key_seal_v5
    PRIMARY KEY (session, key)
);

-- Times, and what follows from them.

-- Whether the session has expired by a time.
CREATE OR REPLACE FUNCTION everturn.is_over_v1(expires_at double precision, at_time double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN expires_at IS NOT NULL AND expires_at <= at_time;

-- A time in steps of five minutes, for the indexes of `sessions`: whatever writes a time there writes its step beside it.
CREATE OR REPLACE FUNCTION everturn.step_v1(at_time double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN floor(at_time / 300)::bigint;

-- The server's clock, unless a time is given (tests bring their own).
CREATE OR REPLACE FUNCTION everturn.now_v1(given double precision) RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, date_part('epoch', clock_timestamp()));  -- extract makes a numeric of it, on the way

-- A life is named after the call that began it.
CREATE OR REPLACE FUNCTION everturn.life_v1(call bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substring(call FROM 1 FOR 8), 'hex');

-- Seals, by which damage is noticed: a checksum over every small row, a mark over the place of every entry, and a second list of
-- the names. Reads look at them. So does a change, before it writes a row anew: else it would seal a damaged one. (A plain append
-- need not look: it adds to a sum, and a sum that was wrong stays wrong.)
-- SHA-256 and sums, because PostgreSQL's own hashes differ between architectures, and a dump must be readable on any.
-- STABLE, as convert_to is: else these functions could not be inlined.

-- Raise that something stored is not as it was written: SQLSTATE EVT01, which errors.py turns into CorruptEntry.
CREATE OR REPLACE FUNCTION everturn.damaged_v1(p_session bigint, p_what text) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    name text := coalesce((SELECT n.session_id FROM everturn.sessions n WHERE n.no = p_session), '');
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = p_what, DETAIL = name;
END
$$;

-- A number for the kind of an entry, 0 for a message.
CREATE OR REPLACE FUNCTION everturn.kind_v1(kind text) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'message' THEN 0
            ELSE 1 + get_byte(sha256(convert_to(kind, 'UTF8')), 0) * 256 + get_byte(sha256(convert_to(kind, 'UTF8')), 1) END;

-- The mark of an entry's place and kind, in the bits above its checksum.
CREATE OR REPLACE FUNCTION everturn.place_v1(session bigint, seq bigint, turn bigint, created_at double precision, kind text)
RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN (session % 2147483647 * 40503 + seq % 2147483647 * 69621 + turn % 2147483647 * 16807 + everturn.kind_v1(kind)
        + (least(greatest(created_at, 0), 1e10) * 1e6)::bigint) % 2147483629 * 4294967296;

-- Whether an entry is where it was written.
CREATE OR REPLACE FUNCTION everturn.is_placed_v1(
    session bigint, seq bigint, turn bigint, created_at double precision, kind text, checksum bigint
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN checksum - checksum % 4294967296 = everturn.place_v1(session, seq, turn, created_at, kind);

-- The checksum of an entry's body; -1, which no body has, where the entry is not where it was written.
CREATE OR REPLACE FUNCTION everturn.checksum_v1(
    session bigint, seq bigint, turn bigint, created_at double precision, kind text, checksum bigint
) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN everturn.is_placed_v1(session, seq, turn, created_at, kind, checksum) THEN checksum % 4294967296 ELSE -1 END;

CREATE OR REPLACE FUNCTION everturn.jump_seal_v1(session bigint, seq bigint, after bigint, prior bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (session % 2147483647 * 40503 + seq % 2147483647 * 69621 + after % 2147483647 * 16807 + prior % 2147483647 * 48271)
       % 2147483629;

-- The seal of a change. Arrays, because record_send looks up the type of every column each time. The texts are left out where
-- it is a plain append, which has none, and the planner sees that.
CREATE OR REPLACE FUNCTION everturn.change_seal_v1(
    session bigint, version bigint, first_seq bigint, count bigint, head bigint, cleared bigint, floor bigint, messages bigint,
    created_at double precision, kept bigint[], kind text, call bytea, key bytea, content bytea, snapshot_id text, label text
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[session, version, first_seq, count, head, cleared, floor, messages]) || array_send(kept)
    || float8send(created_at) || call || CASE
        WHEN kind = 'append' AND key IS NULL AND content IS NULL AND snapshot_id IS NULL AND label IS NULL THEN ''
        ELSE array_send(ARRAY[convert_to(kind, 'UTF8'), key, content, convert_to(snapshot_id, 'UTF8'),
                              convert_to(label, 'UTF8')]) END) FROM 1 FOR 8);

-- Raise that a change is lost, or not as it was written.
CREATE OR REPLACE FUNCTION everturn.lost_change_v5(p_session bigint, p_version bigint) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM everturn.damaged_v1(p_session, format('the change that made version %s is lost or damaged', p_version));
END
$$;

-- Raise if a change is not as it was written. (By its number: no function takes a row of a table that can be partitioned.)
CREATE OR REPLACE FUNCTION everturn.check_change_v5(p_session bigint, p_version bigint) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM everturn.changes g
      WHERE g.session = p_session AND g.version = p_version AND g.seal = everturn.change_seal_v1(
                g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                g.kind, g.call, g.key, g.content, g.snapshot_id, g.label);
    IF NOT FOUND THEN
        PERFORM everturn.lost_change_v5(p_session, p_version);
    END IF;
END
$$;

-- The seal of a session, as before; and over the number of its effects, if it has any.
CREATE OR REPLACE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])
    || CASE WHEN (s).facts IS NULL THEN '' ELSE convert_to((s).facts::text, 'UTF8') END
    || CASE WHEN (s).effects <> 0 THEN int8send((s).effects) ELSE '' END) FROM 1 FOR 8);

-- A time in microseconds, within bounds also where it was damaged; 1 for none.
CREATE OR REPLACE FUNCTION everturn.ticks_v1(at_time double precision) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((least(greatest(at_time, 0), 1e10) * 1e6)::bigint, 1);

-- The sum over the columns that an append changes. Sums are equal that are equal modulo 1099511627689, a prime.
CREATE OR REPLACE FUNCTION everturn.tally_v1(
    version bigint, last_seq bigint, head bigint, messages bigint, bytes bigint, changed_at double precision,
    expires_at double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN version % 1099511627689 * 40503 + last_seq % 1099511627689 * 69621 + head % 1099511627689 * 16807
       + messages % 1099511627689 * 48271 + bytes % 1099511627689 * 39373
       + everturn.ticks_v1(changed_at) * 31 + everturn.ticks_v1(expires_at) * 37;

-- The sum of a session that a plain append has grown by so many messages and bytes: the old sum, and the differences. A row
-- that was damaged before stays so, though nobody looked.
CREATE OR REPLACE FUNCTION everturn.grown_v1(
    tally bigint, messages bigint, bytes bigint, changed_from double precision, changed_to double precision,
    expires_from double precision, expires_to double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (tally % 1099511627689 + 40503 + messages * (69621 + 16807 + 48271) + bytes * 39373
        + (everturn.ticks_v1(changed_to) - everturn.ticks_v1(changed_from)) * 31
        + (everturn.ticks_v1(expires_to) - everturn.ticks_v1(expires_from)) * 37) % 1099511627689;

-- Whether the columns of a session's row that `tally` covers are as they were written: the times, by which pages are made,
-- among them. A tenth of the time of is_whole_v1. (CASE: steps are made of times only once these are known to be right.)
CREATE OR REPLACE FUNCTION everturn.is_timely_v5(s everturn.sessions) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN ((s).tally % 1099511627689 - everturn.tally_v1(
                     (s).version, (s).last_seq, (s).head, (s).messages, (s).bytes, (s).changed_at, (s).expires_at))
                 % 1099511627689 = 0
            THEN ((s).changed_in, (s).expires_in)
                 IS NOT DISTINCT FROM (everturn.step_v1((s).changed_at), everturn.step_v1((s).expires_at))
            ELSE false END;

-- Whether a session's row is as it was written.
CREATE OR REPLACE FUNCTION everturn.is_whole_v1(s everturn.sessions) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN (s).seal = everturn.session_seal_v1(s) THEN everturn.is_timely_v5(s) ELSE false END;

CREATE OR REPLACE FUNCTION everturn.snapshot_seal_v1(n everturn.snapshots) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(record_send(ROW(
    (n).session, convert_to((n).snapshot_id, 'UTF8'), convert_to((n).label, 'UTF8'), (n).version, (n).head, (n).cleared,
    (n).floor, (n).kept, (n).messages, (n).created_at))) FROM 1 FOR 8);

CREATE OR REPLACE FUNCTION everturn.undo_seal_v1(u everturn.undo_steps) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(record_send(ROW(
    (u).session, (u).version, convert_to((u).kind, 'UTF8'), (u).moved_to, (u).hidden, (u).head, (u).cleared, (u).floor,
    (u).kept, (u).messages))) FROM 1 FOR 8);

-- Raise if a session's row is not as it was written.
CREATE OR REPLACE FUNCTION everturn.check_session_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF NOT everturn.is_whole_v1(s) THEN
        PERFORM everturn.damaged_v1(s.no, 'its row in the table sessions is not as it was written');
    END IF;
END
$$;

-- Raise if a session that is not there should be: its name is known, and the row that it names is lost, or not as it was
-- written. (One that has ended, and waits to be reaped, is.)
CREATE OR REPLACE FUNCTION everturn.check_absent_v1(p_namespace text, p_session_id text) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM everturn.names k LEFT JOIN everturn.sessions s ON s.no = k.no
      WHERE k.namespace = p_namespace AND k.session_id = p_session_id
        AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace
             OR NOT everturn.is_whole_v1(s));
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', DETAIL = p_session_id,
            MESSAGE = 'its row in the table sessions is lost, or not as it was written';
    END IF;
END
$$;

-- Seal a row of `sessions` that we wrote: a change of ours sets `seal` to NULL. One made by hand does not, and is noticed.
CREATE OR REPLACE FUNCTION everturn.seal_session_v1() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM everturn.check_absent_v1(NEW.namespace, NEW.session_id);
    ELSIF NOT everturn.is_whole_v1(OLD) THEN
        PERFORM everturn.damaged_v1(OLD.no, 'its row in the table sessions is not as it was written');
    END IF;
    NEW.seal := everturn.session_seal_v1(NEW);
    NEW.tally := everturn.tally_v1(
        NEW.version, NEW.last_seq, NEW.head, NEW.messages, NEW.bytes, NEW.changed_at, NEW.expires_at) % 1099511627689;
    RETURN NEW;
END
$$;

-- Note the name of a session that begins. (AFTER: an insert that meets another's session of that name does nothing.)
CREATE OR REPLACE FUNCTION everturn.note_name_v1() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    INSERT INTO everturn.names (namespace, session_id, no) VALUES (NEW.namespace, NEW.session_id, NEW.no);
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION everturn.seal_snapshot_v1() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    NEW.seal := everturn.snapshot_seal_v1(NEW);
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION everturn.seal_undo_step_v1() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    NEW.seal := everturn.undo_seal_v1(NEW);
    RETURN NEW;
END
$$;

-- Paths: the entries that a head shows, as ranges of seqs. This is `path` of core/paths.py in SQL, and the answers that the
-- Reader of core/plan_change.py gives. A path is walked from the head down, one index lookup a range, no further than asked for.
-- STABLE: called by a read, these functions see the snapshot of the read. plpgsql where SQL could not be inlined: it keeps plans.

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, and to the p_want newest of these
-- (NULL: all). `at` is where the path goes on below them. Every jump names the one before it in the log, and the session the last:
-- one that is lost is noticed.
CREATE OR REPLACE FUNCTION everturn.ranges_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    link   bigint   := p_last_jump;  -- no jump lies between this one and the seqs above
    beside bigint;                   -- jumps of other branches that were passed over in a row
    lowest bigint;
    last   bigint;
    jump   record;
BEGIN
    IF p_high < p_low THEN
        at := 0;
    ELSIF p_last_jump <= p_low AND p_high <= p_head THEN  -- one range: no jump was ever made above its beginning
        lowest := greatest(p_low, p_high - p_want + 1);
        RETURN (ARRAY[lowest], ARRAY[p_high], p_high - lowest + 1, lowest - 1)::everturn.ranges_v1;
    END IF;
    WHILE at >= p_low AND (p_want IS NULL OR size < p_want) LOOP
        IF link > at THEN  -- others lie between, of branches that this path does not take
            SELECT j.seq, j.after, j.prior, j.seal INTO jump
              FROM everturn.jumps j WHERE j.session = p_session AND j.seq > at ORDER BY j.seq LIMIT 1;
            IF jump.seq IS NULL OR jump.prior > at
               OR jump.seal <> everturn.jump_seal_v1(p_session, jump.seq, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(p_session, format('a jump after seq %s is lost or damaged', at));
            END IF;
            link := jump.prior;
        END IF;
        last := least(at, p_high);
        lowest := greatest(p_low, last - (p_want - size) + 1);
        IF link < lowest OR link <= p_low THEN  -- the last range: it begins above the jump
            firsts := firsts || lowest;
            lasts := lasts || last;
            size := size + last - lowest + 1;
            at := lowest - 1;
            EXIT;
        END IF;
        beside := 0;
        -- (LIMIT: a loop fetches rows by fifties. A path that takes not all of these jumps asks again.)
        FOR jump IN SELECT j.seq, j.after, j.prior,
                           j.after < j.seq AND j.seal = everturn.jump_seal_v1(p_session, j.seq, j.after, j.prior) AS is_whole
                      FROM everturn.jumps j WHERE j.session = p_session AND j.seq <= link ORDER BY j.seq DESC LIMIT p_want
        LOOP
            IF jump.seq <> link OR NOT jump.is_whole THEN
                PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', link));
            END IF;
            link := jump.prior;
            IF jump.seq > at THEN
                beside := beside + 1;
                EXIT WHEN beside = 8;  -- passing over so many takes as long as a lookup
                CONTINUE;
            END IF;
            beside := 0;
            IF jump.seq <= p_high THEN
                lowest := greatest(jump.seq, p_low);
                last := least(at, p_high);
                firsts := firsts || lowest;
                lasts := lasts || last;
                size := size + last - lowest + 1;
            END IF;
            at := jump.after;
            EXIT WHEN link <= p_low OR at < p_low OR size >= p_want;
        END LOOP;
        IF NOT FOUND THEN
            PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', link));
        END IF;
    END LOOP;
    IF size > p_want THEN  -- of the last range, the upper part
        at := lowest + size - p_want - 1;
        firsts[cardinality(firsts)] := at + 1;
        size := p_want;
    END IF;
    RETURN (firsts, lasts, size, at)::everturn.ranges_v1;
END
$$;

-- The same for a session's row, as functions of version 1 ask for it.
CREATE OR REPLACE FUNCTION everturn.ranges_v1(
    s everturn.sessions, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN everturn.ranges_v2(s.no, s.last_jump, p_head, p_low, p_high, p_want);
END
$$;

-- Whether an entry is on the path that ends at p_head.
CREATE OR REPLACE FUNCTION everturn.on_path_v1(s everturn.sessions, p_head bigint, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN p_seq > 0 AND (everturn.ranges_v1(s, p_head, p_seq, p_seq, 1)).size = 1;
END
$$;

-- The number of messages in these ranges. (LATERAL and OFFSET 0, here and elsewhere: each range is looked up by itself, in the
-- primary key, whatever the planner takes the tables for.)
CREATE OR REPLACE FUNCTION everturn.messages_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN (SELECT count(*)
              FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                  WHERE e.session = p_session AND e.seq BETWEEN part.first AND part.last
                                    AND e.kind = 'message' OFFSET 0) AS e);
END
$$;

-- Whether a trim that left this state hid summaries, which it still shows.
CREATE OR REPLACE FUNCTION everturn.has_hidden_summaries_v1(s everturn.sessions) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN everturn.has_summary_v5(s.no, everturn.ranges_v1(s, s.head, s.cleared + 1, s.floor, NULL));
END
$$;

-- Whether there is a summary on the path after an entry; or an entry above the floor that is lost, which may have been one.
CREATE OR REPLACE FUNCTION everturn.has_summary_after_v5(s everturn.sessions, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    r everturn.ranges_v1 := everturn.ranges_v1(s, s.head, greatest(p_seq, s.floor) + 1, s.head, NULL);
BEGIN
    RETURN everturn.has_summary_v5(s.no, everturn.ranges_v1(s, s.head, p_seq + 1, s.head, NULL))
        OR r.size > (SELECT count(*)
                       FROM unnest(r.firsts, r.lasts) AS part (first, last)
                      CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                           WHERE e.session = s.no AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- Whether there is a summary in these ranges.
CREATE OR REPLACE FUNCTION everturn.has_summary_v5(p_session bigint, r everturn.ranges_v1) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN EXISTS (SELECT FROM unnest(r.firsts, r.lasts) AS part (first, last)
                    CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                         WHERE e.session = p_session AND e.kind = 'summary' AND e.kind <> 'message'
                                           AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- The ranges of the path to a session's head, for people with a SQL prompt: the view `history`.
CREATE OR REPLACE FUNCTION everturn.path_v1(p_session bigint) RETURNS TABLE (first bigint, last bigint)
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s everturn.sessions;
    r everturn.ranges_v1;
BEGIN
    SELECT * INTO s FROM everturn.sessions n WHERE n.no = p_session;
    r := everturn.ranges_v1(s, s.head, 1, s.head, NULL);
    RETURN QUERY SELECT * FROM unnest(r.firsts, r.lasts);
END
$$;

-- Reads of one session: its facts, its states, its changes. STABLE, which here means: everything inside sees the one snapshot of
-- the calling statement, so all rows of an answer are of one moment.

-- A session (model.SessionInfo), as a JSON array.
CREATE OR REPLACE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from, coalesce((s).facts, '{}'));

-- The facts of a session and the state it is in, as JSON; NULL if there is none. It takes half the
-- time of a read_v1 without entries.
CREATE OR REPLACE FUNCTION everturn.glance_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN json_build_array(everturn.facts_v1(s), json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages))::text;
END
$$;

-- The row of a session that is there; NULL if there is none. Raises if it is not as it was written, or should be there.
CREATE OR REPLACE FUNCTION everturn.session_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS everturn.sessions
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s everturn.sessions;
BEGIN
    -- In the query, where the columns are at hand: of a variable, each would be taken out one by one, twice as slow.
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n);
    IF NOT FOUND THEN
        PERFORM everturn.check_session_v1(n) FROM everturn.sessions n
          WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
            AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
        PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
    END IF;
    RETURN s;
END
$$;

-- The snapshots of a session, as JSON. Raises if one is lost or damaged.
CREATE OR REPLACE FUNCTION everturn.snapshots_v1(s everturn.sessions) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    listed json;
    whole  bigint;
    there  bigint;
BEGIN
    SELECT json_agg(json_build_array(n.snapshot_id, n.label, n.version, n.messages, n.created_at) ORDER BY n.version),
           count(*) FILTER (WHERE n.seal = everturn.snapshot_seal_v1(n)), count(*)
      INTO listed, whole, there FROM everturn.snapshots n WHERE n.session = s.no;
    IF whole <> s.snapshots OR there <> s.snapshots THEN
        PERFORM everturn.damaged_v1(s.no, 'snapshots are lost or damaged');
    END IF;
    RETURN listed;
END
$$;

-- The state a session was in: now, at a snapshot, or after a version; none if there is no such state any more. Raises if it
-- is lost or damaged.
CREATE OR REPLACE FUNCTION everturn.state_v1(s everturn.sessions, p_snapshot text, p_version bigint) RETURNS everturn.plan_v1
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    p everturn.plan_v1;
    n everturn.snapshots;
    g everturn.changes;
BEGIN
    IF p_snapshot IS NOT NULL THEN
        SELECT * INTO n FROM everturn.snapshots k WHERE k.session = s.no AND k.snapshot_id = p_snapshot;
        IF NOT FOUND THEN
            PERFORM everturn.snapshots_v1(s);  -- was there one?
            p.refusal := 'no_snapshot';
        ELSIF n.seal IS DISTINCT FROM everturn.snapshot_seal_v1(n) THEN
            PERFORM everturn.damaged_v1(s.no, 'the snapshot is not as it was written');
        ELSE
            p.head := n.head;
            p.cleared := n.cleared;
            p.floor := n.floor;
            p.kept := n.kept;
            p.messages := n.messages;
        END IF;
    ELSIF p_version IS NULL THEN
        p.head := s.head;
        p.cleared := s.cleared;
        p.floor := s.floor;
        p.kept := s.kept;
        p.messages := s.messages;
    ELSIF p_version = 0 THEN
        p.head := 0;
        p.cleared := 0;
        p.floor := 0;
        p.kept := '{}';
        p.messages := 0;
    ELSE
        SELECT * INTO g FROM everturn.changes k WHERE k.session = s.no AND k.version = p_version;
        IF p_version BETWEEN s.forgotten + 1 AND s.version AND g.seal IS DISTINCT FROM everturn.change_seal_v1(
            g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept, g.kind,
            g.call, g.key, g.content, g.snapshot_id, g.label) THEN
            PERFORM everturn.lost_change_v5(s.no, p_version);
        ELSIF p_version NOT BETWEEN s.forgotten + 1 AND s.version OR g.head IS NULL THEN
            p.refusal := 'no_version';
        ELSE
            p.head := g.head;
            p.cleared := g.cleared;
            p.floor := g.floor;
            p.kept := g.kept;
            p.messages := g.messages;
        END IF;
    END IF;
    RETURN p;
END
$$;

-- The first of these seqs that has no entry, or one that is not where it was written; 0 if all have one.
CREATE OR REPLACE FUNCTION everturn.first_missing_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF r.size = (
        SELECT count(*) FILTER (WHERE everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum))
          FROM unnest(r.firsts, r.lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                              WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e) THEN
        RETURN 0;
    END IF;
    RETURN (SELECT min(k.seq) FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL generate_series(part.first, part.last) AS k (seq)
             WHERE NOT EXISTS (SELECT FROM everturn.entries e
                                WHERE e.session = p_session AND e.seq = k.seq
                                  AND everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)));
END
$$;

-- Raise unless every entry that is no message is there. (Compact may have removed entries that a trim hid, but for
-- summaries: that one of these is lost shows in their number alone.)
CREATE OR REPLACE FUNCTION everturn.check_others_v1(s everturn.sessions) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF (s.others, true) <> (
        SELECT count(*), coalesce(bool_and(
                   everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)), true)
          FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message') THEN
        PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
    END IF;
END
$$;

-- The latest changes, newest first. Raises if one is lost or damaged.
CREATE OR REPLACE FUNCTION everturn.changes_v2(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
RETURNS TABLE (version bigint, kind text, first_seq bigint, count bigint, created_at double precision,
               snapshot_id text, label text, key bytea)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s    everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    g    everturn.changes;
    next bigint := s.version;
BEGIN
    IF s.no IS NULL THEN
        RETURN;
    END IF;
    FOR g IN SELECT * FROM everturn.changes c
              WHERE c.session = s.no AND c.version > s.forgotten ORDER BY c.version DESC LIMIT p_limit
    LOOP
        IF g.version <> next OR g.seal IS DISTINCT FROM everturn.change_seal_v1(
            g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept, g.kind,
            g.call, g.key, g.content, g.snapshot_id, g.label) THEN
            PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost or damaged', next));
        END IF;
        next := next - 1;
        RETURN QUERY SELECT g.version, g.kind, g.first_seq, g.count, g.created_at, g.snapshot_id, g.label, g.key;
    END LOOP;
    IF next > s.forgotten AND s.version - next < p_limit THEN
        PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost', next));
    END IF;
END
$$;

-- Reads of the entries of one state: the session, the part of its log that is read, the entries and the facts, by one query.
-- STABLE: everything inside sees the one snapshot of the calling statement. docs/decisions/052-postgres-costs.md has the figures.

-- The ranges of a path from the latest p_limit messages on, and how many messages are in them: one more, where there are more.
-- For sessions with other entries between the messages. p_most: messages that there can be at all.
CREATE OR REPLACE FUNCTION everturn.latest_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_limit bigint, p_most bigint,
    OUT ranges everturn.ranges_v1, OUT counted bigint
) LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    want bigint := 4 * (p_limit + 1);  -- seqs; the query ends where it has found enough
    seqs bigint[];
BEGIN
    LOOP
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, p_low, p_high, want);
        seqs := ARRAY(SELECT e.seq FROM unnest(ranges.firsts, ranges.lasts) AS part (first, last)
                       CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                            WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last
                                              AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e
                       LIMIT p_limit + 1);
        counted := cardinality(seqs);
        EXIT WHEN counted > p_limit OR counted >= p_most OR ranges.at < p_low;
        want := want * 4;
    END LOOP;
    IF counted >= p_limit THEN
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, seqs[p_limit], p_high, NULL);
    END IF;
END
$$;

-- The seq of the latest message that a limit leaves out, of a path that is one range; NULL if it leaves out none. (A function of its
-- own: the body of view_v3 would hold on to the table, which then could not be replaced by a partitioned one.)
CREATE OR REPLACE FUNCTION everturn.left_out_v4(p_session bigint, p_low bigint, p_high bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN (SELECT n.seq FROM everturn.entries n
             WHERE n.session = p_session AND n.seq BETWEEN p_low AND p_high AND n.kind = 'message'
             ORDER BY n.seq DESC OFFSET p_limit LIMIT 1);
END
$$;

-- The window of a read of any state, found by a look at the log: at jumps, at messages between other entries.
CREATE OR REPLACE FUNCTION everturn.window_v3(
    p_session bigint, p_last_jump bigint, p_others bigint, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_kind text, p_after bigint, p_high bigint, p_limit bigint
) RETURNS everturn.window_v3 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    low     bigint := greatest(p_after, p_floor) + 1;
    shown   everturn.ranges_v1;
    below   everturn.ranges_v1;
    kept    bigint[];  -- messages that a trim left in view
    counted bigint;    -- messages in `shown`, at most one more than p_limit
    cut     boolean;
BEGIN
    IF p_limit IS NULL OR p_others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
        shown := everturn.ranges_v2(p_session, p_last_jump, p_head, low, p_high, p_limit);
        counted := shown.size;
        cut := shown.at >= low;
    ELSE
        SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
          FROM everturn.latest_v2(
                   p_session, p_last_jump, p_head, low, p_high, p_limit, p_messages - cardinality(p_kept)) AS l;
        cut := counted > p_limit;
    END IF;
    IF p_floor > 0 THEN
        kept := ARRAY(SELECT k FROM unnest(p_kept) AS k
                       WHERE k > p_after AND k > p_cleared AND k <= least(p_floor, p_high) ORDER BY k DESC);
        IF cardinality(kept) > p_limit - least(counted, p_limit) THEN
            kept := kept[1 : p_limit - least(counted, p_limit)];
            cut := true;
        END IF;
        shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        IF p_cleared < p_floor AND (p_kind IS NULL OR p_kind = 'summary') THEN
            below := everturn.ranges_v2(
                p_session, p_last_jump, p_head,
                CASE WHEN cut THEN coalesce(kept[cardinality(kept)], p_floor + 1) ELSE greatest(p_after, p_cleared) + 1 END,
                least(p_floor, p_high), NULL);
            IF below.size > 0 AND everturn.first_missing_v1(p_session, shown) = 0 THEN  -- else that is told
                PERFORM everturn.check_others_v1(n) FROM everturn.sessions n WHERE n.no = p_session;
            END IF;
        END IF;
    END IF;
    RETURN (shown.firsts, shown.lasts, shown.size, below.firsts, below.lasts, cut)::everturn.window_v3;
END
$$;

-- A session that is there, the state that is asked for (p_head and so on; NULL: now), and its window. No row if there is no
-- session, or if its row is not as it was written.
-- Most reads need no walk along the path for their window: it takes no jump there. Where all entries are messages, or all are
-- wanted, `low` follows from the seqs. Where others lie between the messages, left_out_v4 finds the latest message that the limit
-- leaves out. Every other read asks window_v3. (OFFSET 0: `low`, and then the window, are worked out once. One
-- SELECT without settings of its own: the planner makes this a part of the query that calls it.)
CREATE OR REPLACE FUNCTION everturn.view_v3(
    p_namespace text, p_session_id text, p_kind text, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_after bigint, p_before bigint, p_limit bigint, p_now double precision
) RETURNS TABLE (no bigint, others bigint, state json, facts json, shown everturn.window_v3) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.no, s.others, json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages), s.facts,
           CASE WHEN p_limit = 0 THEN ROW('{}', '{}', 0, NULL, NULL, false)::everturn.window_v3
                WHEN s.last_jump <= s.low AND s.last_jump <= s.head
                     AND (cardinality(s.kept) = 0 OR s.low > greatest(p_after, s.floor) + 1)
                     AND (p_kind = 'message' OR (s.cleared = s.floor AND (p_limit IS NULL OR s.others = 0)))
                THEN ROW(ARRAY[s.low], ARRAY[s.high], greatest(s.high - s.low + 1, 0), NULL, NULL,
                         s.low > greatest(p_after, s.floor) + 1)::everturn.window_v3
                ELSE everturn.window_v3(s.no, s.last_jump, s.others, s.head, s.cleared, s.floor, s.kept, s.messages, p_kind,
                                        p_after, s.high, p_limit) END
      FROM (SELECT t.*, least(p_before - 1, t.head) AS high,
                   CASE WHEN t.others = 0 OR p_limit IS NULL
                        THEN greatest(least(p_before - 1, t.head) - p_limit, p_after, t.floor)
                        WHEN p_kind = 'message' AND t.last_jump <= greatest(p_after, t.floor) + 1
                             AND t.messages - cardinality(t.kept) > p_limit
                        THEN everturn.left_out_v4(
                                 t.no, greatest(p_after, t.floor) + 1, least(p_before - 1, t.head), p_limit) END + 1 AS low
              FROM (SELECT n.no, n.others, n.last_jump, coalesce(p_head, n.head) AS head,
                           coalesce(p_cleared, n.cleared) AS cleared, coalesce(p_floor, n.floor) AS floor,
                           coalesce(p_kept, n.kept) AS kept, coalesce(p_messages, n.messages) AS messages,
                           everturn.facts_v1(n) AS facts
                      FROM everturn.sessions n
                     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n)) AS t
            OFFSET 0) AS s
    OFFSET 0;
END;

-- The entries a query names, newest first (but for summaries that a trim hid, which follow), and behind them one row without a
-- seq, whose body is a JSON array: the status, the session, its state, its snapshots, the first seq that is missing, the number of
-- entries that there must be (NULL: they have been counted here), and whether p_limit left out earlier messages. Whoever finds
-- another number of entries asks again with p_counts, to be told which one is missing.
-- One query, because plpgsql makes every query and expression ready anew in each transaction. force_generic_plan, for all that it
-- calls: else queries over ranges are planned anew each time, which takes far longer than to run them. There is one good plan for
-- them, whatever the ranges are.
CREATE OR REPLACE FUNCTION everturn.read_v3(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_counts boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at   everturn.plan_v1;  -- a state of the past
    s    everturn.sessions;
    last everturn.row_v1;
BEGIN
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        s := everturn.session_v1(p_namespace, p_session_id, p_now);
        IF s.no IS NOT NULL THEN
            at := everturn.state_v1(s, p_snapshot, p_version);
            IF at.refusal IS NOT NULL THEN
                last.body := convert_to(json_build_array(at.refusal, everturn.facts_v1(s))::text, 'UTF8');
                RETURN NEXT last;
                RETURN;
            END IF;
        END IF;
    END IF;
    -- The newest range first, and each from its end: the rows come in order, and none is sorted.
    IF p_kind = 'message' THEN
        RETURN QUERY
            SELECT x.* FROM everturn.view_v3(p_namespace, p_session_id, p_kind, at.head, at.cleared, at.floor, at.kept, at.messages,
                                             p_after, p_before, p_limit, p_now) AS v
             CROSS JOIN LATERAL (
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest((v.shown).firsts, (v.shown).lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.seq BETWEEN part.first AND part.last AND n.kind = 'message'
                                      ORDER BY n.seq DESC OFFSET 0) AS e
                UNION ALL
                SELECT NULL, NULL, NULL, convert_to(json_build_array(
                    'found', v.facts, v.state,
                    CASE WHEN p_snapshots THEN everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
                    CASE WHEN v.others > 0 OR p_counts THEN everturn.missing_v3(v.no, v.shown) ELSE 0 END,
                    CASE WHEN v.others > 0 OR p_counts THEN NULL ELSE (v.shown).size END, (v.shown).cut)::text, 'UTF8'), NULL, NULL
             ) AS x;
    ELSE
        RETURN QUERY
            SELECT x.* FROM everturn.view_v3(p_namespace, p_session_id, p_kind, at.head, at.cleared, at.floor, at.kept, at.messages,
                                             p_after, p_before, p_limit, p_now) AS v
             CROSS JOIN LATERAL (
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest((v.shown).firsts, (v.shown).lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.seq BETWEEN part.first AND part.last
                                      ORDER BY n.seq DESC OFFSET 0) AS e
                 WHERE p_kind IS NULL
                UNION ALL
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(CASE WHEN p_kind IS NOT NULL THEN (v.shown).firsts END || (v.shown).below_firsts,
                              CASE WHEN p_kind IS NOT NULL THEN (v.shown).lasts END || (v.shown).below_lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.kind = coalesce(p_kind, 'summary') AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
                UNION ALL
                SELECT NULL, NULL, NULL, convert_to(json_build_array(
                    'found', v.facts, v.state,
                    CASE WHEN p_snapshots THEN everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
                    CASE WHEN p_kind IS NOT NULL OR p_counts THEN everturn.missing_v3(v.no, v.shown) ELSE 0 END,
                    CASE WHEN p_kind IS NOT NULL OR p_counts THEN NULL ELSE (v.shown).size END, (v.shown).cut)::text, 'UTF8'),
                    NULL, NULL
             ) AS x;
    END IF;
    IF NOT FOUND THEN
        PERFORM everturn.session_v1(p_namespace, p_session_id, p_now);  -- raises, if there should be one
        last.body := convert_to('["no_session"]', 'UTF8');
        RETURN NEXT last;
    END IF;
END
$$;

-- The first seq of a window that has no entry, or one that is not where it was written; 0 if all have one.
CREATE OR REPLACE FUNCTION everturn.missing_v3(p_session bigint, p_shown everturn.window_v3) RETURNS bigint LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN everturn.first_missing_v1(
        p_session, (p_shown.firsts, p_shown.lasts, p_shown.size, 0)::everturn.ranges_v1);
END
$$;

-- Reads of the latest messages and of what a prompt begins with. STABLE: everything inside sees the one snapshot of the calling
-- statement.

-- The p_limit latest messages of a state, newest first. In front of them, the p_summaries latest summaries behind `cleared`, newest first, if a
-- trim or fold hides anything. Behind them, if there are earlier messages, those among the first p_front entries behind the floor, and all
-- that a trim kept. The last row is that of read_v3, with all entries counted.
-- A summary that is lost is missed while a session has no more than a thousand entries that are no messages; above, verify finds it.
-- The path is walked once, and everything is found in its ranges.
CREATE OR REPLACE FUNCTION everturn.front_v3(
    p_namespace text, p_session_id text, p_snapshot text, p_version bigint, p_limit bigint, p_front bigint, p_summaries bigint,
    p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s       record;
    p       record;             -- the state
    hides   boolean;            -- whether it may have summaries of what it hides
    path    everturn.ranges_v1; -- down to the floor; if it hides, to what is cleared
    seqs    bigint[];           -- of the latest messages, and one more
    counted bigint;             -- messages behind the floor; or one more than p_limit
    wanted  bigint;             -- entries, at the most
    firsts  bigint[] := '{}';   -- ranges, visible whatever the kind of their entries
    lasts   bigint[] := '{}';
    size    bigint   := 0;
    starts  bigint[] := '{}';   -- ranges of what a prompt begins with, the last one first
    ends    bigint[] := '{}';
    kept    bigint[] := '{}';   -- messages that a trim left in view
    cut     boolean  := false;
    oldest  bigint;             -- of the latest p_limit messages
    first   bigint;
    final   bigint;
    at      bigint   := 1;      -- a place in `path`
    sound   bigint;             -- entries that are no messages, and as they were written
    beside  bigint   := 0;      -- entries of these ranges that are known to be no messages
    handed  bigint;
    missing bigint   := 0;
    last    everturn.row_v1;
BEGIN
    SELECT n.no, n.last_jump, n.others, n.head, n.cleared, n.floor, n.kept, n.messages, NULL AS refusal,
           everturn.facts_v1(n) AS facts
      INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n);
    IF NOT FOUND THEN
        PERFORM everturn.session_v1(p_namespace, p_session_id, p_now);  -- raises, if there should be one
        last.body := convert_to('["no_session"]', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := s;
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        p := everturn.state_v1(everturn.session_v1(p_namespace, p_session_id, p_now), p_snapshot, p_version);
    END IF;
    IF p.refusal IS NULL THEN
        hides := p.cleared < p.floor AND s.others > 0;
        path := everturn.ranges_v2(s.no, s.last_jump, p.head, CASE WHEN hides THEN p.cleared ELSE p.floor END + 1, p.head, NULL);
        oldest := p.floor + 1;
        IF s.others = 0 THEN  -- all entries are messages: the latest are those of the highest seqs
            counted := path.size;
            wanted := p_limit;
        ELSE
            seqs := ARRAY(SELECT e.seq FROM unnest(path.firsts, path.lasts) AS part (first, last)
                           CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                                WHERE n.session = s.no AND n.seq BETWEEN greatest(part.first, p.floor + 1) AND part.last
                                                  AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e
                           WHERE part.last > p.floor LIMIT p_limit + 1);
            counted := cardinality(seqs);
            wanted := path.size;
            oldest := coalesce(seqs[p_limit], oldest);
        END IF;
        IF cardinality(p.kept) > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k WHERE k > p.cleared ORDER BY k DESC);
        END IF;
        cut := counted + cardinality(kept) > p_limit;
        WHILE size < wanted AND path.lasts[at] >= oldest LOOP
            first := greatest(path.firsts[at], oldest, path.lasts[at] - (wanted - size) + 1);
            firsts := firsts || first;
            lasts := lasts || path.lasts[at];
            size := size + path.lasts[at] - first + 1;
            at := at + 1;
        END LOOP;
        oldest := first;
        at := cardinality(path.firsts);
        WHILE cut AND p_front > 0 AND path.firsts[at] < oldest LOOP  -- from the beginning on
            first := greatest(path.firsts[at], p.floor + 1);
            final := least(path.lasts[at], oldest - 1, first + p_front - 1);
            IF first <= final THEN
                starts := first || starts;
                ends := final || ends;
                size := size + final - first + 1;
                p_front := p_front - (final - first + 1);
            END IF;
            at := at - 1;
        END LOOP;
        firsts := firsts || starts || kept;
        lasts := lasts || ends || kept;
        size := size + cardinality(kept);
        IF hides THEN
            RETURN QUERY
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(path.firsts, path.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = 'summary' AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
                 LIMIT p_summaries;
            IF s.others <= 1000 THEN  -- as check_others_v1 does, without another look at the session
                SELECT count(*), count(*) FILTER (WHERE EXISTS (
                           SELECT FROM unnest(firsts, lasts) AS part (first, last) WHERE e.seq BETWEEN part.first AND part.last))
                  INTO sound, beside FROM everturn.entries e
                 WHERE e.session = s.no AND e.kind <> 'message'
                   AND everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum);
                IF s.others <> sound THEN
                    PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
                END IF;
            END IF;
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(firsts, lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                    AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e;
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed + beside <> size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, (firsts, lasts, size, 0)::everturn.ranges_v1);
        END IF;
    END IF;
    last.body := convert_to(json_build_array(
        coalesce(p.refusal, 'found'), s.facts,
        CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        NULL, missing, NULL, cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- Late requests: those that must not be applied, the fences that tell, and the receipts of earlier attempts.
-- docs/decisions/020-late-requests.md says why. Each request carries two moments on this server's clock: when it was issued, and
-- after which its caller is gone.

-- Whether a request must not be applied: its caller has gone, or it was issued before a fence. A fence ahead of the clock
-- was set before the clock was set back, and so was a request that is issued ahead of it.
CREATE OR REPLACE FUNCTION everturn.is_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_at > p_not_after OR p_issued > p_at OR coalesce(p_issued < p_fence AND p_fence <= p_at, false);

-- Undo the whole statement, and say so, if a request must not be applied. For statements of one request.
CREATE OR REPLACE FUNCTION everturn.refuse_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF everturn.is_late_v1(p_issued, p_not_after, p_fence, p_at) THEN
        RAISE EXCEPTION 'the request came too late' USING ERRCODE = 'EVLAT', DETAIL = p_at::text;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION everturn.digest_v1(p_session_id text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(convert_to(p_session_id, 'UTF8'));

-- Receipts of a session's latest changes, by their call ids: as many as are remembered at least. For its tombstone.
CREATE OR REPLACE FUNCTION everturn.calls_of_v1(s everturn.sessions) RETURNS jsonb LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT coalesce(jsonb_object_agg(encode(c.call, 'hex'), jsonb_build_array(
               s.life, c.version, c.first_seq, c.count, c.messages, c.created_at)), '{}')
      FROM everturn.changes c WHERE c.session = s.no AND c.version > s.version - 1024
$$;

-- Keep the fence of a session that is not there, and the calls that were erased with it, for as long as requests live.
CREATE OR REPLACE FUNCTION everturn.leave_tombstone_v1(p_namespace text, p_session_id text, p_at double precision, p_calls jsonb)
RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    INSERT INTO everturn.tombstones AS t (namespace, digest, fence, until, calls)
    VALUES (p_namespace, everturn.digest_v1(p_session_id), p_at, p_at + 60, p_calls)
        ON CONFLICT (namespace, digest) DO UPDATE
       SET fence = EXCLUDED.fence, until = EXCLUDED.until,
           calls = CASE WHEN t.until > p_at THEN t.calls ELSE '{}' END || EXCLUDED.calls
$$;

-- The fence of a session that is not there. `p_was` is its life that expired, if any: what was issued before its latest
-- change belongs to that life.
CREATE OR REPLACE FUNCTION everturn.fence_v1(p_namespace text, p_session_id text, p_was everturn.sessions) RETURNS double precision
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT greatest(p_was.fence, p_was.changed_at, (
        SELECT t.fence FROM everturn.tombstones t
         WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(p_session_id)))
$$;

-- Let no earlier attempt of a refused retry be applied: the caller is told that it was not.
CREATE OR REPLACE FUNCTION everturn.fence_off_v1(
    p_namespace text, p_session_id text, p_session bigint, p_at double precision
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF p_session IS NULL THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, p_at, '{}');
    ELSE
        UPDATE everturn.sessions SET fence = p_at WHERE no = p_session;
    END IF;
END
$$;

-- The version that a call made; NULL if it made none. A first attempt looks only among changes made since it was issued:
-- its retry may have overtaken it, or the network may have sent it twice. Raises if a change that a retry passes is lost: it may be the
-- one. (Of a first attempt, rows of turns in the same statement may still have to be written.)
CREATE OR REPLACE FUNCTION everturn.version_of_v1(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    g    record;
    next bigint := s.version;
BEGIN
    IF NOT coalesce(r.retry, false) AND s.changed_at < r.issued THEN
        RETURN NULL;
    END IF;
    FOR g IN SELECT c.version, c.call, c.created_at FROM everturn.changes c WHERE c.session = s.no ORDER BY c.version DESC LOOP
        IF r.retry AND g.version <> next AND next > s.forgotten THEN
            PERFORM everturn.lost_change_v5(s.no, next);
        END IF;
        next := next - 1;
        IF g.call = r.call THEN
            RETURN g.version;
        ELSIF NOT coalesce(r.retry, false) AND g.created_at < r.issued THEN
            RETURN NULL;
        ELSIF g.version <= s.version - 2048 AND (g.created_at < p_at - 3600 OR g.created_at > p_at) THEN
            RETURN NULL;  -- older than any call; or made before the clock was set back, and then there may be many
        END IF;
    END LOOP;
    IF r.retry AND next > s.forgotten THEN
        PERFORM everturn.lost_change_v5(s.no, next);
    END IF;
    RETURN NULL;
END
$$;

-- The first receipt of this call or key; NULL if neither is known.
CREATE OR REPLACE FUNCTION everturn.recall_v1(s everturn.sessions, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    c    everturn.changes;
    made bigint := everturn.version_of_v1(s, r, p_at);
BEGIN
    IF made IS NOT NULL THEN
        SELECT * INTO c FROM everturn.changes g WHERE g.session = s.no AND g.version = made;
        PERFORM everturn.check_change_v5(s.no, c.version);
    ELSIF r.key IS NOT NULL THEN
        FOR c IN SELECT * FROM everturn.changes g WHERE g.session = s.no AND g.key = r.key ORDER BY g.version DESC LOOP
            PERFORM everturn.check_change_v5(s.no, c.version);
            -- A turn that a rollback dropped may be written again; a change without a turn is never dropped.
            IF c.count = 0 OR everturn.on_path_v1(s, s.head, c.first_seq + c.count - 1) THEN
                IF c.content IS DISTINCT FROM r.content THEN
                    RETURN ('key_reused', s.life, c.version, c.first_seq, c.count, 0, NULL, NULL, NULL, NULL, p_at)
                           ::everturn.outcome_v1;
                END IF;
                EXIT;
            END IF;
            c := NULL;
        END LOOP;
    END IF;
    IF c.version IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN ('replayed', s.life, c.version, c.first_seq, c.count, 0, c.snapshot_id, c.label, c.messages, c.created_at, p_at)
           ::everturn.outcome_v1;
END
$$;

-- The first receipt of a retry whose change was erased since with its session; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.recall_erased_v1(p_namespace text, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT ('replayed', c.made ->> 0, (c.made ->> 1)::bigint, (c.made ->> 2)::bigint, (c.made ->> 3)::bigint, 0,
            r.snapshot_id, r.label, (c.made ->> 4)::bigint, (c.made ->> 5)::double precision, p_at)::everturn.outcome_v1
      FROM (SELECT t.calls -> encode(r.call, 'hex') AS made FROM everturn.tombstones t
             WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(r.session_id)) c
     WHERE c.made IS NOT NULL
$$;

-- Leases: the right to work on a session for a while. The rules are those of core/leases.py.

CREATE OR REPLACE FUNCTION everturn.lease_seal_v3(
    namespace text, session_id text, life text, token bigint, holder text, until double precision
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to(namespace, 'UTF8'), convert_to(session_id, 'UTF8'), convert_to(life, 'UTF8'),
                     convert_to(holder, 'UTF8')]) || int8send(token) || float8send(until)) FROM 1 FOR 8);

-- Whether a lease is as it was written; NULL where there is none.
CREATE OR REPLACE FUNCTION everturn.is_sealed_v5(l everturn.leases) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN (l).seal = everturn.lease_seal_v3((l).namespace, (l).session_id, (l).life, (l).token, (l).holder, (l).until);

-- Whether a lease is in force, in this life of the session ('': there is none). One that ends later than the longest could was
-- taken before the clock was set back.
CREATE OR REPLACE FUNCTION everturn.in_force_v3(l everturn.leases, p_life text, p_at double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((l).life IN ('', p_life) AND (l).until > p_at AND (l).until <= p_at + 86460, false);

-- Whether this lease is in force, as it was written, and the one with this token and holder (NULL or '': whoever holds it).
CREATE OR REPLACE FUNCTION everturn.is_named_v5(
    l everturn.leases, p_life text, p_token bigint, p_holder text, p_at double precision
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN (l).token = p_token AND coalesce(nullif(p_holder, ''), (l).holder) = (l).holder AND everturn.in_force_v3(l, p_life, p_at)
       AND (l).seal = everturn.lease_seal_v3((l).namespace, (l).session_id, (l).life, (l).token, (l).holder, (l).until);

-- The lease of a session. Raises if it is not as it was written, or lost: `p_noted` is the token that the session's row notes of a
-- lease that was not released (NULL: it notes none). Else the holder of a lost lease and the next one would both believe that they have
-- it, with the same token. (No seal covers what is noted. So where there is a lease, that alone counts.)
CREATE OR REPLACE FUNCTION everturn.lease_of_v5(p_namespace text, p_session_id text, p_noted bigint) RETURNS everturn.leases
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    l everturn.leases;
BEGIN
    SELECT * INTO l FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id;
    IF NOT FOUND AND p_noted IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = 'its lease is lost', DETAIL = p_session_id;
    ELSIF FOUND AND l.seal <> everturn.lease_seal_v3(l.namespace, l.session_id, l.life, l.token, l.holder, l.until) THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = 'its lease is not as it was written', DETAIL = p_session_id;
    END IF;
    RETURN l;
END
$$;

-- The same, for workers of version 4 that are still open: they do not say what the session's row notes.
CREATE OR REPLACE FUNCTION everturn.lease_of_v3(p_namespace text, p_session_id text) RETURNS everturn.leases LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN everturn.lease_of_v5(p_namespace, p_session_id, NULL);
END
$$;

-- Lock the lease of a session that is not there: no lease is taken while a session begins, and none begins while a lease is taken.
-- False: the session began while the lock was waited for. Then nothing is locked, and the caller looks again: whoever locks both rows
-- begins with the session's.
CREATE OR REPLACE FUNCTION everturn.is_absent_v5(p_namespace text, p_session_id text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id FOR UPDATE;
    IF EXISTS (SELECT FROM everturn.sessions n
                WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended) THEN
        RAISE EXCEPTION USING ERRCODE = 'EVAGN', MESSAGE = 'the session began meanwhile';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'EVAGN' THEN  -- which lets the lock go
    RETURN false;
END
$$;

-- Let a lease that was taken before the life began end with it. A row that is not as it was written stays so, and is noticed.
CREATE OR REPLACE FUNCTION everturn.bind_lease_v5(p_namespace text, p_session_id text, p_life text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    UPDATE everturn.leases l
       SET life = p_life, seal = everturn.lease_seal_v3(l.namespace, l.session_id, p_life, l.token, l.holder, l.until)
     WHERE l.namespace = p_namespace AND l.session_id = p_session_id AND l.life = ''
       AND l.seal = everturn.lease_seal_v3(l.namespace, l.session_id, l.life, l.token, l.holder, l.until);
END
$$;

-- Whether the lease that a change names is in force. The session's row is locked, which keeps a lease from being taken; where there
-- is none, the lease's own row is (is_absent_v5).
CREATE OR REPLACE FUNCTION everturn.is_claimed_v3(
    p_namespace text, s everturn.sessions, r everturn.request_v1, p_at double precision
) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v5(p_namespace, r.session_id, s.lease);  -- raises, if it is damaged
BEGIN
    RETURN coalesce(everturn.is_named_v5(l, coalesce(s.life, ''), r.lease_token, r.lease_holder, p_at), false);
END
$$;

-- Take, renew or release the lease of a session. It is no change: the version and the expiry stay. The row of the session is locked:
-- changes that are under way come before it, or after it.
CREATE OR REPLACE FUNCTION everturn.lease_v3(
    p_namespace text, p_session_id text, p_action text, p_holder text, p_token bigint, p_seconds double precision,
    p_patience integer, p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.lease_outcome_v3 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s    everturn.sessions;
    l    everturn.leases;
    at   double precision;
    held boolean;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
        IF FOUND THEN
            PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id FOR UPDATE;
        ELSIF NOT everturn.is_absent_v5(p_namespace, p_session_id) THEN
            CONTINUE;
        ELSE
            PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
        END IF;
        l := everturn.lease_of_v5(p_namespace, p_session_id, s.lease);
        at := everturn.now_v1(p_now);  -- after both locks
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, NULL, at);
        IF s.no IS NULL OR everturn.is_over_v1(s.expires_at, at) THEN
            s.life := '';
        END IF;
        held := everturn.in_force_v3(l, s.life, at);
        IF p_action = 'take' THEN
            PERFORM everturn.check_session_v1(n) FROM everturn.sessions n WHERE n.no = s.no;
            IF held AND l.holder <> p_holder THEN
                RETURN ('lease_held', l.token, l.until, l.until - at, at)::everturn.lease_outcome_v3;
            END IF;
            l.token := CASE WHEN held THEN l.token ELSE coalesce(l.token, 0) + 1 END;
            l.life := s.life;
            l.until := at + p_seconds;
        ELSIF l.holder IS DISTINCT FROM p_holder OR p_token NOT IN (0, l.token) OR l.life NOT IN ('', s.life)
              OR (p_action = 'renew' AND NOT held) THEN
            RETURN ('lease_lost', 0, 0, 0, at)::everturn.lease_outcome_v3;
        ELSE
            l.until := CASE p_action WHEN 'renew' THEN at + p_seconds ELSE 0 END;
        END IF;
        l.seal := everturn.lease_seal_v3(p_namespace, p_session_id, l.life, l.token, p_holder, l.until);
        -- From here on no turn is written that names another lease, or one that was released: also none that waits for this row.
        UPDATE everturn.sessions n SET lease = CASE WHEN l.until > 0 THEN l.token END
         WHERE n.no = s.no AND n.lease IS DISTINCT FROM CASE WHEN l.until > 0 THEN l.token END;
        IF l.namespace IS NOT NULL THEN
            UPDATE everturn.leases k SET life = l.life, token = l.token, holder = p_holder, until = l.until, seal = l.seal
             WHERE k.namespace = p_namespace AND k.session_id = p_session_id;
            EXIT;
        END IF;
        INSERT INTO everturn.leases (namespace, session_id, life, token, holder, until, seal)
        VALUES (p_namespace, p_session_id, l.life, l.token, p_holder, l.until, l.seal) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;  -- else another worker took it meanwhile: look again
    END LOOP;
    RETURN ('applied', l.token, l.until, greatest(l.until - at, 0), at)::everturn.lease_outcome_v3;
END
$$;

-- Effects: things done in the world for a session, begun and ended in it. The rules are those of core/plan_change.py. They are
-- counted in the row of their session, so that none is missed: one that vanishes would begin again.

CREATE OR REPLACE FUNCTION everturn.effect_seal_v3(e everturn.effects) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[(e).session, (e).attempt, (e).began, (e).ended, (e).token]) || array_send(ARRAY[(e).at, (e).ended_at])
    || array_send(ARRAY[convert_to((e).key, 'UTF8'), convert_to((e).status, 'UTF8'), convert_to((e).by, 'UTF8'),
                        convert_to((e).request, 'UTF8'), convert_to((e).result, 'UTF8'), convert_to((e).error, 'UTF8'),
                        convert_to((e).note, 'UTF8')])) FROM 1 FOR 8);

-- Raise if a session has not as many effects as it should. By one statement: all that it sees is of one moment.
CREATE OR REPLACE FUNCTION everturn.check_effects_v4(p_session bigint) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM everturn.sessions n
      WHERE n.no = p_session AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    IF FOUND THEN
        PERFORM everturn.damaged_v1(p_session, 'some of its effects are lost');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION everturn.effect_key_seal_v5(session bigint, key text, next_key text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    int8send(session) || array_send(ARRAY[convert_to(key, 'UTF8'), convert_to(next_key, 'UTF8')])) FROM 1 FOR 8);

-- The link between the two keys, one after the other, that a key which was never begun is between. Raises if no link shows that. It
-- does not matter why: whatever the search leads to, a link with its seal that spans the key was written, and would have been replaced
-- if the key had been begun. NULL for a session without effects. `p_effects`: how many it has.
CREATE OR REPLACE FUNCTION everturn.spanning_link_v5(p_session bigint, p_effects bigint, p_key text) RETURNS everturn.effect_keys
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    k everturn.effect_keys;
BEGIN
    IF coalesce(p_effects, 0) = 0 THEN
        RETURN NULL;
    END IF;
    SELECT * INTO k FROM everturn.effect_keys l WHERE l.session = p_session AND l.key < p_key ORDER BY l.key DESC LIMIT 1;
    IF NOT FOUND THEN  -- it is before the first: the last is linked to that
        SELECT * INTO k FROM everturn.effect_keys l WHERE l.session = p_session ORDER BY l.key DESC LIMIT 1;
    END IF;
    IF (k.session = p_session AND k.seal = everturn.effect_key_seal_v5(k.session, k.key, k.next_key)
        AND CASE WHEN k.key COLLATE "C" < k.next_key COLLATE "C"
                 THEN p_key COLLATE "C" > k.key COLLATE "C" AND p_key COLLATE "C" < k.next_key COLLATE "C"
                 ELSE p_key COLLATE "C" > k.key COLLATE "C" OR p_key COLLATE "C" < k.next_key COLLATE "C" END) IS NOT TRUE THEN
        PERFORM everturn.damaged_v1(
            p_session, format('some of its effects are lost: nothing shows that %s was never begun', p_key));
    END IF;
    RETURN k;
END
$$;

-- Link the effects of a session as they are, in place of the links that it has.
CREATE OR REPLACE FUNCTION everturn.link_effects_v5(p_session bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    DELETE FROM everturn.effect_keys k WHERE k.session = p_session;
    INSERT INTO everturn.effect_keys (session, key, next_key, seal)
    SELECT p_session, l.key, l.next_key, everturn.effect_key_seal_v5(p_session, l.key, l.next_key)
      FROM (SELECT e.key, coalesce(lead(e.key) OVER in_order, first_value(e.key) OVER in_order) AS next_key
              FROM everturn.effects e WHERE e.session = p_session
            WINDOW in_order AS (ORDER BY e.key)) l;
END
$$;

-- An effect of a session; NULL if it is not there: spanning_link_v5 says whether it was never begun. Raises if it is not as it was written.
CREATE OR REPLACE FUNCTION everturn.effect_of_v5(p_session bigint, p_key text) RETURNS everturn.effects
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    e everturn.effects;
BEGIN
    SELECT * INTO e FROM everturn.effects k WHERE k.session = p_session AND k.key = p_key;
    IF FOUND AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) THEN
        PERFORM everturn.damaged_v1(p_session, format('the effect %s is not as it was written', p_key));
    END IF;
    RETURN e;
END
$$;

-- An effect as JSON. Its bodies are texts in it.
CREATE OR REPLACE FUNCTION everturn.effect_json_v3(e everturn.effects, p_held bigint) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
SET extra_float_digits = 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT json_build_object(
        'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'ended', e.ended, 'token', e.token, 'by', e.by,
        'at', e.at, 'ended_at', e.ended_at, 'request', e.request, 'result', e.result, 'error', e.error, 'note', e.note,
        'held', e.token > 0 AND e.token = p_held)
$$;

-- The token of the lease that is held; 0 if none is.
CREATE OR REPLACE FUNCTION everturn.held_v3(p_namespace text, s everturn.sessions, p_at double precision) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v5(p_namespace, s.session_id, s.lease);
BEGIN
    RETURN CASE WHEN everturn.in_force_v3(l, s.life, p_at) THEN l.token ELSE 0 END;
END
$$;

-- The effect that a request is about, for the answer to it; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.effect_text_v5(
    p_namespace text, s everturn.sessions, e everturn.effects, p_at double precision
) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN CASE WHEN e.key IS NOT NULL THEN everturn.effect_json_v3(
        e, CASE WHEN e.token > 0 THEN everturn.held_v3(p_namespace, s, p_at) END)::text END;
END
$$;

-- The plan for a request that begins or ends an effect, which is `e`, or the reason of its refusal. The state stays.
CREATE OR REPLACE FUNCTION everturn.plan_effect_v5(s everturn.sessions, r everturn.request_v1, e everturn.effects)
RETURNS everturn.plan_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    p everturn.plan_v1;
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF r.kind = 'begin_effect' THEN
        IF e.status = 'finished' OR (e.status = 'started' AND e.attempt <> r.effect_attempt) THEN
            p.refusal := 'unchanged';
        END IF;
    ELSIF e.key IS NULL THEN
        p.refusal := 'no_effect';
    ELSIF r.effect_attempt NOT IN (0, e.attempt) THEN
        p.refusal := 'effect_repeated';
    ELSIF e.status <> 'started' THEN
        p.refusal := 'effect_ended';
    END IF;
    RETURN p;
END
$$;

-- Write the effect that a change begins or ends. `s` and `e` are the session and the effect before it, `k` the link that shows that
-- there was no such effect.
CREATE OR REPLACE FUNCTION everturn.write_effect_v5(
    s everturn.sessions, r everturn.request_v1, e everturn.effects, k everturn.effect_keys, p_at double precision
) RETURNS everturn.effects LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    is_new boolean := e.key IS NULL;
BEGIN
    IF r.kind = 'begin_effect' THEN
        e := (s.no, r.label, 'started', coalesce(e.attempt, 0) + 1, s.version + 1, 0, coalesce(r.lease_token, 0), r.effect_by, p_at,
              NULL, coalesce(r.effect_body, e.request), NULL, NULL, NULL, NULL)::everturn.effects;
    ELSE
        e.ended := s.version + 1;
        e.ended_at := p_at;
        e.note := r.effect_note;
        IF r.kind = 'finish_effect' THEN
            e.status := 'finished';
            e.result := r.effect_body;
        ELSE
            e.status := 'failed';
            e.error := r.effect_body;
        END IF;
    END IF;
    e.seal := everturn.effect_seal_v3(e);
    INSERT INTO everturn.effects VALUES (e.*)
        ON CONFLICT (session, key) DO UPDATE
       SET status = EXCLUDED.status, attempt = EXCLUDED.attempt, began = EXCLUDED.began, ended = EXCLUDED.ended,
           token = EXCLUDED.token, by = EXCLUDED.by, at = EXCLUDED.at, ended_at = EXCLUDED.ended_at, request = EXCLUDED.request,
           result = EXCLUDED.result, error = EXCLUDED.error, note = EXCLUDED.note, seal = EXCLUDED.seal;
    IF is_new THEN
        UPDATE everturn.effect_keys l
           SET next_key = e.key, seal = everturn.effect_key_seal_v5(s.no, k.key, e.key)
         WHERE l.session = s.no AND l.key = k.key;
        k.next_key := coalesce(k.next_key, e.key);
        INSERT INTO everturn.effect_keys (session, key, next_key, seal)
        VALUES (s.no, e.key, k.next_key, everturn.effect_key_seal_v5(s.no, e.key, k.next_key));
    END IF;
    RETURN e;
END
$$;

-- The effects of a session's present life, in the order in which they were begun, as JSON; NULL if there is no session.
CREATE OR REPLACE FUNCTION everturn.effects_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s     everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    held  bigint;
    wrong text;
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT e.key INTO wrong FROM everturn.effects e
     WHERE e.session = s.no AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) LIMIT 1;
    IF FOUND THEN
        PERFORM everturn.damaged_v1(s.no, format('the effect %s is not as it was written', wrong));
    END IF;
    PERFORM everturn.check_effects_v4(s.no);
    held := everturn.held_v3(p_namespace, s, everturn.now_v1(p_now));
    RETURN json_build_object('life', s.life, 'version', s.version, 'effects', coalesce(
        (SELECT json_agg(everturn.effect_json_v3(e, held) ORDER BY e.began, e.key) FROM everturn.effects e
          WHERE e.session = s.no), '[]'));
END
$$;

-- The effects of a session go when its row goes, and so does the lease of that life.
CREATE OR REPLACE FUNCTION everturn.forget_effects_v3() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    DELETE FROM everturn.effects e WHERE e.session = OLD.no;
    DELETE FROM everturn.effect_keys k WHERE k.session = OLD.no;
    DELETE FROM everturn.leases l WHERE l.namespace = OLD.namespace AND l.session_id = OLD.session_id AND l.life = OLD.life;
    RETURN NULL;
END
$$;

-- Facts: names and texts that a session is found by. The rules are those of core/plan_change.py.

CREATE OR REPLACE FUNCTION everturn.index_facts_v4() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM everturn.facts f WHERE f.session = OLD.no;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO everturn.facts (session, namespace, session_id, name, value)
        SELECT NEW.no, NEW.namespace, NEW.session_id, f.key, f.value FROM jsonb_each_text(NEW.facts) AS f;
    END IF;
    RETURN NULL;
END
$$;

-- The facts that a session has after a request; NULL for none.
CREATE OR REPLACE FUNCTION everturn.merged_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(jsonb_strip_nulls(coalesce((s).facts, '{}') || (r).facts), '{}');

-- The plan for a request that sets facts, or the reason of its refusal. The state stays.
CREATE OR REPLACE FUNCTION everturn.plan_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    p     everturn.plan_v1;
    facts jsonb := everturn.merged_facts_v4(s, r);
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF facts IS NOT DISTINCT FROM s.facts THEN
        p.refusal := 'unchanged';
    ELSIF (SELECT count(*) FROM jsonb_object_keys(facts)) > 16 THEN  -- MOST_FACTS in core/facts.py
        p.refusal := 'too_many_facts';
    END IF;
    RETURN p;
END
$$;

-- Plans: the rules that a change must pass, and the state it leads to. A plan reads and decides; 12-changes.sql writes.
-- This is core/plan_change.py in SQL, case by case: read it against that text, and change both together.

-- The plan for a request on a session (s.no IS NULL: there is none), or the reason of its refusal.
CREATE OR REPLACE FUNCTION everturn.plan_v1(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    p       everturn.plan_v1;
    step    everturn.undo_steps;
    written bigint := r.entries + greatest(r.carried, 0);  -- entries
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF s.no IS NULL AND r.kind IN ('delete_snapshot', 'rollback', 'undo', 'ttl') THEN
        p.refusal := 'no_session';
        RETURN p;
    END IF;
    CASE r.kind
    WHEN 'append', 'replace' THEN
        IF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSIF r.after <> p.head THEN
            IF s.no IS NULL OR (r.after <> 0 AND NOT everturn.on_path_v1(s, p.head, r.after)) THEN
                p.refusal := 'not_on_path';
                RETURN p;
            END IF;
            IF r.carried < 0 AND s.others > 0 AND s.cleared < least(r.after, s.floor)
               AND everturn.has_summary_after_v5(s, r.after) THEN
                p.refusal := 'summary_dropped';
                RETURN p;
            END IF;
            p.kept := ARRAY(SELECT seq FROM unnest(s.kept) AS seq WHERE seq <= r.after ORDER BY seq);
            p.messages := s.messages - cardinality(s.kept) + cardinality(p.kept) - everturn.messages_v1(
                s.no, everturn.ranges_v1(s, s.head, greatest(r.after, s.floor) + 1, s.head, NULL));
            p.head := r.after;
        ELSIF written = 0 THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := r.after IS NOT NULL;
        p.messages := p.messages + r.messages;
        IF written > 0 THEN
            IF p.head <> coalesce(s.last_seq, 0) THEN
                p.follows := p.head;
            END IF;
            p.head := coalesce(s.last_seq, 0) + written;
        END IF;
        -- The floor never lies past the head: else it would hide entries that are appended there in a fork.
        p.cleared := least(p.head, p.cleared);
        p.floor := least(p.head, p.floor);
    WHEN 'trim', 'fold' THEN
        IF r.kind = 'trim' AND (s.no IS NULL OR r.floor IS NULL) THEN
            p.refusal := 'unchanged';
        ELSIF s.no IS NULL
              OR (s.life, s.cleared, s.floor, s.kept)
                 IS DISTINCT FROM (r.seen_life, r.seen_cleared, r.seen_floor, r.seen_kept)
              OR (s.head <> r.seen_head AND NOT everturn.on_path_v1(s, s.head, r.seen_head)) THEN
            p.refusal := 'moved';
        ELSIF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSE
            p.floor := r.floor;
            p.kept := r.kept;
            p.messages := s.messages - r.hidden;
            p.undoable := true;
            IF r.kind = 'fold' THEN  -- the summary is appended
                IF s.head <> s.last_seq THEN
                    p.follows := s.head;
                END IF;
                p.head := s.last_seq + 1;
            END IF;
        END IF;
    WHEN 'clear' THEN
        IF s.no IS NULL
           OR NOT (s.floor < s.head OR cardinality(s.kept) > 0 OR everturn.has_hidden_summaries_v1(s)) THEN
            p.refusal := 'unchanged';
        ELSE
            p.cleared := s.head;
            p.floor := s.head;
            p.kept := '{}';
            p.messages := 0;
            p.undoable := true;
        END IF;
    WHEN 'snapshot', 'ttl' THEN
        NULL;  -- the state stays
    WHEN 'delete_snapshot' THEN
        IF NOT EXISTS (SELECT FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id) THEN
            PERFORM everturn.snapshots_v1(s);  -- was there one?
            p.refusal := 'no_snapshot';
        END IF;
    WHEN 'rollback' THEN
        p := everturn.state_v1(s, r.snapshot_id, r.to_version);
        IF (p.head, p.cleared, p.floor, p.kept, p.messages) = (s.head, s.cleared, s.floor, s.kept, s.messages) THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := true;
    WHEN 'undo' THEN
        SELECT * INTO step FROM everturn.undo_steps u WHERE u.session = s.no ORDER BY u.version DESC LIMIT 1;
        p.undone := step.version;
        IF (step.seal IS DISTINCT FROM everturn.undo_seal_v1(step) AND step.version IS NOT NULL)
           OR (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no) <> s.undo_steps THEN
            PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
        ELSIF step.version IS NULL THEN
            p.refusal := 'nothing_to_undo';
        ELSIF step.kind IN ('trim', 'clear') OR (step.kind = 'fold' AND s.head <> step.moved_to) THEN
            -- Entries that were hidden are shown again; later ones are not touched.
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := s.messages + step.hidden;
        ELSIF s.head <> step.moved_to AND r.drop_turns IS NOT TRUE THEN
            p.refusal := 'followed';
        ELSE
            p.head := step.head;
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := step.messages;
        END IF;
    END CASE;
    RETURN p;
END
$$;

-- Changes: find an earlier attempt, plan (plan_v1), write. The rows written are those of `Plan` in core/plan_change.py.
-- Every change goes this way: lock the session's row, look, write. Turns of messages, which nearly all are, need no look where
-- the head is the last entry of the log (docs/decisions/007-postgres-functions.md).

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction. `p_bodies`, of p_size bytes, and `p_checksums` are of its entries.
CREATE OR REPLACE FUNCTION everturn.apply_v2(
    p_namespace text, r everturn.request_v1, p_bodies text[], p_checksums bigint[], p_size bigint, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s       everturn.sessions;
    over    everturn.sessions;  -- a life that has expired
    p       everturn.plan_v1;
    o       everturn.outcome_v1;
    effect  everturn.effects;
    link    everturn.effect_keys;  -- shows that there is no such effect
    now_    double precision;
    at      double precision;
    first   bigint := 0;
    start   bigint;  -- of the copies of summaries, which stand before the turn
    carried bigint := greatest(r.carried, 0);
BEGIN
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        IF NOT FOUND AND NOT everturn.is_absent_v5(p_namespace, r.session_id) THEN
            CONTINUE;
        END IF;
        now_ := everturn.now_v1(p_now);  -- after the locks: however long they were waited for
        IF everturn.is_over_v1(s.expires_at, now_) THEN
            over := s;
            s := NULL;
        END IF;
        at := greatest(now_, s.changed_at);  -- a clock that was set back does not make a session younger
        IF s.no IS NULL THEN
            s.fence := everturn.fence_v1(p_namespace, r.session_id, over);
        END IF;
        IF everturn.is_late_v1(r.issued, r.not_after, s.fence, now_) THEN
            p.refusal := 'late';
        ELSE
            IF s.no IS NOT NULL AND (r.retry OR r.key IS NOT NULL OR s.changed_at >= r.issued) THEN
                o := everturn.recall_v1(s, r, now_);
            END IF;
            IF r.retry AND o.status IS NULL THEN
                o := everturn.recall_erased_v1(p_namespace, r, now_);
            END IF;
            IF o.status = 'replayed' THEN
                RETURN o;
            END IF;
            IF o.status IS NOT NULL THEN
                p.refusal := o.status;
            ELSIF coalesce(s.version, 0) <> r.expected_version OR coalesce(s.life, '') <> r.expected_life THEN
                p.refusal := 'conflict';
            ELSIF r.lease_token IS NOT NULL AND NOT everturn.is_claimed_v3(p_namespace, s, r, now_) THEN
                p.refusal := 'lease_lost';
            ELSIF r.effect_attempt IS NOT NULL THEN
                effect := everturn.effect_of_v5(s.no, r.label);
                IF effect.key IS NULL THEN
                    link := everturn.spanning_link_v5(s.no, s.effects, r.label);
                END IF;
                p := everturn.plan_effect_v5(s, r, effect);
            ELSIF r.facts IS NOT NULL THEN
                p := everturn.plan_facts_v4(s, r);
            ELSE
                p := everturn.plan_v1(s, r);
            END IF;
        END IF;
        IF p.refusal IS NOT NULL THEN
            IF s.no IS NOT NULL THEN  -- what is told of a session must be true
                PERFORM everturn.check_session_v1(s);
            ELSE
                PERFORM everturn.check_absent_v1(p_namespace, r.session_id);
            END IF;
            IF r.retry AND p.refusal <> 'late' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, s.no, now_);
            END IF;
            -- A key that was used before is refused with the first receipt, any other request with the present version.
            RETURN (p.refusal, coalesce(s.life, ''), coalesce(o.version, s.version, 0), coalesce(o.first_seq, 0),
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, CASE WHEN r.effect_attempt IS NOT NULL THEN
                        everturn.effect_text_v5(p_namespace, s, everturn.effect_of_v5(s.no, r.label), now_) END, NULL, NULL, now_)::everturn.outcome_v1;
        END IF;
        EXIT WHEN s.no IS NOT NULL;
        IF over.no IS NOT NULL THEN
            UPDATE everturn.sessions SET ended = true, seal = NULL WHERE no = over.no;
        END IF;
        INSERT INTO everturn.sessions (namespace, session_id, life, version, last_seq, head, messages, bytes, ttl,
                                       created_at, changed_at, changed_in, fence)
        VALUES (p_namespace, r.session_id, everturn.life_v1(r.call), 0, 0, 0, 0, 0, r.ttl, at, at, everturn.step_v1(at),
                s.fence)
            ON CONFLICT (namespace, session_id) WHERE NOT ended DO NOTHING
        RETURNING * INTO s;
        IF s.no IS NOT NULL THEN
            PERFORM everturn.bind_lease_v5(p_namespace, r.session_id, s.life);
            EXIT;
        END IF;
        over := NULL;  -- another worker began it meanwhile: look again
    END LOOP;
    IF r.entries > 0 THEN
        first := s.last_seq + carried + 1;
    END IF;
    IF r.entries + carried > 0 THEN
        start := s.last_seq + 1;
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT s.no, start + e.place - 1, e.turn, at, e.checksum + everturn.place_v1(
                   s.no, start + e.place - 1, e.turn, at, coalesce(e.kind, 'message')),
               coalesce(e.kind, 'message'), e.body
          FROM (SELECT b.*, CASE WHEN b.place <= carried THEN start ELSE first END AS turn
                  FROM unnest(p_bodies, p_checksums, r.kinds) WITH ORDINALITY AS b (body, checksum, kind, place)) AS e;
    END IF;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, snapshot_id, label, seal)
    VALUES (s.no, s.version + 1, first, r.entries, p.head, p.cleared, p.floor, p.messages, at, p.kept,
            r.kind, r.call, r.key, r.content, r.snapshot_id, r.label, everturn.change_seal_v1(
                s.no, s.version + 1, first, r.entries, p.head, p.cleared, p.floor, p.messages, at, p.kept,
                r.kind, r.call, r.key, r.content, r.snapshot_id, r.label));
    IF r.kind = 'append' AND r.messages = r.entries AND p.follows IS NULL THEN
        -- The log grows by messages, and that is all: the seal covers nothing of it, and the tally grows with it.
        UPDATE everturn.sessions t
           SET version = t.version + 1, last_seq = p.head, head = p.head, messages = p.messages, bytes = t.bytes + p_size,
               changed_at = at, expires_at = at + t.ttl,
               changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
               tally = everturn.grown_v1(t.tally, r.entries, p_size, t.changed_at, at, t.expires_at, at + t.ttl),
               lease = coalesce(r.lease_token, t.lease)
         WHERE t.no = s.no;
    ELSE
        PERFORM everturn.write_state_v2(s, r, p, s.last_seq + 1, p_size, at, now_);
    END IF;
    IF r.facts IS NOT NULL THEN
        UPDATE everturn.sessions t SET facts = everturn.merged_facts_v4(s, r), seal = NULL WHERE t.no = s.no;
    END IF;
    IF r.effect_attempt IS NOT NULL THEN
        r.label := everturn.effect_text_v5(p_namespace, s, everturn.write_effect_v5(s, r, effect, link, at), now_);
    END IF;
    RETURN ('applied', s.life, s.version + 1, first, r.entries, 0, r.snapshot_id, r.label, p.messages, at, now_)
           ::everturn.outcome_v1;
END
$$;

-- Write what a change does to a session's row, and to its jumps, undo steps and snapshots. `s` is the row before it.
CREATE OR REPLACE FUNCTION everturn.write_state_v2(
    s everturn.sessions, r everturn.request_v1, p everturn.plan_v1, p_first bigint, p_size bigint, p_at double precision,
    p_now double precision
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    seconds double precision := CASE WHEN r.kind = 'ttl' THEN r.seconds ELSE s.ttl END;
    carried bigint := greatest(r.carried, 0);
BEGIN
    UPDATE everturn.sessions t
       SET version = s.version + 1, last_seq = s.last_seq + r.entries + carried, head = p.head, cleared = p.cleared, floor = p.floor,
           kept = p.kept, messages = p.messages, bytes = s.bytes + p_size, dimension = coalesce(s.dimension, r.dimension),
           others = s.others + r.entries + carried - coalesce(r.messages, 0),
           effects = s.effects + CASE WHEN r.kind = 'begin_effect' AND NOT EXISTS (
               SELECT FROM everturn.effects e WHERE e.session = s.no AND e.key = r.label) THEN 1 ELSE 0 END,
           snapshots = s.snapshots + CASE r.kind WHEN 'snapshot' THEN 1 WHEN 'delete_snapshot' THEN -1 ELSE 0 END,
           undo_steps = CASE WHEN p.undoable THEN least(s.undo_steps + 1, 10) WHEN p.undone IS NULL THEN s.undo_steps
                             ELSE s.undo_steps - 1 END,
           last_jump = CASE WHEN p.follows IS NULL THEN s.last_jump ELSE p_first END, seal = NULL,
           ttl = seconds, expires_at = p_at + seconds, changed_at = p_at,
           changed_in = everturn.step_v1(p_at), expires_in = everturn.step_v1(p_at + seconds),
           fence = CASE WHEN r.kind IN ('rollback', 'undo') OR r.after <> s.head THEN p_now ELSE s.fence END
     WHERE t.no = s.no;
    IF p.follows IS NOT NULL THEN
        INSERT INTO everturn.jumps (session, seq, after, prior, seal)
        VALUES (s.no, p_first, p.follows, s.last_jump, everturn.jump_seal_v1(s.no, p_first, p.follows, s.last_jump));
    END IF;
    IF p.undoable THEN
        INSERT INTO everturn.undo_steps (session, version, kind, moved_to, hidden, head, cleared, floor, kept, messages)
        VALUES (s.no, s.version + 1, r.kind, p.head, s.messages - p.messages, s.head, s.cleared, s.floor, s.kept, s.messages);
        DELETE FROM everturn.undo_steps u
         WHERE u.session = s.no AND u.version <= (
            SELECT k.version FROM everturn.undo_steps k WHERE k.session = s.no ORDER BY k.version DESC OFFSET 10 LIMIT 1);
    ELSIF p.undone IS NOT NULL THEN
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no AND u.version = p.undone;
    ELSIF r.kind = 'snapshot' THEN
        INSERT INTO everturn.snapshots (session, snapshot_id, label, version, head, cleared, floor, kept, messages, created_at)
        VALUES (s.no, r.snapshot_id, r.label, s.version + 1, p.head, p.cleared, p.floor, p.kept, p.messages, p_at);
    ELSIF r.kind = 'delete_snapshot' THEN
        DELETE FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id;
    END IF;
END
$$;

-- Apply changes, each all or nothing, and commit them together. The sessions are named in byte order: so two calls never wait
-- for each other in a ring. `p_calls`, `p_counts` (of entries), `p_sizes` (bytes of their bodies) and `p_not_after` have an element
-- for each change; `p_bodies` and `p_checksums` have one for each entry, in order. `p_rest` has a JSON object for each change:
-- request_v1 without these. NULL: all are turns of messages without a key, and may name what they expect and a lease in `p_versions`,
-- `p_lives`, `p_tokens` and `p_holders`, an element for each change, where NULL or an empty text is none (NULL: none of them does).
-- No lock is waited for longer than `p_patience` milliseconds. An error (there is none by design) undoes them all.
CREATE OR REPLACE FUNCTION everturn.change_v5(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_ttl double precision, p_counts bigint[], p_sizes bigint[],
    p_bodies text[], p_checksums bigint[], p_versions bigint[], p_lives text[], p_tokens bigint[], p_holders text[], p_rest json,
    p_patience integer, p_issued double precision, p_not_after double precision[], p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    waits  text   := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    taken  bigint := 0;  -- bodies of the changes before this one
    at     double precision;
    leased text;              -- the life that a lease is of, if it is in force and the one that is named
    ends   double precision;  -- when that lease ends; NULL where none is named
    s      record;
    grown  boolean;
    r      everturn.request_v1;
    turns  everturn.turn_v1[] := '{}';  -- whose session is updated, and whose rows are still to be written
BEGIN
    FOR i IN 1 .. cardinality(p_session_ids) LOOP
        grown := false;
        IF p_rest IS NULL THEN
            -- Without a look: where these conditions hold, no earlier attempt was made, and nothing forbids the turn. All that a
            -- change could alter meanwhile is in the session's row, which is looked at again if its lock was waited for. (The row of the
            -- lease is not: whoever takes or releases it writes `t.lease`. A key would have to be looked for in other rows.)
            at := everturn.now_v1(p_now);
            ends := NULL;
            IF p_tokens[i] IS NOT NULL THEN
                SELECT l.life, l.until INTO leased, ends FROM everturn.leases l
                 WHERE l.namespace = p_namespace AND l.session_id = p_session_ids[i]
                   AND everturn.is_named_v5(l, l.life, p_tokens[i], p_holders[i], at);
            END IF;
            UPDATE everturn.sessions t
               SET version = t.version + 1, last_seq = t.last_seq + p_counts[i], head = t.last_seq + p_counts[i],
                   messages = t.messages + p_counts[i], bytes = t.bytes + p_sizes[i], changed_at = at, expires_at = at + t.ttl,
                   changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
                   tally = everturn.grown_v1(t.tally, p_counts[i], p_sizes[i], t.changed_at, at, t.expires_at, at + t.ttl)
             WHERE t.namespace = p_namespace AND t.session_id = p_session_ids[i] AND NOT t.ended AND t.head = t.last_seq
               AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at
               AND at <= p_not_after[i] AND NOT everturn.is_over_v1(t.expires_at, at)
               AND (p_versions[i] IS NULL OR t.version = p_versions[i]) AND (p_lives[i] <> '' AND t.life <> p_lives[i]) IS NOT TRUE
               AND (p_tokens[i] IS NULL OR t.lease = p_tokens[i] AND t.life = leased)
            RETURNING (t.no, t.version, t.head - p_counts[i] + 1, p_counts[i], t.head, t.cleared, t.floor, t.messages, at, t.kept,
                       p_calls[i], taken)::everturn.turn_v1 AS turn, t.life, t.version, t.head - p_counts[i] + 1 AS first,
                      everturn.now_v1(p_now) AS told INTO s;
            grown := FOUND;
        END IF;
        IF grown THEN
            IF s.told > least(p_not_after[i], ends) THEN  -- a lock was waited for: the conditions saw an earlier time
                PERFORM everturn.refuse_late_v1(p_issued, least(p_not_after[i], ends), NULL, s.told);
            END IF;
            turns := turns || s.turn;
            RETURN NEXT ('applied', s.life, s.version, s.first, p_counts[i], 0, NULL, NULL, NULL, NULL, s.told)
                        ::everturn.outcome_v1;
        ELSE
            r := (p_session_ids[i], 'append', p_calls[i], p_ttl, NULL, NULL, p_versions[i], nullif(p_lives[i], ''), NULL,
                  p_issued, p_not_after[i], p_counts[i], NULL, NULL, p_counts[i], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, p_tokens[i], nullif(p_holders[i], ''), NULL, NULL, NULL, NULL, NULL,
                  NULL);
            IF p_rest IS NOT NULL THEN
                r := json_populate_record(r, p_rest -> (i - 1));
            END IF;
            RETURN NEXT everturn.apply_v2(
                p_namespace, r, p_bodies[taken + 1 : taken + p_counts[i]], p_checksums[taken + 1 : taken + p_counts[i]],
                p_sizes[i], p_now);
        END IF;
        taken := taken + p_counts[i];
    END LOOP;
    IF cardinality(turns) > 0 THEN  -- the rows of all of them in two statements
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, e.checksum + everturn.place_v1(
                   w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, 'message'), 'message', e.body
          FROM unnest(turns) AS w
         CROSS JOIN LATERAL unnest(p_bodies[w.before + 1 : w.before + w.count], p_checksums[w.before + 1 : w.before + w.count])
               WITH ORDINALITY AS e (body, checksum, place);
        INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept, kind,
                                      call, seal)
        SELECT w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
               'append', w.call, everturn.change_seal_v1(
                   w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
                   'append', w.call, NULL, NULL, NULL, NULL)
          FROM unnest(turns) AS w;
    END IF;
END
$$;

-- The same for workers of version 4 that are still open. For those, `p_rest` says what a turn expects and which lease it names.
CREATE OR REPLACE FUNCTION everturn.change_v2(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_ttl double precision, p_counts bigint[], p_sizes bigint[],
    p_bodies text[], p_checksums bigint[], p_rest json, p_patience integer, p_issued double precision,
    p_not_after double precision[], p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.change_v5(
        p_namespace, p_session_ids, p_calls, p_ttl, p_counts, p_sizes, p_bodies, p_checksums, NULL, NULL, NULL, NULL, p_rest,
        p_patience, p_issued, p_not_after, p_now);
END
$$;

-- Reads across sessions: pages of them, and text search.

-- Names within these bounds whose session is lost or hidden: `names` has them, and the row of `sessions` is not there, has another
-- name, or is on no page and not as it was written.
CREATE OR REPLACE FUNCTION everturn.hidden_names_v5(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_last text, p_at double precision
) RETURNS SETOF text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT DISTINCT k.session_id
      FROM everturn.names k
      LEFT JOIN LATERAL (SELECT n.namespace, n.session_id,
                                (n.ended OR everturn.is_over_v1(n.expires_at, p_at) OR n.changed_at < 0 OR n.changed_in IS NULL)
                                AND NOT everturn.is_whole_v1(n) AS is_hidden
                           FROM everturn.sessions n WHERE n.no = k.no OFFSET 0) AS s ON true
     WHERE k.namespace = p_namespace AND k.session_id > p_past AND k.session_id >= p_prefix
       AND k.session_id <= coalesce(p_last, p_beyond, repeat(chr(1114111), 129))  -- at the end: longer than any id
       AND (p_beyond IS NULL OR k.session_id < p_beyond)
       AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace OR s.is_hidden)
$$;

-- A page in byte order of the names. Sessions whose row is lost, hidden or damaged are on it as well, with zeros: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE OR REPLACE FUNCTION everturn.sessions_by_name_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_since double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    WITH page AS MATERIALIZED (
        SELECT s.*, everturn.is_whole_v1(s) AS is_whole
          FROM everturn.sessions s
         WHERE s.namespace = p_namespace AND NOT s.ended AND s.session_id > p_past AND s.session_id >= p_prefix
           AND (p_beyond IS NULL OR s.session_id < p_beyond)
           AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) AND s.changed_at >= p_since
         ORDER BY s.session_id LIMIT p_limit)
    SELECT p.session_id, p.life, p.version, p.messages, p.last_seq, p.bytes, p.snapshots, p.undo_steps,
           p.created_at, p.changed_at, p.ttl, p.expires_at, p.forked_from, p.facts::text
      FROM page p WHERE p.is_whole
    UNION ALL
    SELECT k.name, '', 0, 0, 0, 0, 0, 0, 0.0::float8, 0.0::float8, NULL::float8, NULL::float8, NULL, NULL
      FROM (SELECT p.session_id FROM page p WHERE NOT p.is_whole
            UNION
            SELECT everturn.hidden_names_v5(
                p_namespace, p_prefix, p_beyond, p_past,
                (SELECT CASE count(*) WHEN p_limit THEN max(p.session_id) END FROM page p), everturn.now_v1(p_now))) AS k (name)
     ORDER BY session_id
$$;

-- A page with the latest changed first: five minutes from the index at a time, sorted. Raises for a session that is not as it was
-- written: its time cannot be trusted, so nobody knows its place. One whose time is wrong comes first of its five minutes,
-- whatever the time is; a later time than p_before as well. The first page (p_before: 1e300), if it has all sessions, raises for
-- those whose row is lost or hidden, too. Else the page by name does that, which comes last.
CREATE OR REPLACE FUNCTION everturn.sessions_by_change_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_before double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at       double precision := everturn.now_v1(p_now);
    is_first boolean          := p_before >= 1e300;
    listed   bigint           := 0;
    s        record;
BEGIN
    FOR s IN
        SELECT n.*, everturn.is_whole_v1(n) AS is_whole FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND NOT n.ended
           AND n.session_id >= p_prefix AND (p_beyond IS NULL OR n.session_id < p_beyond)
           AND n.changed_in <= CASE WHEN is_first THEN 9223372036854775807 ELSE everturn.step_v1(least(p_before, 1e15)) END
           AND (((n.changed_at, n.session_id) < (p_before, p_past) AND NOT everturn.is_over_v1(n.expires_at, at))
                OR NOT everturn.is_timely_v5(n))
         ORDER BY n.changed_in DESC, everturn.is_timely_v5(n), n.changed_at DESC, n.session_id DESC LIMIT p_limit
    LOOP
        IF NOT s.is_whole THEN
            PERFORM everturn.damaged_v1(s.no, 'its row in the table sessions is not as it was written');
        END IF;
        RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps, s.created_at,
                     s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        listed := listed + 1;
    END LOOP;
    IF is_first AND listed < p_limit THEN
        PERFORM everturn.check_absent_v1(p_namespace, k.name)
           FROM everturn.hidden_names_v5(p_namespace, p_prefix, p_beyond, '', NULL, at) AS k (name);
    END IF;
END
$$;

-- Whether a row of the index of facts leads to a session that has this fact.
CREATE OR REPLACE FUNCTION everturn.has_fact_v5(f everturn.facts, s everturn.sessions) RETURNS boolean LANGUAGE sql STABLE
RETURN ((s).namespace = (f).namespace AND (s).session_id = (f).session_id AND (s).facts ->> (f).name = (f).value) IS TRUE;

-- The same, and whether all that decides about the place of the session on a page of these facts is as it was written.
CREATE OR REPLACE FUNCTION everturn.is_led_to_v5(f everturn.facts, s everturn.sessions, p_where jsonb) RETURNS boolean
LANGUAGE sql STABLE
RETURN everturn.has_fact_v5(f, s) AND CASE WHEN (s).ended OR NOT (s).facts @> p_where THEN everturn.is_whole_v1(s)
                                           ELSE everturn.is_timely_v5(s) END;

-- A page of the sessions that have all these facts: in byte order of the names, or with the latest changed first (p_recent: before
-- p_bound and p_past; else past p_past, and changed since p_bound). The index of facts is read for the rarest of them. Raises
-- where it leads to a row that is not as it was written, or has not this fact.
CREATE OR REPLACE FUNCTION everturn.sessions_by_fact_v4(
    p_namespace text, p_where jsonb, p_recent boolean, p_prefix text, p_beyond text, p_past text, p_bound double precision,
    p_limit bigint, p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at     double precision := everturn.now_v1(p_now);
    astray text             := 'the index of facts leads to a row that is not as it was written, or has not this fact';
    rarest record;
    s      record;
    listed bigint           := 0;
BEGIN
    SELECT w.key AS name, w.value INTO rarest FROM jsonb_each_text(p_where) AS w
     ORDER BY (SELECT count(*) FROM (SELECT FROM everturn.facts f
                                      WHERE f.namespace = p_namespace AND f.name = w.key AND f.value = w.value LIMIT 100) k)
     LIMIT 1;
    IF p_recent THEN
        FOR s IN  -- all are read, to be sorted; those that may be wrong come first
            SELECT f.session, n.*, everturn.is_led_to_v5(f, n, p_where) AND everturn.is_whole_v1(n) AS is_sound
              FROM everturn.facts f LEFT JOIN everturn.sessions n ON n.no = f.session
             WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value
               AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
               AND (((n.changed_at, n.session_id) < (p_bound, p_past) AND NOT n.ended AND n.facts @> p_where
                     AND NOT everturn.is_over_v1(n.expires_at, at))
                    OR NOT everturn.is_led_to_v5(f, n, p_where))
             ORDER BY everturn.is_led_to_v5(f, n, p_where), n.changed_at DESC, n.session_id DESC LIMIT p_limit
        LOOP
            IF NOT s.is_sound THEN
                PERFORM everturn.damaged_v1(s.session, astray);
            END IF;
            RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
                         s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        END LOOP;
        RETURN;
    END IF;
    FOR s IN
        SELECT f.session, n.*
          FROM everturn.facts f
          LEFT JOIN LATERAL (SELECT i.*, everturn.has_fact_v5(f, i) AND everturn.is_whole_v1(i) AS is_sound
                               FROM everturn.sessions i WHERE i.no = f.session OFFSET 0) AS n ON true
         WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value AND f.session_id > p_past
           AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
         ORDER BY f.session_id
    LOOP
        IF s.is_sound IS NOT TRUE THEN
            PERFORM everturn.damaged_v1(s.session, astray);
        END IF;
        IF s.changed_at >= p_bound AND s.facts @> p_where AND NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, at) THEN
            RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
                         s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
            listed := listed + 1;
            EXIT WHEN listed = p_limit;
        END IF;
    END LOOP;
END
$$;

-- A time before which no change is still under way: a change that commits after this call has a later one.
CREATE OR REPLACE FUNCTION everturn.began_v1(p_now double precision) RETURNS double precision
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN coalesce(p_now, least(everturn.now_v1(NULL), (
        SELECT extract(epoch FROM min(a.xact_start))::double precision FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend')));
END
$$;

-- The parts of these ranges above a seq.
CREATE OR REPLACE FUNCTION everturn.above_v5(r everturn.ranges_v1, p_seq bigint) RETURNS everturn.ranges_v1 LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT array_agg(greatest(k.first, p_seq + 1)), array_agg(k.last), coalesce(sum(k.last - greatest(k.first, p_seq + 1) + 1), 0)::bigint, 0::bigint
      FROM unnest(r.firsts, r.lasts) AS k (first, last) WHERE k.last > p_seq
$$;

-- Raise unless there is an entry at each of these seqs of a session.
CREATE OR REPLACE FUNCTION everturn.check_there_v5(s everturn.sessions, r everturn.ranges_v1) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    lost bigint := CASE WHEN r.size > 0 THEN everturn.first_missing_v1(s.no, r) ELSE 0 END;
BEGIN
    IF lost > 0 THEN
        PERFORM everturn.damaged_v1(s.no, format('the entry with seq %s is lost, or not where it was written', lost));
    END IF;
END
$$;

-- Visible entries whose body is like the pattern, newest first, before (p_session, p_seq): at most p_limit of them.
-- ILIKE on a column that is COLLATE "C" folds the ASCII letters and no others, as core/text_search.py does.
-- Session by session, and down the path of each as far as there are matches, past what is not on it. Raises if an entry that it passes
-- is lost, or, at the end of all sessions, if one of these is.
CREATE OR REPLACE FUNCTION everturn.find_v1(
    p_namespace text, p_session_id text, p_pattern text, p_session bigint, p_seq bigint, p_limit integer,
    p_now double precision
) RETURNS SETOF everturn.match_v1 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at    double precision := everturn.now_v1(p_now);
    next  bigint := p_session;
    s     everturn.sessions;
    r     everturn.ranges_v1;
    m     everturn.match_v1;
    upto  bigint;
    found integer := 0;
BEGIN
    IF p_session_id IS NOT NULL THEN
        s := everturn.session_v1(p_namespace, p_session_id, p_now);
        next := s.no;
    END IF;
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.no <= next AND n.namespace || '' = p_namespace  -- so written, it can be read by number only
           AND NOT n.ended AND NOT everturn.is_over_v1(n.expires_at, at)
         ORDER BY n.no DESC
    LOOP
        PERFORM everturn.check_session_v1(s);
        upto := CASE WHEN s.no = p_session THEN least(s.head, p_seq - 1) ELSE s.head END;
        PERFORM everturn.check_there_v5(s, (s.kept, s.kept, cardinality(s.kept), 0)::everturn.ranges_v1);
        r.at := s.head;
        WHILE r.at > 0 LOOP
            r := everturn.ranges_v1(s, r.at, 1, upto, 1000);
            FOR m IN  -- in the order of the ranges, and within each from its end: nothing is sorted, so the first come at once
                SELECT e.session, s.session_id, e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(r.firsts, r.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND (n.seq > s.floor OR n.seq = ANY (s.kept) OR n.kind = 'summary' AND n.seq > s.cleared)
                                        AND n.body ILIKE p_pattern
                                      ORDER BY n.seq DESC OFFSET 0) AS e
            LOOP
                RETURN NEXT m;
                found := found + 1;
                IF found = p_limit THEN
                    RETURN;
                END IF;
            END LOOP;
            PERFORM everturn.check_there_v5(s, everturn.above_v5(r, s.floor));
        END LOOP;
        EXIT WHEN p_session_id IS NOT NULL;
    END LOOP;
    IF p_session_id IS NULL THEN
        PERFORM everturn.check_absent_v1(p_namespace, k.name)
           FROM everturn.hidden_names_v5(p_namespace, '', NULL, '', NULL, at) AS k (name);
    END IF;
END
$$;

-- Forks: copies of a state of one session into a new one, inside the database, in steps that each are a transaction. The copy
-- is staged under a number of its own until it is whole; one update gives it the target's name. A small one is one step.

-- Begin a fork. The copy has the facts of its source: whoever erases by a fact must find it.
CREATE OR REPLACE FUNCTION everturn.begin_fork_v1(
    s everturn.sessions, p everturn.plan_v1, p_target text, p_until double precision, p_at double precision
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    no_    bigint;
    path   everturn.ranges_v1 := everturn.ranges_v1(s, p.head, 1, p.head, NULL);
    whole  everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.floor + 1, p.head, NULL);
    hidden everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.cleared + 1, p.floor, NULL);
BEGIN
    INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept, messages,
                                   bytes, dimension, expires_at, created_at, changed_at, forked_from, changed_in, expires_in,
                                   last_jump, facts)
    VALUES (s.namespace, p_target, true, '', 1, p.head, p.head, p.cleared, p.floor, p.kept, p.messages,
            0, s.dimension, p_until, p_at, p_at, s.session_id, everturn.step_v1(p_at), everturn.step_v1(p_until),
            CASE WHEN path.firsts[1] > 1 THEN path.firsts[1] ELSE 0 END, s.facts)
    RETURNING no INTO no_;
    -- The jumps on the way, and no others: each but the first range begins with one.
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT no_, j.seq, j.after, j.prior, everturn.jump_seal_v1(no_, j.seq, j.after, j.prior)
      FROM (SELECT k.first AS seq, coalesce(lead(k.last) OVER way, 0) AS after,
                   CASE WHEN lead(k.first) OVER way > 1 THEN lead(k.first) OVER way ELSE 0 END AS prior
              FROM unnest(path.firsts, path.lasts) WITH ORDINALITY AS k (first, last, place)
            WINDOW way AS (ORDER BY k.place)) j
     WHERE j.seq > 1;
    INSERT INTO everturn.forks (no, source, next, rest) VALUES (no_, s.no, p.head, whole.size);
    PERFORM everturn.copy_entries_v1(s.no, no_, p.kept, p.kept, false),
            everturn.copy_entries_v1(s.no, no_, hidden.firsts, hidden.lasts, true);
    RETURN no_;
END
$$;

-- Copy entries of these ranges (or only the summaries among them) to a session that is staged. Returns how many.
CREATE OR REPLACE FUNCTION everturn.copy_entries_v1(
    p_source bigint, p_no bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    copied record;
BEGIN
    WITH written AS (
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT p_no, e.seq, e.turn, e.created_at,
               everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)
               + everturn.place_v1(p_no, e.seq, e.turn, e.created_at, e.kind), e.kind, e.body
          FROM unnest(p_firsts, p_lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                              WHERE NOT p_summaries AND n.session = p_source AND n.seq BETWEEN part.first AND part.last
                             UNION ALL
                             SELECT * FROM everturn.entries n
                              WHERE p_summaries AND n.session = p_source AND n.seq BETWEEN part.first AND part.last
                                AND n.kind = 'summary' AND n.kind <> 'message' OFFSET 0) AS e
        RETURNING octet_length(body) AS bytes, kind
    )
    SELECT count(*) AS entries, sum(w.bytes) AS bytes, count(*) FILTER (WHERE w.kind <> 'message') AS others
      INTO copied FROM written w;
    IF copied.entries > 0 THEN
        UPDATE everturn.sessions n SET bytes = n.bytes + copied.bytes, others = n.others + copied.others, seal = NULL
         WHERE n.no = p_no;
    END IF;
    RETURN copied.entries;
END
$$;

-- One step: copy the next entries of the path, at most so many. Returns how many are left. Below 0 it is the seq, negated, of
-- one that is not there: it was reclaimed since the copy began, and the rest of the copy is of no use; or it is lost.
CREATE OR REPLACE FUNCTION everturn.go_on_fork_v1(p_no bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    t     everturn.sessions;
    f     everturn.forks;
    r     everturn.ranges_v1;
    last  integer;
    extra bigint;
BEGIN
    SELECT * INTO t FROM everturn.sessions n WHERE n.no = p_no;
    SELECT * INTO f FROM everturn.forks k WHERE k.no = p_no;
    IF f.rest > 0 THEN
        PERFORM everturn.damaged_v1(p_no, 'a fork of it that is under way has another source')
           FROM everturn.sessions n
          WHERE n.no = f.source AND (n.namespace, n.session_id) IS DISTINCT FROM (t.namespace, t.forked_from);
        r := everturn.ranges_v1(t, f.next, t.floor + 1, f.next, p_limit);
        last := cardinality(r.firsts);
        extra := r.size - p_limit;
        IF extra > 0 THEN  -- of the last range, the upper part
            r.at := r.firsts[last] + extra - 1;
            r.firsts[last] := r.at + 1;
            r.size := p_limit;
        END IF;
        IF everturn.copy_entries_v1(f.source, p_no, r.firsts, r.lasts, false) < r.size THEN
            RETURN -everturn.first_missing_v1(f.source, r);
        END IF;
        f.rest := f.rest - r.size;
        UPDATE everturn.forks k SET next = r.at, rest = f.rest WHERE k.no = p_no;
    END IF;
    RETURN f.rest;
END
$$;

-- One step of a fork. The first (p_no IS NULL) looks at the source, whose row is locked for sharing, so that its state stands
-- still meanwhile; it goes on with a copy of that state that somebody left half done. The last makes the target visible.
-- Status `staged`: the copy with the number `first_seq` has `count` entries to go. `moved`: it has gone, or lacks an entry.
CREATE OR REPLACE FUNCTION everturn.fork_v1(
    p_namespace text, p_source text, p_snapshot text, p_version bigint, p_request json, p_no bigint, p_limit bigint,
    p_for double precision, p_patience integer, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    r     everturn.request_v1 := json_populate_record(NULL::everturn.request_v1, p_request);
    t     everturn.sessions;
    was   everturn.sessions;
    s     everturn.sessions;
    p     everturn.plan_v1;
    o     everturn.outcome_v1;
    done  everturn.outcome_v1;  -- before an erasure
    at    double precision;
    past  double precision;  -- the fence
    no_   bigint := p_no;
    left_ bigint;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    LOOP
        o := (NULL, '', 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL);
        SELECT * INTO was FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        at := everturn.now_v1(p_now);
        past := everturn.fence_v1(p_namespace, r.session_id, was);
        IF was.no IS NOT NULL AND NOT everturn.is_over_v1(was.expires_at, at) THEN
            PERFORM everturn.refuse_late_v1(r.issued, r.not_after, was.fence, at);
            o := everturn.recall_v1(was, r, at);
            IF r.retry AND o.status IS NULL THEN
                o := everturn.recall_erased_v1(p_namespace, r, at);
            END IF;
            IF o.status IS NULL THEN
                o := ('exists', was.life, was.version, 0, 0, 0, NULL, NULL, NULL, NULL, at)::everturn.outcome_v1;
            END IF;
            IF r.retry AND o.status <> 'replayed' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, was.no, at);
            END IF;
            RETURN o;
        END IF;
        IF no_ IS NULL THEN
            SELECT * INTO s FROM everturn.sessions n
             WHERE n.namespace = p_namespace AND n.session_id = p_source AND NOT n.ended FOR SHARE;
        END IF;
        at := everturn.now_v1(p_now);  -- after both locks
        o.told := at;
        PERFORM everturn.refuse_late_v1(r.issued, r.not_after, past, at);
        IF r.retry THEN
            done := everturn.recall_erased_v1(p_namespace, r, at);
            IF done.status IS NOT NULL THEN
                RETURN done;
            END IF;
        END IF;
        IF no_ IS NOT NULL THEN
            IF everturn.arriving_v1(p_namespace, r.session_id, no_, at) IS NULL THEN
                o.status := 'moved';
                RETURN o;
            END IF;
        ELSE
            IF everturn.is_over_v1(s.expires_at, at) THEN
                s := NULL;
            END IF;
            o.life := coalesce(s.life, '');
            o.version := coalesce(s.version, 0);
            IF o.version <> r.expected_version OR o.life <> r.expected_life THEN
                o.status := 'conflict';
            ELSIF s.no IS NULL THEN
                PERFORM everturn.check_absent_v1(p_namespace, p_source);
                o.status := 'no_session';
            ELSE
                PERFORM everturn.check_session_v1(s);
                p := everturn.state_v1(s, p_snapshot, p_version);
                o.status := p.refusal;
            END IF;
            IF o.status IS NOT NULL THEN
                IF r.retry THEN
                    PERFORM everturn.fence_off_v1(p_namespace, r.session_id, NULL, at);
                END IF;
                RETURN o;
            END IF;
            SELECT n.no INTO no_ FROM everturn.sessions n JOIN everturn.forks f ON f.no = n.no
             WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND n.ended AND n.life = '' AND n.expires_at > at
               AND f.source = s.no AND (n.head, n.cleared, n.floor, n.kept) = (p.head, p.cleared, p.floor, p.kept)
             LIMIT 1 FOR UPDATE OF n;
            no_ := coalesce(no_, everturn.begin_fork_v1(s, p, r.session_id, at + p_for, at));
        END IF;
        left_ := everturn.go_on_fork_v1(no_, p_limit);
        IF left_ <> 0 THEN
            -- A copy that cannot be finished is left to be reaped; nobody finds it again.
            DELETE FROM everturn.forks f WHERE f.no = no_ AND left_ < 0;
            UPDATE everturn.sessions n
               SET expires_at = at + p_for, expires_in = everturn.step_v1(at + p_for),
                   life = CASE WHEN left_ < 0 THEN '-' ELSE '' END, seal = NULL
             WHERE n.no = no_;
            o.status := CASE WHEN left_ < 0 THEN 'moved' ELSE 'staged' END;
            o.first_seq := no_;
            o.count := left_;
            RETURN o;
        END IF;
        BEGIN
            UPDATE everturn.sessions n SET ended = true, seal = NULL WHERE n.no = was.no;
            UPDATE everturn.sessions n
               SET ended = false, life = everturn.life_v1(r.call), ttl = r.ttl, expires_at = at + r.ttl, created_at = at,
                   changed_at = at, changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + r.ttl), fence = past,
                   seal = NULL
             WHERE n.no = no_ RETURNING * INTO t;
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            NULL;  -- another worker began the target meanwhile: look again
        END;
    END LOOP;
    PERFORM everturn.bind_lease_v5(p_namespace, r.session_id, t.life);
    DELETE FROM everturn.forks f WHERE f.no = no_;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, seal)
    VALUES (t.no, 1, 0, 0, t.head, t.cleared, t.floor, t.messages, at, t.kept, 'fork', r.call, r.key, r.content,
            everturn.change_seal_v1(t.no, 1, 0, 0, t.head, t.cleared, t.floor, t.messages, at, t.kept, 'fork', r.call, r.key,
                                    r.content, NULL, NULL));
    o.status := 'applied';
    o.life := t.life;
    o.version := 1;
    RETURN o;
END
$$;

-- Compaction: reclaim entries that nothing can reach, and old changes. Each call is one bounded transaction.
-- compaction.py plans the steps, by `reach` of core/paths.py.

-- Every state a session can return to, with its name for people.
CREATE OR REPLACE FUNCTION everturn.roots_v1(p_session bigint)
RETURNS TABLE (head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint, name text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT s.head, s.cleared, s.floor, s.kept, s.messages, 'the head' FROM everturn.sessions s WHERE s.no = p_session
    UNION ALL
    SELECT n.head, n.cleared, n.floor, n.kept, n.messages, 'snapshot ' || n.snapshot_id
      FROM everturn.snapshots n WHERE n.session = p_session
    UNION ALL
    SELECT u.head, u.cleared, u.floor, u.kept, u.messages, 'the undo step of version ' || u.version
      FROM everturn.undo_steps u WHERE u.session = p_session
$$;

-- Delete some entries: at most p_limit (NULL: all) of those in these ranges, summaries only if told so.
CREATE OR REPLACE FUNCTION everturn.reclaim_v1(p_session bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    chosen bigint[] := ARRAY(
        SELECT e.seq FROM unnest(p_firsts, p_lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                              WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last
                                AND (p_summaries OR n.kind <> 'summary') OFFSET 0) AS e
         LIMIT p_limit);
    gone everturn.reclaimed_v1;
BEGIN
    WITH deleted AS (
        DELETE FROM everturn.entries e WHERE e.session = p_session AND e.seq = ANY (chosen)
        RETURNING octet_length(e.body) AS size, e.kind
    )
    SELECT 1, count(*), coalesce(sum(size), 0), count(*) FILTER (WHERE kind <> 'message'), count(*), 0 INTO gone FROM deleted;
    RETURN gone;
END
$$;

-- Delete changes beyond a version and up to another: look at no more than p_limit (NULL: at all). A key is remembered while
-- entries of its turn are stored.
CREATE OR REPLACE FUNCTION everturn.forget_changes_v1(p_session bigint, p_beyond bigint, p_to bigint, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    looked bigint[] := ARRAY(
        SELECT g.version FROM everturn.changes g
         WHERE g.session = p_session AND g.version > p_beyond AND g.version <= p_to ORDER BY g.version LIMIT p_limit);
BEGIN
    DELETE FROM everturn.changes g
     WHERE g.session = p_session AND g.version = ANY (looked)
       AND (g.key IS NULL OR g.count > 0 AND NOT EXISTS (
            SELECT FROM everturn.entries e
             WHERE e.session = p_session AND e.seq >= g.first_seq AND e.seq < g.first_seq + g.count));
    RETURN (1, 0, 0, 0, cardinality(looked), coalesce(looked[cardinality(looked)], p_to))::everturn.reclaimed_v1;
END
$$;

-- Raise if undo steps of a session are lost, or not as they were written.
CREATE OR REPLACE FUNCTION everturn.check_undo_steps_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF s.undo_steps <> (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no)
       OR EXISTS (SELECT FROM everturn.undo_steps u
                   WHERE u.session = s.no AND u.seal IS DISTINCT FROM everturn.undo_seal_v1(u)) THEN
        PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
    END IF;
END
$$;

-- Forget every undo step of a session, before it is compacted: entries that only `undo` could bring back are reclaimed then.
-- The version stays. Returns the server's clock. A request that comes late is refused: it would take steps that are not its own.
CREATE OR REPLACE FUNCTION everturn.drop_undo_v1(
    p_namespace text, p_session_id text, p_patience integer, p_issued double precision, p_not_after double precision,
    p_now double precision
) RETURNS double precision LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s  everturn.sessions;
    at double precision;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
    at := everturn.now_v1(p_now);  -- after the lock
    IF s.no IS NOT NULL AND NOT everturn.is_over_v1(s.expires_at, at) THEN
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, s.fence, at);
        PERFORM everturn.check_undo_steps_v1(s);
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no;
        UPDATE everturn.sessions n SET undo_steps = 0, seal = NULL WHERE n.no = s.no AND n.undo_steps > 0;
    END IF;
    RETURN at;
END
$$;

-- Everything that a plan for compacting a session needs, seen at one moment, as JSON; NULL if there is no session. An entry
-- that nothing can reach now, nothing will: a head moves to a snapshot, an undo step, or on. So the plan is made without a lock.
CREATE OR REPLACE FUNCTION everturn.survey_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM everturn.snapshots_v1(s);  -- where one is lost, what it shows must not be
    PERFORM everturn.check_undo_steps_v1(s);
    RETURN json_build_object(
        'no', s.no, 'version', s.version, 'last_seq', s.last_seq, 'last_jump', s.last_jump,
        'roots', (SELECT json_agg(json_build_array(r.head, r.cleared, r.floor, r.kept, r.messages))
                    FROM everturn.roots_v1(s.no) AS r),
        'jumps', (SELECT json_agg(json_build_array(j.seq, j.after, j.prior) ORDER BY j.seq)
                    FROM everturn.jumps j WHERE j.session = s.no),
        'remembered', (SELECT json_agg(json_build_array(g.version, g.head, g.cleared, g.floor, g.kept, g.messages))
                         FROM everturn.changes g
                        WHERE g.session = s.no AND g.version > s.version - 1024 AND g.head IS NOT NULL),
        'forgets', EXISTS (SELECT FROM everturn.changes g WHERE g.session = s.no AND g.version <= s.version - 1024))::text;
END
$$;

-- One step of compacting a session, of at most p_limit rows. No state shows the rows that it names, now or later (survey_v1).
CREATE OR REPLACE FUNCTION everturn.compact_v1(
    p_namespace text, p_session_id text, p_no bigint, p_step json, p_limit bigint, p_patience integer, p_now double precision
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s    everturn.sessions;
    d    everturn.work_v1 := json_populate_record(NULL::everturn.work_v1, p_step);
    jump everturn.jumps;
    next everturn.jumps;
    last bigint;  -- jump that was deleted, and the one before it
    before bigint;
    gone everturn.reclaimed_v1 := (1, 0, 0, 0, 0, 0);
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.no = p_no AND n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
    IF NOT FOUND OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) THEN
        RETURN (0, 0, 0, 0, 0, 0)::everturn.reclaimed_v1;
    END IF;
    IF d.unreadable IS NOT NULL THEN
        -- Before the first entry goes: a remembered version that shows it can no longer be read.
        UPDATE everturn.changes g
           SET head = NULL, seal = everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, NULL, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)
         WHERE g.session = s.no AND g.version = ANY (d.unreadable) AND g.head IS NOT NULL
           AND g.seal = everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label);
    ELSIF d.firsts IS NOT NULL THEN
        gone := everturn.reclaim_v1(s.no, d.firsts, d.lasts, d.summaries, p_limit);
    ELSIF d.jumps IS NOT NULL THEN
        FOR jump IN SELECT j.* FROM unnest(d.jumps) WITH ORDINALITY AS k (seq, place)
                      CROSS JOIN LATERAL (SELECT * FROM everturn.jumps n
                                           WHERE n.session = s.no AND n.seq = k.seq OFFSET 0) AS j ORDER BY k.place
        LOOP
            IF jump.prior = last THEN  -- which has just gone
                jump.prior := before;
            END IF;
            last := jump.seq;
            before := jump.prior;
            DELETE FROM everturn.jumps j WHERE j.session = s.no AND j.seq = jump.seq;
            -- The jump behind it, or the session, names the one before it from now on.
            SELECT * INTO next FROM everturn.jumps j
             WHERE j.session = s.no AND j.seq > jump.seq ORDER BY j.seq LIMIT 1;
            IF next.seq IS NULL THEN
                s.last_jump := before;
            ELSIF next.seq <> ALL (d.jumps) THEN
                UPDATE everturn.jumps j
                   SET prior = before, seal = everturn.jump_seal_v1(j.session, j.seq, j.after, before)
                 WHERE j.session = s.no AND j.seq = next.seq;
            END IF;
        END LOOP;
    ELSE
        s.forgotten := greatest(s.forgotten, d.forget_to);
        IF d.forget_beyond IS NOT NULL THEN
            gone := everturn.forget_changes_v1(s.no, d.forget_beyond, d.forget_to, p_limit);
        END IF;
    END IF;
    UPDATE everturn.sessions n
       SET bytes = n.bytes - gone.bytes, others = n.others - gone.others, last_jump = s.last_jump, forgotten = s.forgotten,
           seal = NULL
     WHERE n.no = s.no;
    RETURN gone;
END
$$;

-- Removal of sessions: reaping those that expired, and erasing. Each call is one bounded transaction.

-- One step of removing a session that ended: at most so many of its rows, and its own when no other is left. Entries and
-- changes go from the newest on; `last_seq` and `version` say where the next step begins: none looks at rows that are gone.
CREATE OR REPLACE FUNCTION everturn.remove_v1(s everturn.sessions, p_limit bigint) RETURNS everturn.removed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    removed everturn.removed_v1;
    went    bigint;
    quota   bigint := p_limit;  -- of rows that may still go
BEGIN
    WITH deleted AS (
        DELETE FROM everturn.entries e
         WHERE e.session = s.no AND e.seq = ANY (ARRAY(
            SELECT n.seq FROM everturn.entries n WHERE n.session = s.no AND n.seq <= s.last_seq ORDER BY n.seq DESC LIMIT quota))
        RETURNING e.seq, octet_length(e.body) AS size
    )
    SELECT count(*), coalesce(sum(size), 0), 0, false, coalesce(min(seq) - 1, 0)
      INTO removed.entries, removed.bytes, removed.snapshots, removed.is_gone, s.last_seq FROM deleted;
    quota := quota - removed.entries;
    IF quota > 0 THEN
        WITH deleted AS (
            DELETE FROM everturn.changes g
             WHERE g.session = s.no AND g.version = ANY (ARRAY(
                SELECT c.version FROM everturn.changes c
                 WHERE c.session = s.no AND c.version <= s.version ORDER BY c.version DESC LIMIT quota))
            RETURNING g.version
        )
        SELECT count(*), coalesce(min(version) - 1, 0) INTO went, s.version FROM deleted;
        quota := quota - went;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.jumps j
         WHERE j.session = s.no AND j.seq = ANY (ARRAY(SELECT k.seq FROM everturn.jumps k WHERE k.session = s.no LIMIT quota));
        GET DIAGNOSTICS went = ROW_COUNT;
        quota := quota - went;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.snapshots n
         WHERE n.session = s.no AND n.snapshot_id = ANY (ARRAY(
            SELECT k.snapshot_id FROM everturn.snapshots k WHERE k.session = s.no LIMIT quota));
        GET DIAGNOSTICS removed.snapshots = ROW_COUNT;
        quota := quota - removed.snapshots;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no;
        DELETE FROM everturn.forks f WHERE f.no = s.no;
        DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
        DELETE FROM everturn.sessions n WHERE n.no = s.no;
        removed.is_gone := true;
    ELSE
        UPDATE everturn.sessions n SET last_seq = s.last_seq, version = s.version, seal = NULL WHERE n.no = s.no;
    END IF;
    RETURN removed;
END
$$;

-- One step of reaping: rows of a session that expired, and the session when nothing else is left of it. Workers that reap
-- at the same time take different sessions. One that is arriving (18-transfer.sql), or that somebody is erasing, is left alone
-- until it expires.
CREATE OR REPLACE FUNCTION everturn.reap_v1(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s    everturn.sessions;
    gone everturn.removed_v1;
    at   double precision := everturn.now_v1(p_now);
BEGIN
    DELETE FROM everturn.tombstones t
     WHERE (t.namespace, t.digest) IN (SELECT k.namespace, k.digest FROM everturn.tombstones k WHERE k.until <= at
                                        ORDER BY k.until LIMIT p_step FOR UPDATE SKIP LOCKED);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.ended AND n.life <> '' AND coalesce(n.expires_at <= at, true) AND everturn.is_whole_v1(n)
     LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.expires_in <= everturn.step_v1(at) AND n.expires_at <= at AND everturn.is_whole_v1(n)
         ORDER BY n.expires_in LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN (0, 0, 0, 0, 0, 0)::everturn.reclaimed_v1;
        END IF;
        -- Before its first row goes: no clock that is set back brings half of it to light again, and none of it arrives.
        UPDATE everturn.sessions n SET ended = true, life = coalesce(nullif(n.life, ''), '-'), seal = NULL
         WHERE n.no = s.no;
    END IF;
    gone := everturn.remove_v1(s, p_step);
    RETURN (1, gone.entries, gone.bytes, 0, 0, 0)::everturn.reclaimed_v1;
END
$$;

-- One step of reaping, as reap_v1, and some leases that are over, of names that have no session.
CREATE OR REPLACE FUNCTION everturn.reap_v3(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    DELETE FROM everturn.leases l
     WHERE (l.namespace, l.session_id) IN (
        SELECT k.namespace, k.session_id FROM everturn.leases k
         WHERE k.life = '' AND k.until <= everturn.now_v1(p_now) - 60 AND NOT EXISTS (
            SELECT FROM everturn.sessions s WHERE s.namespace = k.namespace AND s.session_id = k.session_id AND NOT s.ended)
         LIMIT p_step FOR UPDATE SKIP LOCKED);
    RETURN everturn.reap_v1(p_step, p_now);
END
$$;

-- End a session that is to be erased, as before. One that was put together from what is left of it has no count of effects.
CREATE OR REPLACE FUNCTION everturn.end_erased_v1(s everturn.sessions, p_at double precision) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    DELETE FROM everturn.sessions n WHERE n.no = s.no;
    DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
    s.ended := true;
    s.life := '-';
    s.version := 9223372036854775807;
    s.last_seq := 9223372036854775807;
    s.effects := coalesce(s.effects, 0);
    s.changed_at := p_at;
    s.changed_in := everturn.step_v1(p_at);
    s.expires_at := p_at + 60;
    s.expires_in := everturn.step_v1(p_at + 60);
    s.seal := everturn.session_seal_v1(s);
    s.tally := everturn.tally_v1(s.version, s.last_seq, s.head, s.messages, s.bytes, s.changed_at, s.expires_at) % 1099511627689;
    INSERT INTO everturn.sessions OVERRIDING SYSTEM VALUE VALUES (s.*);
END
$$;

-- Erase every life of a session, but for a living one that is not the one named (NULL: that one too), and remove at most so
-- many of their rows.
CREATE OR REPLACE FUNCTION everturn.erase_v1(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
)
RETURNS everturn.erased_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s      everturn.sessions;
    lost   bigint;
    erased everturn.erased_v1;
    at     double precision;
    fence  double precision;
    spared boolean;
    calls  jsonb := '{}';
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id ORDER BY n.no FOR UPDATE
    LOOP
        fence := greatest(fence, s.fence);
    END LOOP;
    at := everturn.now_v1(p_now);  -- after the locks
    -- Where nothing is left, nothing can be removed too late: this request did it, if it was sent twice, or another.
    fence := CASE WHEN EXISTS (
        SELECT FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
    ) THEN greatest(fence, everturn.fence_v1(p_namespace, p_session_id, NULL)) END;
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, fence, at);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id
           AND (p_life IS NULL OR n.life = p_life OR n.ended OR everturn.is_over_v1(n.expires_at, at))
         ORDER BY n.no FOR UPDATE
    LOOP
        calls := calls || everturn.calls_of_v1(s);
        PERFORM everturn.end_erased_v1(s, at);
    END LOOP;
    -- A session whose row was lost: its other rows, by its number.
    FOR lost IN
        DELETE FROM everturn.names k
         WHERE k.namespace = p_namespace AND k.session_id = p_session_id
           AND NOT EXISTS (SELECT FROM everturn.sessions n
                            WHERE n.no = k.no AND n.namespace = k.namespace AND n.session_id = k.session_id)
        RETURNING k.no
    LOOP
        IF NOT EXISTS (SELECT FROM everturn.sessions n WHERE n.no = lost) THEN
            s := json_populate_record(NULL::everturn.sessions, json_build_object(
                'no', lost, 'namespace', p_namespace, 'session_id', p_session_id, 'head', 0, 'cleared', 0, 'floor', 0,
                'kept', '{}'::bigint[], 'messages', 0, 'bytes', 0, 'created_at', at, 'snapshots', 0, 'undo_steps', 0,
                'others', 0, 'forgotten', 0, 'last_jump', 0));
            PERFORM everturn.end_erased_v1(s, at);
        END IF;
    END LOOP;
    spared := EXISTS (
        SELECT FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
    );
    IF NOT spared THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, at, calls);
    END IF;
    erased := everturn.erase_more_v1(p_namespace, p_session_id, p_limit);
    erased.spared := spared;
    erased.told := at;
    RETURN erased;
END
$$;

-- Erase a session, and its lease with it.
CREATE OR REPLACE FUNCTION everturn.erase_v3(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS everturn.erased_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    erased everturn.erased_v1 := everturn.erase_v1(
        p_namespace, p_session_id, p_life, p_limit, p_patience, p_issued, p_not_after, p_now);
BEGIN
    IF NOT erased.spared AND everturn.is_absent_v5(p_namespace, p_session_id) THEN  -- else a life has begun, and has the lease
        DELETE FROM everturn.leases l WHERE l.namespace = p_namespace AND l.session_id = p_session_id;
    END IF;
    RETURN erased;
END
$$;

-- The next step: remove rows of lives of a session that were erased, or expired, at most so many.
CREATE OR REPLACE FUNCTION everturn.erase_more_v1(p_namespace text, p_session_id text, p_limit bigint) RETURNS everturn.erased_v1
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s      everturn.sessions;
    gone   everturn.removed_v1;
    quota  bigint              := p_limit;
    erased everturn.erased_v1 := (0, 0, 0, pg_current_xact_id()::xid, false, NULL, false);
BEGIN
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND n.ended AND n.life <> '' ORDER BY n.no FOR UPDATE
    LOOP
        IF quota <= 0 THEN
            erased.left_over := true;
            RETURN erased;
        END IF;
        gone := everturn.remove_v1(s, quota);
        erased.entries := erased.entries + gone.entries;
        erased.bytes := erased.bytes + gone.bytes;
        erased.snapshots := erased.snapshots + gone.snapshots;
        erased.left_over := NOT gone.is_gone;
        quota := CASE WHEN gone.is_gone THEN quota - gone.entries - gone.snapshots - 1 ELSE 0 END;
    END LOOP;
    RETURN erased;
END
$$;

-- Whether some transaction in this database may still see rows that an erasing transaction deleted.
CREATE OR REPLACE FUNCTION everturn.is_still_seen_v1(p_xid xid) RETURNS boolean LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                      AND a.backend_type = 'client backend' AND age(a.backend_xmin) >= age(p_xid))
$$;

-- Verification: everything stored of one session, seen at one moment. _shared/verification.py judges it.

CREATE OR REPLACE FUNCTION everturn.verify_v1(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s everturn.sessions;
BEGIN
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
    IF NOT FOUND THEN
        PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
        RETURN;
    END IF;
    RETURN QUERY SELECT 'session', s.version, s.last_seq, NULL::bigint, NULL::float8, NULL::bytea, NULL, NULL::json;
    RETURN QUERY
        SELECT 'entry', e.seq, NULL::bigint,
               everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum), e.created_at,
               convert_to(e.body, 'UTF8'), e.kind, NULL::json
          FROM everturn.entries e WHERE e.session = s.no ORDER BY e.seq;
    RETURN QUERY
        SELECT 'jump', j.seq, j.after, NULL::bigint, NULL::float8, NULL::bytea, NULL, NULL::json
          FROM everturn.jumps j WHERE j.session = s.no AND j.seq <= s.last_seq ORDER BY j.seq DESC;
    RETURN QUERY
        SELECT 'root', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, r.name,
               json_build_array(r.head, r.cleared, r.floor, r.kept, r.messages)
          FROM everturn.roots_v1(s.no) r;
    RETURN QUERY
        SELECT 'version', g.version, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, 'version ' || g.version,
               CASE WHEN g.head IS NOT NULL
                    THEN json_build_array(g.head, g.cleared, g.floor, g.kept, g.messages) END
          FROM everturn.changes g WHERE g.session = s.no AND g.version > s.forgotten ORDER BY g.version;
    RETURN QUERY
        SELECT 'wrong', w.seq, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, w.what, NULL::json
          FROM everturn.wrong_v1(s) AS w;
END
$$;

-- Everything stored of a session, and damaged effects and facts, and its lease.
CREATE OR REPLACE FUNCTION everturn.verify_v3(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.verify_v1(p_namespace, p_session_id, p_now);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the effect %s is not as it was written', e.key), NULL::json
          FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'its lease is lost, or not as it was written', NULL::json
          FROM everturn.sessions n
          LEFT JOIN everturn.leases l ON l.namespace = n.namespace AND l.session_id = n.session_id
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND (n.lease IS NOT NULL AND l.token IS NULL OR NOT everturn.is_sealed_v5(l));
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'some of its effects are lost', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the link of its effect %s is lost, or not as it was written', coalesce(l.key, k.key)), NULL::json
          FROM (SELECT n.no, e.key, coalesce(lead(e.key) OVER in_order, first_value(e.key) OVER in_order) AS next_key
                  FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
                 WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                WINDOW in_order AS (ORDER BY e.key)) l
          FULL JOIN (SELECT i.* FROM everturn.sessions n JOIN everturn.effect_keys i ON i.session = n.no
                      WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended) k
            ON k.session = l.no AND k.key = l.key
         WHERE k.next_key IS DISTINCT FROM l.next_key
            OR k.seal IS DISTINCT FROM everturn.effect_key_seal_v5(k.session, k.key, k.next_key);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'the index of facts has not the facts of its row', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.facts IS DISTINCT FROM (
               SELECT jsonb_object_agg(f.name, f.value) FROM everturn.facts f
                WHERE f.session = n.no AND f.namespace = n.namespace AND f.session_id = n.session_id);
END
$$;

-- Rows of a session that are lost, or not as they were written; and the seq, where one is known.
CREATE OR REPLACE FUNCTION everturn.wrong_v1(s everturn.sessions) RETURNS TABLE (seq bigint, what text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    IF NOT everturn.is_whole_v1(s) THEN
        RETURN QUERY SELECT NULL::bigint, 'its row in the table sessions is not as it was written';
    END IF;
    IF NOT EXISTS (SELECT FROM everturn.names k
                    WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no) THEN
        RETURN QUERY SELECT NULL::bigint, 'its row in the table names is lost';
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, format('%s: %s are counted, and %s are there', f.what, f.counted, f.there)
          FROM (VALUES ('snapshots', s.snapshots, (SELECT count(*) FROM everturn.snapshots n WHERE n.session = s.no)),
                       ('undo steps', s.undo_steps, (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no)),
                       ('changes', s.version - s.forgotten,
                        (SELECT count(*) FROM everturn.changes g WHERE g.session = s.no AND g.version > s.forgotten)),
                       ('entries that are no messages', s.others,
                        (SELECT count(*) FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message')),
                       ('bytes', s.bytes, (SELECT coalesce(sum(octet_length(e.body)), 0)::bigint FROM everturn.entries e
                                            WHERE e.session = s.no))) AS f (what, counted, there)
         WHERE f.counted <> f.there;
    RETURN QUERY
        SELECT NULL::bigint, format('snapshot %s is not as it was written', n.snapshot_id) FROM everturn.snapshots n
         WHERE n.session = s.no AND n.seal IS DISTINCT FROM everturn.snapshot_seal_v1(n);
    RETURN QUERY
        SELECT NULL::bigint, format('the undo step of version %s is not as it was written', u.version)
          FROM everturn.undo_steps u WHERE u.session = s.no AND u.seal IS DISTINCT FROM everturn.undo_seal_v1(u);
    RETURN QUERY
        SELECT NULL::bigint, format('the change that made version %s is not as it was written', g.version)
          FROM everturn.changes g
         WHERE g.session = s.no AND g.seal IS DISTINCT FROM everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label);
    RETURN QUERY
        SELECT j.seq, 'its jump is not as it was written' FROM everturn.jumps j
         WHERE j.session = s.no AND j.seal <> everturn.jump_seal_v1(j.session, j.seq, j.after, j.prior);
    RETURN QUERY
        SELECT j.next, format('the jump before seq %s is lost', j.next)
          FROM (SELECT coalesce(lead(k.seq) OVER way, s.last_seq + 1) AS next, k.seq,
                       coalesce(lead(k.prior) OVER way, s.last_jump) AS prior
                  FROM (SELECT 0 AS seq, 0 AS prior
                        UNION ALL SELECT i.seq, i.prior FROM everturn.jumps i WHERE i.session = s.no) k
                WINDOW way AS (ORDER BY k.seq)) j
         WHERE j.prior <> j.seq;
END
$$;

-- Numbers of sessions that do not exist, though there are rows of them; and damaged leases of names without a session. (Those that
-- still have a name are verified by it.)
CREATE OR REPLACE FUNCTION everturn.orphans_v1() RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    name  text;
    next  bigint;
    names text[]   := '{}';
    nos   bigint[] := '{}';
BEGIN
    FOREACH name IN ARRAY ARRAY['changes', 'entries', 'jumps', 'snapshots', 'undo_steps'] LOOP
        next := -9223372036854775808;
        LOOP  -- from number to number through the primary key: a DISTINCT would read every row
            EXECUTE format('SELECT t.session FROM everturn.%I t WHERE t.session > $1 ORDER BY t.session LIMIT 1', name)
               INTO next USING next;
            EXIT WHEN next IS NULL;
            IF NOT EXISTS (SELECT FROM everturn.sessions s WHERE s.no = next) THEN
                names := names || name;
                nos := nos || next;
            END IF;
        END LOOP;
    END LOOP;
    RETURN QUERY
        SELECT format('there are %s of session number %s, which does not exist', string_agg(o.name, ', '), o.no)
          FROM unnest(nos, names) AS o (no, name)
         WHERE NOT EXISTS (SELECT FROM everturn.names k WHERE k.no = o.no) GROUP BY o.no;
    RETURN QUERY
        SELECT format('the lease of %s, which does not exist, is not as it was written', quote_literal(l.session_id))
          FROM everturn.leases l
         WHERE NOT everturn.is_sealed_v5(l)
           AND NOT EXISTS (SELECT FROM everturn.sessions s
                            WHERE s.namespace = l.namespace AND s.session_id = l.session_id AND NOT s.ended);
END
$$;

-- Transfer: sessions in and out of the database, for copies between backends. JSON here is the exported form, as it is
-- (docs/storage.md).
--
-- A session that arrives is staged under a number of its own: a row of `sessions` that is `ended` and has no life ('').
-- One update makes it visible. Left alone, it is reaped when it expires.

CREATE OR REPLACE FUNCTION everturn.state_json_v1(head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN json_build_object('head', head, 'cleared', cleared, 'floor', floor, 'kept', kept, 'messages', messages);

-- All of a session's present life but its log and its changes; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.outline_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at    double precision  := everturn.now_v1(p_now);
    s     everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    wrong text;
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    -- Sums that differ are an error here only where no entry is missing: else the copy can name the one that is.
    SELECT w.what INTO wrong FROM everturn.wrong_v1(s) AS w
     ORDER BY w.what LIKE 'bytes:%' OR w.what LIKE 'entries %' LIMIT 1;
    IF FOUND AND (NOT (wrong LIKE 'bytes:%' OR wrong LIKE 'entries %') OR NOT EXISTS (
            SELECT FROM everturn.roots_v1(s.no) AS r
             WHERE everturn.first_missing_v1(s.no, everturn.ranges_v1(s, r.head, r.floor + 1, r.head, NULL)) > 0)) THEN
        PERFORM everturn.damaged_v1(s.no, wrong);
    END IF;
    RETURN json_build_object(
        'session_id', s.session_id, 'life', s.life, 'version', s.version,
        'call', coalesce((SELECT encode(g.call, 'base64') FROM everturn.changes g
                           WHERE g.session = s.no AND g.version = s.version), ''),
        'last_seq', s.last_seq, 'state', everturn.state_json_v1(s.head, s.cleared, s.floor, s.kept, s.messages),
        'created_at', s.created_at, 'changed_at', s.changed_at, 'seen_at', at, 'ttl', s.ttl, 'expires_at', s.expires_at,
        'dimension', s.dimension, 'forked_from', s.forked_from,
        'jumps', coalesce((SELECT json_agg(json_build_array(j.seq, j.after) ORDER BY j.seq)
                             FROM everturn.jumps j WHERE j.session = s.no), '[]'),
        'snapshots', coalesce((SELECT json_agg(json_build_object(
                'id', n.snapshot_id, 'label', n.label, 'version', n.version, 'created_at', n.created_at,
                'state', everturn.state_json_v1(n.head, n.cleared, n.floor, n.kept, n.messages)) ORDER BY n.version)
            FROM everturn.snapshots n WHERE n.session = s.no), '[]'),
        'undo_steps', coalesce((SELECT json_agg(json_build_object(
                'version', u.version, 'kind', u.kind, 'moved_to', u.moved_to, 'hidden', u.hidden,
                'before', everturn.state_json_v1(u.head, u.cleared, u.floor, u.kept, u.messages)) ORDER BY u.version)
            FROM everturn.undo_steps u WHERE u.session = s.no), '[]'));
END
$$;

-- All of a session's present life but its log and its changes, with its effects and its facts.
CREATE OR REPLACE FUNCTION everturn.outline_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    outline json := everturn.outline_v1(p_namespace, p_session_id, p_now);
    no_     bigint;
    told    json;
    facts_  jsonb;
BEGIN
    IF outline IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT n.no, n.facts INTO no_, facts_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    IF EXISTS (SELECT FROM everturn.effects e
                WHERE e.session = no_ AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e)) THEN
        PERFORM everturn.damaged_v1(no_, 'an effect is not as it was written');
    END IF;
    PERFORM everturn.check_effects_v4(no_);
    SELECT json_agg(json_build_object(
               'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'at', e.at, 'by', e.by,
               'ended', e.ended, 'ended_at', e.ended_at, 'token', e.token, 'request', e.request::json,
               'result', e.result::json, 'error', e.error::json, 'note', e.note) ORDER BY e.began, e.key)
      INTO told FROM everturn.effects e WHERE e.session = no_;
    -- As text: jsonb, which could be added to, refuses \u0000.
    RETURN left(outline::text, -1) || coalesce(', "effects": ' || told::text, '')
           || coalesce(', "facts": ' || facts_::text, '') || '}';
END
$$;

-- Changes of a session, in order, as a JSON array. Raises if one is lost or damaged.
CREATE OR REPLACE FUNCTION everturn.changes_json_v1(s everturn.sessions, p_after bigint, p_last bigint, p_limit bigint) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    told  json;
    whole bigint;
    rows  bigint;
    upto  bigint;
BEGIN
    SELECT coalesce(json_agg(json_build_object(
               'version', g.version, 'kind', g.kind, 'first_seq', g.first_seq, 'count', g.count,
               'created_at', g.created_at, 'call', encode(g.call, 'base64'),
               'state', everturn.state_json_v1(coalesce(g.head, 0), g.cleared, g.floor, g.kept, g.messages),
               'readable', g.head IS NOT NULL AND g.version > s.forgotten,
               'key', encode(g.key, 'base64'), 'content', encode(g.content, 'base64'),
               'snapshot_id', g.snapshot_id, 'label', g.label) ORDER BY g.version), '[]'),
           count(*) FILTER (WHERE g.version > s.forgotten AND g.seal = everturn.change_seal_v1(
               g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
               g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)),
           count(*), max(g.version)
      INTO told, whole, rows, upto
      FROM (SELECT * FROM everturn.changes c
             WHERE c.session = s.no AND c.version > p_after AND c.version <= p_last
             ORDER BY c.version LIMIT p_limit) g;
    IF rows < p_limit OR upto IS NULL THEN
        upto := least(p_last, s.version);
    END IF;
    IF whole <> greatest(0, upto - greatest(p_after, s.forgotten)) THEN
        PERFORM everturn.damaged_v1(s.no, format('changes up to version %s are lost or damaged', upto));
    END IF;
    RETURN told;
END
$$;

-- The next rows of a life: entries, and behind them one row without a seq whose body is a JSON array of changes, NULL where
-- entries are left. No row at all: the life is over.
CREATE OR REPLACE FUNCTION everturn.portion_v1(
    p_namespace text, p_session_id text, p_life text, p_after_seq bigint, p_last_seq bigint, p_after_version bigint,
    p_last_version bigint, p_entries bigint, p_changes bigint, p_bytes bigint, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    s    everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    upto bigint;
    last everturn.row_v1;
BEGIN
    IF s.no IS NULL OR s.life <> p_life THEN
        RETURN;
    END IF;
    SELECT coalesce(max(q.seq), p_after_seq) INTO upto
      FROM (SELECT k.seq, sum(k.size) OVER (ORDER BY k.seq) - k.size AS before
              FROM (SELECT e.seq, octet_length(e.body) AS size FROM everturn.entries e
                     WHERE e.session = s.no AND e.seq > p_after_seq AND e.seq <= p_last_seq
                     ORDER BY e.seq LIMIT p_entries) k) q
     WHERE q.before < p_bytes;
    RETURN QUERY
        SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
               convert_to(e.body, 'UTF8'), e.kind, e.turn
          FROM everturn.entries e WHERE e.session = s.no AND e.seq > p_after_seq AND e.seq <= upto ORDER BY e.seq;
    IF NOT EXISTS (SELECT FROM everturn.entries e WHERE e.session = s.no AND e.seq > upto AND e.seq <= p_last_seq) THEN
        last.body := convert_to(
            everturn.changes_json_v1(s, p_after_version, p_last_version, p_changes)::text, 'UTF8');
    END IF;
    RETURN NEXT last;
END
$$;

-- Write rows under a session's number; those that are there are left as they are. Returns the counts of rows written.
CREATE OR REPLACE FUNCTION everturn.put_rows_v1(
    p_session bigint, p_seqs bigint[], p_turns bigint[], p_times double precision[], p_checksums bigint[], p_kinds text[],
    p_bodies text[], p_changes json
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    put everturn.reclaimed_v1;
BEGIN
    WITH written AS (
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT p_session, e.seq, e.turn, e.time,
               e.checksum % 4294967296 + everturn.place_v1(p_session, e.seq, e.turn, e.time, e.kind), e.kind, e.body
          FROM unnest(p_seqs, p_turns, p_times, p_checksums, p_kinds, p_bodies) AS e (seq, turn, time, checksum, kind, body)
            ON CONFLICT DO NOTHING
        RETURNING octet_length(body) AS bytes, kind
    )
    SELECT 1, count(*), coalesce(sum(bytes), 0), count(*) FILTER (WHERE kind <> 'message'), 0, 0 INTO put FROM written;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, snapshot_id, label, seal)
    SELECT g.*, everturn.change_seal_v1(
               g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
               g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)
      FROM (SELECT p_session AS session, (c ->> 'version')::bigint AS version, (c ->> 'first_seq')::bigint AS first_seq,
                   (c ->> 'count')::bigint AS count, CASE WHEN (c ->> 'readable')::boolean THEN t.head END AS head,
                   t.cleared, t.floor, t.messages, (c ->> 'created_at')::double precision AS created_at, t.kept,
                   c ->> 'kind' AS kind, decode(c ->> 'call', 'base64') AS call, decode(c ->> 'key', 'base64') AS key,
                   decode(c ->> 'content', 'base64') AS content, c ->> 'snapshot_id' AS snapshot_id, c ->> 'label' AS label
              FROM json_array_elements(p_changes) AS c
             CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, c -> 'state') AS t) AS g
        ON CONFLICT DO NOTHING;
    RETURN put;
END
$$;

-- Put rows where nobody sees them: under a number that was staged before, or a new one. Returns it; NULL if it has gone.
CREATE OR REPLACE FUNCTION everturn.stage_v1(
    p_namespace text, p_session_id text, p_version bigint, p_no bigint, p_for double precision, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    at   double precision := everturn.now_v1(p_now);
    seqs bigint[]         := p_seqs;
    no_  bigint           := p_no;
    put  everturn.reclaimed_v1;
BEGIN
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, everturn.fence_v1(p_namespace, p_session_id, NULL), at);
    IF p_no IS NULL THEN
        INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, messages, bytes,
                                       expires_at, created_at, changed_at, changed_in, expires_in)
        VALUES (p_namespace, p_session_id, true, '', p_version, 0, 0, 0, 0, at + p_for, at, at, everturn.step_v1(at),
                everturn.step_v1(at + p_for)) RETURNING no INTO no_;
    ELSIF everturn.arriving_v1(p_namespace, p_session_id, p_no, at) IS NULL THEN
        RETURN NULL;
    END IF;
    put := everturn.put_rows_v1(no_, seqs, p_turns::bigint[], p_times::double precision[], p_checksums::bigint[],
                                p_kinds, p_bodies, p_changes);
    UPDATE everturn.sessions n  -- last_seq and version: so that all of it can be reaped
       SET bytes = n.bytes + put.bytes, others = n.others + put.others, seal = NULL,
           last_seq = greatest(n.last_seq, seqs[cardinality(seqs)]), expires_at = at + p_for,
           expires_in = everturn.step_v1(at + p_for)
     WHERE n.no = no_;
    RETURN no_;
END
$$;

-- The bytes of the rows staged under a number, which is locked; NULL if it has gone.
CREATE OR REPLACE FUNCTION everturn.arriving_v1(p_namespace text, p_session_id text, p_no bigint, p_at double precision) RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
    SELECT n.bytes FROM everturn.sessions n
     WHERE n.no = p_no AND n.namespace = p_namespace AND n.session_id = p_session_id AND n.ended AND n.life = ''
       AND n.expires_at > p_at FOR UPDATE
$$;

-- Make a session visible in one step: the rows staged under p_no and these; or, without a number, these rows, added to the
-- session that is there. It must stand at p_onto ({"life", "version", "call"}); NULL: not be there.
CREATE OR REPLACE FUNCTION everturn.restore_v1(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    name text               := p_outline ->> 'session_id';
    now_ everturn.plan_v1   := json_populate_record(NULL::everturn.plan_v1, p_outline -> 'state');
    s    everturn.sessions;
    was  everturn.sessions;
    o    everturn.outcome_v1;
    at   double precision;
    past double precision;  -- the fence
    no_  bigint;
    size bigint;
    put  everturn.reclaimed_v1;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    o := ('applied', p_outline ->> 'life', (p_outline ->> 'version')::bigint, 0, 0, 0, NULL, NULL, NULL, NULL, NULL);
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = name AND NOT n.ended FOR UPDATE;
        at := everturn.now_v1(p_now);
        was := s;
        IF everturn.is_over_v1(s.expires_at, at) THEN
            s := NULL;
        END IF;
        o.told := at;
        past := CASE WHEN s.no IS NULL THEN everturn.fence_v1(p_namespace, name, was) ELSE s.fence END;
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, past, at);
        IF (s.life, s.version, (SELECT g.call FROM everturn.changes g WHERE g.session = s.no AND g.version = s.version))
           IS DISTINCT FROM
           (p_onto ->> 'life', (p_onto ->> 'version')::bigint, decode(p_onto ->> 'call', 'base64')) THEN
            o.status := 'exists';
            o.life := coalesce(s.life, '');
            o.version := coalesce(s.version, 0);
            RETURN o;
        END IF;
        IF p_no IS NOT NULL THEN
            no_ := p_no;
            size := everturn.arriving_v1(p_namespace, name, p_no, at);
            IF size IS NULL THEN
                o.status := 'moved';
                RETURN o;
            END IF;
            s.last_seq := 0;
            s.last_jump := 0;
        ELSIF s.no IS NOT NULL THEN
            no_ := s.no;
            size := s.bytes;
        ELSE
            INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, messages, bytes,
                                           created_at, changed_at, changed_in)
            VALUES (p_namespace, name, true, '', 0, 0, 0, 0, 0, at, at, everturn.step_v1(at)) RETURNING no INTO no_;
            size := 0;
        END IF;
        IF was.no <> no_ THEN
            UPDATE everturn.sessions n SET ended = true, expires_at = NULL, expires_in = NULL, seal = NULL  -- to be reaped now
             WHERE n.no = was.no;
        END IF;
        BEGIN
            UPDATE everturn.sessions n
               SET ended = false, life = o.life, version = o.version, last_seq = (p_outline ->> 'last_seq')::bigint,
                   head = now_.head, cleared = now_.cleared, floor = now_.floor, kept = now_.kept,
                   messages = now_.messages, dimension = (p_outline ->> 'dimension')::integer,
                   ttl = (p_outline ->> 'ttl')::double precision, expires_at = at + p_expires_in,
                   created_at = (p_outline ->> 'created_at')::double precision,
                   changed_at = (p_outline ->> 'changed_at')::double precision, forked_from = p_outline ->> 'forked_from',
                   changed_in = everturn.step_v1((p_outline ->> 'changed_at')::double precision),
                   expires_in = everturn.step_v1(at + p_expires_in), fence = past, seal = NULL
             WHERE n.no = no_;
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            PERFORM everturn.remove_v1(n, 1) FROM everturn.sessions n WHERE n.no = no_ AND p_no IS NULL;
            -- Another worker began it meanwhile: look again.
        END;
    END LOOP;
    PERFORM everturn.bind_lease_v5(p_namespace, name, o.life);
    put := everturn.put_rows_v1(no_, p_seqs::bigint[], p_turns::bigint[], p_times::double precision[],
                                p_checksums::bigint[], p_kinds, p_bodies, p_changes);
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT no_, j.seq, j.after, j.prior, everturn.jump_seal_v1(no_, j.seq, j.after, j.prior)
      FROM (SELECT k.seq, k.after, coalesce(lag(k.seq) OVER (ORDER BY k.seq), s.last_jump, 0) AS prior
              FROM (SELECT (i ->> 0)::bigint AS seq, (i ->> 1)::bigint AS after
                      FROM json_array_elements(p_outline -> 'jumps') AS i) k
             WHERE k.seq > coalesce(s.last_seq, 0)) j;
    DELETE FROM everturn.snapshots n WHERE n.session = no_;
    INSERT INTO everturn.snapshots (session, snapshot_id, label, version, head, cleared, floor, kept, messages, created_at)
    SELECT no_, n ->> 'id', n ->> 'label', (n ->> 'version')::bigint, t.head, t.cleared, t.floor, t.kept, t.messages,
           (n ->> 'created_at')::double precision
      FROM json_array_elements(p_outline -> 'snapshots') AS n
     CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, n -> 'state') AS t;
    DELETE FROM everturn.undo_steps u WHERE u.session = no_;
    INSERT INTO everturn.undo_steps (session, version, kind, moved_to, hidden, head, cleared, floor, kept, messages)
    SELECT no_, (u ->> 'version')::bigint, u ->> 'kind', (u ->> 'moved_to')::bigint, (u ->> 'hidden')::bigint,
           t.head, t.cleared, t.floor, t.kept, t.messages
      FROM json_array_elements(p_outline -> 'undo_steps') AS u
     CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, u -> 'before') AS t;
    UPDATE everturn.sessions n
       SET bytes = size + put.bytes, others = n.others + put.others, seal = NULL,
           snapshots = (SELECT count(*) FROM everturn.snapshots k WHERE k.session = no_),
           undo_steps = (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = no_),
           last_jump = coalesce((SELECT max(j.seq) FROM everturn.jumps j WHERE j.session = no_), 0),
           forgotten = coalesce((SELECT max(g.version) - 1  -- from here on there is a change for every version
                                   FROM (SELECT c.version, lag(c.version) OVER (ORDER BY c.version) AS before
                                           FROM everturn.changes c WHERE c.session = no_) g
                                  WHERE g.version - 1 IS DISTINCT FROM g.before), o.version)
     WHERE n.no = no_;
    RETURN o;
END
$$;

-- Make a session visible that arrives, with its effects, as effect_json_v3 has them, and its facts.
CREATE OR REPLACE FUNCTION everturn.restore_v3(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_effects json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    o everturn.outcome_v1 := everturn.restore_v1(
        p_namespace, p_outline, p_expires_in, p_onto, p_no, p_seqs, p_turns, p_times, p_checksums, p_kinds, p_bodies, p_changes,
        p_patience, p_issued, p_not_after, p_now);
    no_ bigint;
BEGIN
    IF o.status <> 'applied' THEN
        RETURN o;
    END IF;
    SELECT n.no INTO no_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_outline ->> 'session_id' AND NOT n.ended;
    DELETE FROM everturn.effects e WHERE e.session = no_;
    INSERT INTO everturn.effects (session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note)
    SELECT no_, e ->> 'key', e ->> 'status', (e ->> 'attempt')::bigint, (e ->> 'began')::bigint,
           (e ->> 'ended')::bigint, (e ->> 'token')::bigint, e ->> 'by', (e ->> 'at')::double precision,
           (e ->> 'ended_at')::double precision, e ->> 'request', e ->> 'result', e ->> 'error', e ->> 'note'
      FROM json_array_elements(p_effects) AS e;
    UPDATE everturn.effects e SET seal = everturn.effect_seal_v3(e) WHERE e.session = no_;
    PERFORM everturn.link_effects_v5(no_);
    UPDATE everturn.sessions n
       SET facts = nullif((p_outline ->> 'facts')::jsonb, '{}'), seal = NULL,
           effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = no_)
     WHERE n.no = no_;
    RETURN o;
END
$$;

-- Triggers that seal rows, and the view.

-- OF seal: an append, which leaves it, is spared the look at WHEN, which costs as much as a checksum.
CREATE TRIGGER seal BEFORE INSERT OR UPDATE OF seal ON everturn.sessions FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_session_v1();

CREATE TRIGGER note_name AFTER INSERT ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.note_name_v1();

CREATE TRIGGER seal BEFORE INSERT ON everturn.snapshots FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_snapshot_v1();

CREATE TRIGGER seal BEFORE INSERT ON everturn.undo_steps FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_undo_step_v1();

-- The history that a store would read, for people with a SQL prompt:
-- SELECT * FROM everturn.history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW everturn.history AS
SELECT s.namespace, s.session_id, e.seq, e.turn, e.kind, to_timestamp(e.created_at) AS created_at, e.body
  FROM everturn.sessions s
 CROSS JOIN LATERAL everturn.path_v1(s.no) AS path
  JOIN everturn.entries e ON e.session = s.no AND e.seq BETWEEN path.first AND path.last
 WHERE NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(NULL))
   AND (e.seq > s.floor OR e.seq = ANY (s.kept) OR (e.kind = 'summary' AND e.seq > s.cleared));
-- Effects and leases go with their session.

CREATE TRIGGER forget_effects AFTER DELETE ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.forget_effects_v3();
-- The index of facts; and effects that were stored before they were counted.

-- Three triggers, because each WHEN spares the sessions without facts, which nearly all changes are about.
CREATE TRIGGER index_facts AFTER UPDATE OF facts ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS DISTINCT FROM NEW.facts) EXECUTE FUNCTION everturn.index_facts_v4();

CREATE TRIGGER index_new_facts AFTER INSERT ON everturn.sessions FOR EACH ROW
WHEN (NEW.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

CREATE TRIGGER forget_facts AFTER DELETE ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

-- (A session that is damaged stays as it is: the trigger that seals would refuse it, and the migration with it.)
UPDATE everturn.sessions n
   SET effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no), seal = NULL
 WHERE EXISTS (SELECT FROM everturn.effects e WHERE e.session = n.no) AND everturn.is_whole_v1(n);
-- Links between the effects that were stored before there were any. A session that has lost an effect, or has a damaged one, gets none:
-- it begins nothing any more, and says why.
SELECT everturn.link_effects_v5(n.no) FROM everturn.sessions n
 WHERE n.effects > 0 AND NOT n.ended
   AND n.effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no AND e.seal = everturn.effect_seal_v3(e));

-- Functions that no everturn calls any more: those of versions 1 to 3 that later ones replaced.

DROP FUNCTION IF EXISTS
    everturn.effect_of_v3(bigint, text),
    everturn.effect_text_v3(text, everturn.sessions, text, double precision),
    everturn.plan_effect_v3(everturn.sessions, everturn.request_v1),
    everturn.write_effect_v3(everturn.sessions, everturn.request_v1, double precision),
    everturn.leave_tombstone_v1(text, text, double precision),
    everturn.append_v1(text, text[], bytea[], text, text, double precision, text[], text, integer, double precision, text,
                       double precision),
    everturn.change_v1(text, json, text[], integer, double precision),
    everturn.apply_v1(text, everturn.request_v1, text[], double precision),
    everturn.read_v1(text, text, text, text, bigint, bigint, bigint, bigint, boolean, double precision),
    everturn.read_v2(text, text, text, text, bigint, bigint, bigint, bigint, boolean, double precision),
    everturn.window_start_v1(everturn.sessions, everturn.plan_v1, bigint, bigint, bigint, bigint),
    everturn.changes_v1(text, text, bigint, double precision),
    everturn.sessions_by_name_v1(text, text, text, text, double precision, bigint, double precision),
    everturn.sessions_by_change_v1(text, text, text, text, double precision, bigint, double precision),
    everturn.first_entries_v3(bigint, bigint, bigint, bigint, bigint, bigint),
    everturn.summaries_v3(bigint, bigint, bigint, bigint, bigint);

DROP TYPE IF EXISTS everturn.facts_v1;
