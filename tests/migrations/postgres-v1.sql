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
-- Paths: the entries that a head shows, as ranges of seqs. This is `path` of core/paths.py in SQL, and the answers that the
-- Reader of core/plan_change.py gives. A path is walked from the head down, one index lookup a range, no further than asked for.
-- STABLE: called by a read, these functions see the snapshot of the read. plpgsql where SQL could not be inlined: it keeps plans.

-- Ranges of seqs, the newest first.
CREATE TYPE everturn.ranges_v1 AS (
    firsts bigint[],
    lasts  bigint[],
    size   bigint,  -- how many seqs they hold
    at     bigint   -- the seq at which the path goes on below them
);

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, until they hold p_want seqs
-- (NULL: all). Every jump names the one before it in the log, and the session the last: one that is lost is noticed.
CREATE FUNCTION everturn.ranges_v1(s everturn.sessions, p_head bigint, p_low bigint, p_high bigint, p_want bigint)
RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';  -- variables of their own: to the field of a row, appending would copy all there are
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    no     bigint   := s.no;
    link   bigint   := s.last_jump;  -- no jump lies between this one and the seqs above
    jump   record;
BEGIN
    IF p_high < p_low THEN
        at := 0;
    END IF;
    WHILE at >= p_low AND (p_want IS NULL OR size < p_want) LOOP
        IF link > at THEN  -- others lie between, of branches that this path does not take
            SELECT j.seq, j.after, j.prior, j.seal INTO jump
              FROM everturn.jumps j WHERE j.session = no AND j.seq > at ORDER BY j.seq LIMIT 1;
            IF jump.seq IS NULL OR jump.prior > at
               OR jump.seal <> everturn.jump_seal_v1(no, jump.seq, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(no, format('a jump after seq %s is lost or damaged', at));
            END IF;
            link := jump.prior;
        END IF;
        IF link = 0 THEN  -- the first range of the log begins without a jump
            firsts := firsts || p_low;
            lasts := lasts || least(at, p_high);
            size := size + least(at, p_high) - p_low + 1;
            at := 0;
            EXIT;
        END IF;
        -- Jump by jump, as long as each range is followed by the one before it in the log.
        FOR jump IN SELECT j.seq, j.after, j.prior, j.seal FROM everturn.jumps j
                     WHERE j.session = no AND j.seq <= link ORDER BY j.seq DESC
        LOOP
            IF jump.seq <> link OR jump.after >= link
               OR jump.seal <> everturn.jump_seal_v1(no, link, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(no, format('the jump at seq %s is lost or damaged', link));
            END IF;
            IF link <= p_high THEN
                firsts := firsts || greatest(link, p_low);
                lasts := lasts || least(at, p_high);
                size := size + least(at, p_high) - greatest(link, p_low) + 1;
            END IF;
            at := jump.after;
            link := jump.prior;
            EXIT WHEN at < p_low OR link > at OR link = 0 OR size >= p_want;
        END LOOP;
        IF NOT FOUND THEN
            PERFORM everturn.damaged_v1(no, format('the jump at seq %s is lost or damaged', link));
        END IF;
    END LOOP;
    RETURN (firsts, lasts, size, at)::everturn.ranges_v1;
END
$$;

-- Whether an entry is on the path that ends at p_head.
CREATE FUNCTION everturn.on_path_v1(s everturn.sessions, p_head bigint, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN p_seq > 0 AND (everturn.ranges_v1(s, p_head, p_seq, p_seq, 1)).size = 1;
END
$$;

-- The number of messages in these ranges. (LATERAL and OFFSET 0, here and elsewhere: each range is looked up by itself, in the
-- primary key, whatever the planner takes the tables for.)
CREATE FUNCTION everturn.messages_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT count(*)
              FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                  WHERE e.session = p_session AND e.seq BETWEEN part.first AND part.last
                                    AND e.kind = 'message' OFFSET 0) AS e);
END
$$;

-- Whether a trim that left this state hid summaries, which it still shows.
CREATE FUNCTION everturn.has_hidden_summaries_v1(s everturn.sessions) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    r everturn.ranges_v1 := everturn.ranges_v1(s, s.head, s.cleared + 1, s.floor, NULL);
BEGIN
    RETURN EXISTS (SELECT FROM unnest(r.firsts, r.lasts) AS part (first, last)
                    CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                         WHERE e.session = s.no AND e.kind = 'summary' AND e.kind <> 'message'
                                           AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- The ranges of the path to a session's head, for people with a SQL prompt: the view `history`.
CREATE FUNCTION everturn.path_v1(p_session bigint) RETURNS TABLE (first bigint, last bigint)
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    s everturn.sessions;
    r everturn.ranges_v1;
BEGIN
    SELECT * INTO s FROM everturn.sessions n WHERE n.no = p_session;
    r := everturn.ranges_v1(s, s.head, 1, s.head, NULL);
    RETURN QUERY SELECT * FROM unnest(r.firsts, r.lasts);
END
$$;

-- Whether the session has expired by a time.
CREATE FUNCTION everturn.is_over_v1(expires_at double precision, at_time double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN expires_at IS NOT NULL AND expires_at <= at_time;

-- A time in steps of five minutes, for the indexes of `sessions`: whatever writes a time there writes its step beside it.
CREATE FUNCTION everturn.step_v1(at_time double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN floor(at_time / 300)::bigint;

-- The server's clock, unless a time is given (tests bring their own).
CREATE FUNCTION everturn.now_v1(given double precision) RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, date_part('epoch', clock_timestamp()));  -- extract makes a numeric of it, on the way

-- A life is named after the call that began it.
CREATE FUNCTION everturn.life_v1(call bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substring(call FROM 1 FOR 8), 'hex');
-- Seals, by which damage is noticed: a checksum over every small row, a mark over the place of every entry, and a second list of
-- the names. Reads look at them. So does a change, before it writes a row anew: else it would seal a damaged one. (A plain append
-- need not look: it adds to a sum, and a sum that was wrong stays wrong.)
-- SHA-256 and sums, because PostgreSQL's own hashes differ between architectures, and a dump must be readable on any.
-- STABLE, as convert_to is: else these functions could not be inlined.

-- Raise that something stored is not as it was written: SQLSTATE EVT01, which errors.py turns into CorruptEntry.
CREATE FUNCTION everturn.damaged_v1(p_session bigint, p_what text) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    name text := coalesce((SELECT n.session_id FROM everturn.sessions n WHERE n.no = p_session), '');
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = p_what, DETAIL = name;
END
$$;

-- A number for the kind of an entry, 0 for a message.
CREATE FUNCTION everturn.kind_v1(kind text) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN kind = 'message' THEN 0
            ELSE 1 + get_byte(sha256(convert_to(kind, 'UTF8')), 0) * 256 + get_byte(sha256(convert_to(kind, 'UTF8')), 1) END;

-- The mark of an entry's place and kind, in the bits above its checksum.
CREATE FUNCTION everturn.place_v1(session bigint, seq bigint, turn bigint, created_at double precision, kind text)
RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN (session % 2147483647 * 40503 + seq % 2147483647 * 69621 + turn % 2147483647 * 16807 + everturn.kind_v1(kind)
        + (least(greatest(created_at, 0), 1e10) * 1e6)::bigint) % 2147483629 * 4294967296;

-- Whether an entry is where it was written.
CREATE FUNCTION everturn.is_placed_v1(
    session bigint, seq bigint, turn bigint, created_at double precision, kind text, checksum bigint
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN checksum - checksum % 4294967296 = everturn.place_v1(session, seq, turn, created_at, kind);

-- The checksum of an entry's body; -1, which no body has, where the entry is not where it was written.
CREATE FUNCTION everturn.checksum_v1(
    session bigint, seq bigint, turn bigint, created_at double precision, kind text, checksum bigint
) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN everturn.is_placed_v1(session, seq, turn, created_at, kind, checksum) THEN checksum % 4294967296 ELSE -1 END;

CREATE FUNCTION everturn.jump_seal_v1(session bigint, seq bigint, after bigint, prior bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (session % 2147483647 * 40503 + seq % 2147483647 * 69621 + after % 2147483647 * 16807 + prior % 2147483647 * 48271)
       % 2147483629;

-- The seal of a change. Arrays, because record_send looks up the type of every column each time. The texts are left out where
-- it is a plain append, which has none: the planner sees that, and leaves them out of append_v1.
CREATE FUNCTION everturn.change_seal_v1(
    session bigint, version bigint, first_seq bigint, count bigint, head bigint, cleared bigint, floor bigint, messages bigint,
    created_at double precision, kept bigint[], kind text, call bytea, key bytea, content bytea, snapshot_id text, label text
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[session, version, first_seq, count, head, cleared, floor, messages]) || array_send(kept)
    || float8send(created_at) || call || CASE
        WHEN kind = 'append' AND key IS NULL AND content IS NULL AND snapshot_id IS NULL AND label IS NULL THEN ''
        ELSE array_send(ARRAY[convert_to(kind, 'UTF8'), key, content, convert_to(snapshot_id, 'UTF8'),
                              convert_to(label, 'UTF8')]) END) FROM 1 FOR 8);

-- The seal of a session: over the columns that a plain append leaves as they are.
CREATE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])) FROM 1 FOR 8);

-- A time in microseconds, within bounds also where it was damaged; 1 for none.
CREATE FUNCTION everturn.ticks_v1(at_time double precision) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((least(greatest(at_time, 0), 1e10) * 1e6)::bigint, 1);

-- The sum over the columns that an append changes. Sums are equal that are equal modulo 1099511627689, a prime.
CREATE FUNCTION everturn.tally_v1(
    version bigint, last_seq bigint, head bigint, messages bigint, bytes bigint, changed_at double precision,
    expires_at double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN version % 1099511627689 * 40503 + last_seq % 1099511627689 * 69621 + head % 1099511627689 * 16807
       + messages % 1099511627689 * 48271 + bytes % 1099511627689 * 39373
       + everturn.ticks_v1(changed_at) * 31 + everturn.ticks_v1(expires_at) * 37;

-- The sum of a session that a plain append has grown by so many messages and bytes: the old sum, and the differences. A row
-- that was damaged before stays so, though nobody looked.
CREATE FUNCTION everturn.grown_v1(
    tally bigint, messages bigint, bytes bigint, changed_from double precision, changed_to double precision,
    expires_from double precision, expires_to double precision
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (tally % 1099511627689 + 40503 + messages * (69621 + 16807 + 48271) + bytes * 39373
        + (everturn.ticks_v1(changed_to) - everturn.ticks_v1(changed_from)) * 31
        + (everturn.ticks_v1(expires_to) - everturn.ticks_v1(expires_from)) * 37) % 1099511627689;

-- Whether a session's row is as it was written. (CASE: steps are made of times only once these are known to be right.)
CREATE FUNCTION everturn.is_whole_v1(s everturn.sessions) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN (s).seal = everturn.session_seal_v1(s)
             AND ((s).tally % 1099511627689 - everturn.tally_v1(
                     (s).version, (s).last_seq, (s).head, (s).messages, (s).bytes, (s).changed_at, (s).expires_at))
                 % 1099511627689 = 0
            THEN ((s).changed_in, (s).expires_in)
                 IS NOT DISTINCT FROM (everturn.step_v1((s).changed_at), everturn.step_v1((s).expires_at))
            ELSE false END;

CREATE FUNCTION everturn.snapshot_seal_v1(n everturn.snapshots) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(record_send(ROW(
    (n).session, convert_to((n).snapshot_id, 'UTF8'), convert_to((n).label, 'UTF8'), (n).version, (n).head, (n).cleared,
    (n).floor, (n).kept, (n).messages, (n).created_at))) FROM 1 FOR 8);

CREATE FUNCTION everturn.undo_seal_v1(u everturn.undo_steps) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(record_send(ROW(
    (u).session, (u).version, convert_to((u).kind, 'UTF8'), (u).moved_to, (u).hidden, (u).head, (u).cleared, (u).floor,
    (u).kept, (u).messages))) FROM 1 FOR 8);

-- Raise if a session's row is not as it was written.
CREATE FUNCTION everturn.check_session_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT everturn.is_whole_v1(s) THEN
        PERFORM everturn.damaged_v1(s.no, 'its row in the table sessions is not as it was written');
    END IF;
END
$$;

-- Raise if a session that is not there should be: its name is known, and the row that it names is lost, or not as it was
-- written. (One that has ended, and waits to be reaped, is.)
CREATE FUNCTION everturn.check_absent_v1(p_namespace text, p_session_id text) RETURNS void LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.seal_session_v1() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.note_name_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO everturn.names (namespace, session_id, no) VALUES (NEW.namespace, NEW.session_id, NEW.no);
    RETURN NULL;
END
$$;

CREATE FUNCTION everturn.seal_snapshot_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seal := everturn.snapshot_seal_v1(NEW);
    RETURN NEW;
END
$$;

CREATE FUNCTION everturn.seal_undo_step_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seal := everturn.undo_seal_v1(NEW);
    RETURN NEW;
END
$$;

-- OF seal: an append, which leaves it, is spared the look at WHEN, which costs as much as a checksum.
CREATE TRIGGER seal BEFORE INSERT OR UPDATE OF seal ON everturn.sessions FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_session_v1();
CREATE TRIGGER note_name AFTER INSERT ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.note_name_v1();
CREATE TRIGGER seal BEFORE INSERT ON everturn.snapshots FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_snapshot_v1();
CREATE TRIGGER seal BEFORE INSERT ON everturn.undo_steps FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_undo_step_v1();
-- Plans: the rules that a change must pass, and the state it leads to. A plan reads and decides; 06-changes.sql writes.
-- This is core/plan_change.py in SQL, case by case: read it against that text, and change both together.

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

-- The plan for a request on a session (s.no IS NULL: there is none), or the reason of its refusal.
CREATE FUNCTION everturn.plan_v1(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p    everturn.plan_v1;
    step everturn.undo_steps;
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
            p.kept := ARRAY(SELECT seq FROM unnest(s.kept) AS seq WHERE seq <= r.after ORDER BY seq);
            p.messages := s.messages - cardinality(s.kept) + cardinality(p.kept) - everturn.messages_v1(
                s.no, everturn.ranges_v1(s, s.head, greatest(r.after, s.floor) + 1, s.head, NULL));
            -- The floor never lies past the head: else it would hide entries that are appended there in a fork.
            p.head := r.after;
            p.cleared := least(r.after, s.cleared);
            p.floor := least(r.after, s.floor);
        ELSIF r.entries = 0 THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := r.after IS NOT NULL;
        p.messages := p.messages + r.messages;
        IF r.entries > 0 THEN
            IF p.head <> coalesce(s.last_seq, 0) THEN
                p.follows := p.head;
            END IF;
            p.head := coalesce(s.last_seq, 0) + r.entries;
        END IF;
    WHEN 'trim' THEN
        IF s.no IS NULL OR r.floor IS NULL THEN
            p.refusal := 'unchanged';
        ELSIF (s.life, s.cleared, s.floor, s.kept)
              IS DISTINCT FROM (r.seen_life, r.seen_cleared, r.seen_floor, r.seen_kept)
              OR (s.head <> r.seen_head AND NOT everturn.on_path_v1(s, s.head, r.seen_head)) THEN
            p.refusal := 'moved';
        ELSE
            p.floor := r.floor;
            p.kept := r.kept;
            p.messages := s.messages - r.hidden;
            p.undoable := true;
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
            p.refusal := 'no_snapshot';
        END IF;
    WHEN 'rollback' THEN
        p := everturn.state_v1(s, r.snapshot_id, NULL);
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
        ELSIF step.kind IN ('trim', 'clear') THEN
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
-- Late requests: those that must not be applied, and the fences that tell. docs/decisions/020-late-requests.md says why.
-- Each request carries two moments on this server's clock: when it was issued, and after which its caller is gone.

-- Whether a request must not be applied: its caller has gone, or it was issued before a fence. A fence ahead of the clock
-- was set before the clock was set back, and so was a request that is issued ahead of it.
CREATE FUNCTION everturn.is_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_at > p_not_after OR p_issued > p_at OR coalesce(p_issued < p_fence AND p_fence <= p_at, false);

-- Undo the whole statement, and say so, if a request must not be applied. For statements of one request.
CREATE FUNCTION everturn.refuse_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF everturn.is_late_v1(p_issued, p_not_after, p_fence, p_at) THEN
        RAISE EXCEPTION 'the request came too late' USING ERRCODE = 'EVLAT', DETAIL = p_at::text;
    END IF;
END
$$;

CREATE FUNCTION everturn.digest_v1(p_session_id text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(convert_to(p_session_id, 'UTF8'));

-- Receipts of a session's latest changes, by their call ids: as many as are remembered at least. For its tombstone.
CREATE FUNCTION everturn.calls_of_v1(s everturn.sessions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(encode(c.call, 'hex'), jsonb_build_array(
               s.life, c.version, c.first_seq, c.count, c.messages, c.created_at)), '{}')
      FROM everturn.changes c WHERE c.session = s.no AND c.version > s.version - 1024
$$;

-- Keep the fence of a session that is not there, and the calls that were erased with it, for as long as requests live.
CREATE FUNCTION everturn.leave_tombstone_v1(p_namespace text, p_session_id text, p_at double precision, p_calls jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO everturn.tombstones AS t (namespace, digest, fence, until, calls)
    VALUES (p_namespace, everturn.digest_v1(p_session_id), p_at, p_at + 60, p_calls)
        ON CONFLICT (namespace, digest) DO UPDATE
       SET fence = EXCLUDED.fence, until = EXCLUDED.until,
           calls = CASE WHEN t.until > p_at THEN t.calls ELSE '{}' END || EXCLUDED.calls
$$;

-- The fence of a session that is not there. `p_was` is its life that expired, if any: what was issued before its latest
-- change belongs to that life.
CREATE FUNCTION everturn.fence_v1(p_namespace text, p_session_id text, p_was everturn.sessions) RETURNS double precision
LANGUAGE sql STABLE AS $$
    SELECT greatest(p_was.fence, p_was.changed_at, (
        SELECT t.fence FROM everturn.tombstones t
         WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(p_session_id)))
$$;

-- Let no earlier attempt of a refused retry be applied: the caller is told that it was not.
CREATE FUNCTION everturn.fence_off_v1(
    p_namespace text, p_session_id text, p_session bigint, p_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_session IS NULL THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, p_at, '{}');
    ELSE
        UPDATE everturn.sessions SET fence = p_at WHERE no = p_session;
    END IF;
END
$$;

-- The version that a call made; NULL if it made none. A first attempt looks only among changes made since it was issued:
-- its retry may have overtaken it, or the network may have sent it twice.
CREATE FUNCTION everturn.version_of_v1(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    g record;
BEGIN
    IF NOT coalesce(r.retry, false) AND s.changed_at < r.issued THEN
        RETURN NULL;
    END IF;
    FOR g IN SELECT c.version, c.call, c.created_at FROM everturn.changes c WHERE c.session = s.no ORDER BY c.version DESC LOOP
        IF g.call = r.call THEN
            RETURN g.version;
        ELSIF NOT coalesce(r.retry, false) AND g.created_at < r.issued THEN
            RETURN NULL;
        ELSIF g.version <= s.version - 2048 AND (g.created_at < p_at - 3600 OR g.created_at > p_at) THEN
            RETURN NULL;  -- older than any call; or made before the clock was set back, and then there may be many
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
-- Changes: find an earlier attempt, plan (04-plans.sql), write. The rows written are those of `Plan` in core/plan_change.py.

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

-- The first receipt of this call or key; NULL if neither is known.
CREATE FUNCTION everturn.recall_v1(s everturn.sessions, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    c    everturn.changes;
    made bigint := everturn.version_of_v1(s, r, p_at);
BEGIN
    IF made IS NOT NULL THEN
        SELECT * INTO c FROM everturn.changes g WHERE g.session = s.no AND g.version = made;
    ELSIF r.key IS NOT NULL THEN
        FOR c IN SELECT * FROM everturn.changes g WHERE g.session = s.no AND g.key = r.key ORDER BY g.version DESC LOOP
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
CREATE FUNCTION everturn.recall_erased_v1(p_namespace text, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE sql STABLE AS $$
    SELECT ('replayed', c.made ->> 0, (c.made ->> 1)::bigint, (c.made ->> 2)::bigint, (c.made ->> 3)::bigint, 0,
            r.snapshot_id, r.label, (c.made ->> 4)::bigint, (c.made ->> 5)::double precision, p_at)::everturn.outcome_v1
      FROM (SELECT t.calls -> encode(r.call, 'hex') AS made FROM everturn.tombstones t
             WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(r.session_id)) c
     WHERE c.made IS NOT NULL
$$;

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction.
CREATE FUNCTION everturn.apply_v1(p_namespace text, r everturn.request_v1, p_bodies text[], p_now double precision)
RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    s     everturn.sessions;
    was   everturn.sessions;
    p     everturn.plan_v1;
    o     everturn.outcome_v1;
    now_  double precision;
    at    double precision;
    fence double precision;
    first bigint;
    size  bigint;
BEGIN
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        now_ := everturn.now_v1(p_now);  -- after the lock: however long it was waited for
        was := s;
        IF everturn.is_over_v1(s.expires_at, now_) THEN
            s := NULL;
        END IF;
        at := greatest(now_, s.changed_at);  -- a clock that was set back does not make a session younger
        fence := CASE WHEN s.no IS NULL THEN everturn.fence_v1(p_namespace, r.session_id, was) ELSE s.fence END;
        o := NULL;
        IF everturn.is_late_v1(r.issued, r.not_after, fence, now_) THEN
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
            ELSE
                p := everturn.plan_v1(s, r);
            END IF;
        END IF;
        IF p.refusal IS NOT NULL THEN
            IF r.retry AND p.refusal <> 'late' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, s.no, now_);
            END IF;
            -- A key that was used before is refused with the first receipt, any other request with the present version.
            RETURN (p.refusal, coalesce(s.life, ''), coalesce(o.version, s.version, 0), coalesce(o.first_seq, 0),
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, NULL, NULL, NULL, now_)::everturn.outcome_v1;
        END IF;
        EXIT WHEN s.no IS NOT NULL;
        IF was.no IS NOT NULL THEN
            UPDATE everturn.sessions SET ended = true, seal = NULL WHERE no = was.no;
        END IF;
        INSERT INTO everturn.sessions (namespace, session_id, life, version, last_seq, head, messages, bytes, ttl,
                                       created_at, changed_at, changed_in, fence)
        VALUES (p_namespace, r.session_id, everturn.life_v1(r.call), 0, 0, 0, 0, 0, r.ttl, at, at, everturn.step_v1(at),
                fence)
            ON CONFLICT (namespace, session_id) WHERE NOT ended DO NOTHING
        RETURNING * INTO s;
        EXIT WHEN s.no IS NOT NULL;  -- else another worker began it meanwhile: look again
    END LOOP;
    was := s;
    r.entries := coalesce(r.entries, 0);
    first := CASE WHEN r.entries > 0 THEN s.last_seq + 1 ELSE 0 END;
    SELECT coalesce(sum(octet_length(body)), 0) INTO size FROM unnest(p_bodies) AS body;
    s.version := s.version + 1;
    s.last_seq := s.last_seq + r.entries;
    s.head := p.head;
    s.cleared := p.cleared;
    s.floor := p.floor;
    s.kept := p.kept;
    s.messages := p.messages;
    s.dimension := coalesce(s.dimension, r.dimension);
    IF r.kind = 'ttl' THEN
        s.ttl := r.seconds;
    END IF;
    s.changed_at := at;
    s.others := s.others + r.entries - coalesce(r.messages, 0);
    s.snapshots := s.snapshots + CASE r.kind WHEN 'snapshot' THEN 1 WHEN 'delete_snapshot' THEN -1 ELSE 0 END;
    s.undo_steps := CASE WHEN p.undoable THEN least(s.undo_steps + 1, 10) WHEN p.undone IS NULL THEN s.undo_steps
                         ELSE s.undo_steps - 1 END;
    s.last_jump := CASE WHEN p.follows IS NULL THEN s.last_jump ELSE first END;
    IF r.kind IN ('rollback', 'undo') OR r.after <> was.head THEN
        s.fence := now_;
    END IF;
    UPDATE everturn.sessions
       SET version = s.version, last_seq = s.last_seq, head = s.head, cleared = s.cleared, floor = s.floor,
           kept = s.kept, messages = s.messages, bytes = s.bytes + size, dimension = s.dimension,
           others = s.others, snapshots = s.snapshots, undo_steps = s.undo_steps, last_jump = s.last_jump, seal = NULL,
           ttl = s.ttl, expires_at = at + s.ttl, changed_at = at,
           changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + s.ttl), fence = s.fence
     WHERE no = s.no;
    IF r.entries > 0 THEN
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT s.no, first + e.place - 1, first, at, e.checksum + everturn.place_v1(
                   s.no, first + e.place - 1, first, at, coalesce(e.kind, 'message')),
               coalesce(e.kind, 'message'), e.body
          FROM unnest(p_bodies, r.checksums, r.kinds) WITH ORDINALITY AS e (body, checksum, kind, place);
    END IF;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, snapshot_id, label, seal)
    VALUES (s.no, s.version, first, r.entries, s.head, s.cleared, s.floor, s.messages, at, s.kept,
            r.kind, r.call, r.key, r.content, r.snapshot_id, r.label, everturn.change_seal_v1(
                s.no, s.version, first, r.entries, s.head, s.cleared, s.floor, s.messages, at, s.kept,
                r.kind, r.call, r.key, r.content, r.snapshot_id, r.label));
    IF p.follows IS NOT NULL THEN
        INSERT INTO everturn.jumps (session, seq, after, prior, seal)
        VALUES (s.no, first, p.follows, was.last_jump, everturn.jump_seal_v1(s.no, first, p.follows, was.last_jump));
    END IF;
    IF p.undoable THEN
        INSERT INTO everturn.undo_steps (session, version, kind, moved_to, hidden, head, cleared, floor, kept, messages)
        VALUES (s.no, s.version, r.kind, s.head, was.messages - s.messages,
                was.head, was.cleared, was.floor, was.kept, was.messages);
        DELETE FROM everturn.undo_steps u
         WHERE u.session = s.no AND u.version <= (
            SELECT k.version FROM everturn.undo_steps k WHERE k.session = s.no ORDER BY k.version DESC OFFSET 10 LIMIT 1);
    ELSIF p.undone IS NOT NULL THEN
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no AND u.version = p.undone;
    ELSIF r.kind = 'snapshot' THEN
        INSERT INTO everturn.snapshots (session, snapshot_id, label, version, head, cleared, floor, kept, messages, created_at)
        VALUES (s.no, r.snapshot_id, r.label, s.version, s.head, s.cleared, s.floor, s.kept, s.messages, at);
    ELSIF r.kind = 'delete_snapshot' THEN
        DELETE FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id;
    END IF;
    RETURN ('applied', s.life, s.version, first, r.entries, 0, r.snapshot_id, r.label, s.messages, at, now_)
           ::everturn.outcome_v1;
END
$$;

-- Apply changes, each all or nothing, and commit them together. `p_bodies` are those of all their entries, in order; no
-- lock is waited for longer than `p_patience` milliseconds. An error (there is none by design) undoes them all.
CREATE FUNCTION everturn.change_v1(
    p_namespace text, p_requests json, p_bodies text[], p_patience integer, p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    r     everturn.request_v1;
    taken integer := 0;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    FOR r IN SELECT * FROM json_populate_recordset(NULL::everturn.request_v1, p_requests) LOOP
        RETURN NEXT everturn.apply_v1(p_namespace, r, p_bodies[taken + 1 : taken + r.entries], p_now);
        taken := taken + coalesce(r.entries, 0);
    END LOOP;
END
$$;
-- Appends: the change that nearly all are. Turns of messages for different sessions, without a key or an expectation.
-- It repeats the case `Append` of core/plan_change.py, where the head is the last entry of the log: nothing is looked up first.

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

-- Append a turn to each of these sessions, which are named in byte order: so two calls never wait for each other in a ring.
-- The arrays `p_calls`, `p_counts` (of entries), `p_sizes` (bytes of their bodies) and `p_not_after` have an element for each
-- session; `p_bodies` and `p_checksums` have one for each entry, in order. Returns the outcomes in the order of the sessions.
-- Each turn is all or nothing, and all commit together. No lock is waited for longer than `p_patience` milliseconds.
--
-- A session that is not there, has expired, whose head was moved, or that was changed or fenced since the request was issued,
-- takes the general way (apply_v1). `at` is the time of the change: where the conditions hold, the session was changed before.
CREATE FUNCTION everturn.append_v1(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_counts text, p_sizes text, p_ttl double precision,
    p_bodies text[], p_checksums text, p_patience integer, p_issued double precision, p_not_after text,
    p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    counts    bigint[]           := p_counts;
    sizes     bigint[]           := p_sizes;
    checksums bigint[]           := p_checksums;
    not_after double precision[] := p_not_after;
    waits     text               := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    taken     bigint             := 0;  -- bodies of the turns before this one
    at        double precision;
    s         record;
    r         everturn.request_v1;
    turns     everturn.turn_v1[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(p_session_ids) LOOP
        at := everturn.now_v1(p_now);
        UPDATE everturn.sessions t
           SET version = t.version + 1, last_seq = t.last_seq + counts[i], head = t.last_seq + counts[i],
               messages = t.messages + counts[i], bytes = t.bytes + sizes[i], changed_at = at, expires_at = at + t.ttl,
               changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
               tally = everturn.grown_v1(t.tally, counts[i], sizes[i], t.changed_at, at, t.expires_at, at + t.ttl)
         WHERE t.namespace = p_namespace AND t.session_id = p_session_ids[i] AND NOT t.ended AND t.head = t.last_seq
           AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at AND at <= not_after[i]
           AND NOT everturn.is_over_v1(t.expires_at, at)
        RETURNING (t.no, t.version, t.head - counts[i] + 1, counts[i], t.head, t.cleared, t.floor, t.messages, at, t.kept,
                   p_calls[i], taken)::everturn.turn_v1 AS turn, t.life, t.version, t.head - counts[i] + 1 AS first,
                  everturn.now_v1(p_now) AS told INTO s;
        IF FOUND THEN
            IF s.told > not_after[i] THEN  -- a lock that was waited for, too long; the conditions above saw an earlier time
                PERFORM everturn.refuse_late_v1(p_issued, not_after[i], NULL, s.told);
            END IF;
            turns := turns || s.turn;
            RETURN NEXT ('applied', s.life, s.version, s.first, counts[i], 0, NULL, NULL, NULL, NULL, s.told)
                        ::everturn.outcome_v1;
        ELSE
            r.session_id := p_session_ids[i];
            r.kind := 'append';
            r.call := p_calls[i];
            r.ttl := p_ttl;
            r.issued := p_issued;
            r.not_after := not_after[i];
            r.entries := counts[i];
            r.messages := counts[i];
            r.checksums := checksums[taken + 1 : taken + counts[i]];
            RETURN NEXT everturn.apply_v1(p_namespace, r, p_bodies[taken + 1 : taken + counts[i]], p_now);
        END IF;
        taken := taken + counts[i];
    END LOOP;
    -- The rows of all turns in two statements, whatever their number.
    INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
    SELECT w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, e.checksum + everturn.place_v1(
               w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, 'message'), 'message', e.body
      FROM unnest(turns) AS w
     CROSS JOIN LATERAL unnest(p_bodies[w.before + 1 : w.before + w.count], checksums[w.before + 1 : w.before + w.count])
           WITH ORDINALITY AS e (body, checksum, place);
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept, kind,
                                  call, seal)
    SELECT w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept, 'append',
           w.call, everturn.change_seal_v1(
               w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
               'append', w.call, NULL, NULL, NULL, NULL)
      FROM unnest(turns) AS w;
END
$$;
-- Reads of one session. STABLE, which here means: everything inside sees the one snapshot of the calling statement, so all
-- rows of an answer are of one moment.

-- The facts of a session (model.SessionInfo), as a JSON array.
CREATE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from);

-- The facts of a session and the state it is in, as JSON; NULL if there is none. It takes half the
-- time of a read_v1 without entries.
CREATE FUNCTION everturn.glance_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.session_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS everturn.sessions
LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.snapshots_v1(s everturn.sessions) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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
CREATE FUNCTION everturn.state_v1(s everturn.sessions, p_snapshot text, p_version bigint) RETURNS everturn.plan_v1
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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
            PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost or damaged', p_version));
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

CREATE TYPE everturn.row_v1 AS (
    seq        bigint,
    created_at double precision,
    checksum   bigint,
    body       bytea,
    kind       text,
    turn       bigint
);

-- The entries a query names, in order, and behind them one row without a seq whose body is a JSON object: their
-- session and state, and the first seq that is missing. The path is walked no further down than the query reaches.
-- force_generic_plan, for all that it calls: else queries over ranges are planned anew each time, which takes three times as
-- long as running them for the latest 20. There is one good plan for them, whatever the ranges are.
CREATE FUNCTION everturn.read_v1(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    p       everturn.plan_v1;
    shown   everturn.ranges_v1;                       -- visible whatever their kind
    hidden  everturn.ranges_v1 := ('{}', '{}', 0, 0);  -- where summaries alone are visible: what a trim hid
    kept    bigint[];
    low     bigint;
    high    bigint;
    start   bigint;
    handed  bigint;
    missing bigint := 0;
    last    everturn.row_v1;
BEGIN
    IF s.no IS NULL THEN
        last.body := convert_to('{"status":"no_session"}', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := everturn.state_v1(s, p_snapshot, p_version);
    IF p.refusal IS NULL AND p_limit IS DISTINCT FROM 0 THEN
        low := greatest(p_after, p.floor) + 1;
        high := least(p_before - 1, p.head);
        IF p_limit IS NOT NULL THEN
            start := everturn.window_start_v1(s, p, low, high, p_after, p_limit);
            low := greatest(low, start);
        END IF;
        shown := everturn.ranges_v1(s, p.head, low, high, NULL);
        IF cardinality(p.kept) > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k
                           WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, high) AND k >= coalesce(start, 1));
            shown.firsts := shown.firsts || kept;
            shown.lasts := shown.lasts || kept;
            shown.size := shown.size + cardinality(kept);
        END IF;
        IF (p_kind IS NULL OR p_kind = 'summary') AND p.cleared < p.floor THEN
            hidden := everturn.ranges_v1(
                s, p.head, greatest(p_after + 1, p.cleared + 1, start), least(p.floor, high), NULL);
        END IF;
        IF p_kind = 'message' AND cardinality(shown.firsts) = 1 THEN  -- the common case
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM everturn.entries e
                 WHERE e.session = s.no AND e.seq BETWEEN shown.firsts[1] AND shown.lasts[1] AND e.kind = 'message'
                 ORDER BY e.seq;
        ELSIF p_kind = 'message' THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND n.kind = 'message' OFFSET 0) AS e
                 ORDER BY e.seq;
        ELSIF p_kind IS NOT NULL THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM unnest(shown.firsts || hidden.firsts, shown.lasts || hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = p_kind AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                 ORDER BY e.seq;
        ELSE
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                UNION ALL
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(hidden.firsts, hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = 'summary' AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                 ORDER BY seq;
        END IF;
        GET DIAGNOSTICS handed = ROW_COUNT;
        -- Of messages alone, counting was enough to see that none is missing.
        IF p_kind IS DISTINCT FROM 'message' OR handed <> shown.size THEN
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
        IF hidden.size > 0 AND missing = 0 THEN
            PERFORM everturn.check_others_v1(s);
        END IF;
    END IF;
    last.body := convert_to(json_build_object(
        'status', coalesce(p.refusal, 'found'), 'facts', everturn.facts_v1(s),
        'state', CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        'snapshots', CASE WHEN p_snapshots THEN everturn.snapshots_v1(s) END,
        'first_missing', missing, 'cut', start IS NOT NULL)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The seq of the latest visible message but `p_limit` - 1; NULL if there are no more than `p_limit`.
CREATE FUNCTION everturn.window_start_v1(
    s everturn.sessions, p everturn.plan_v1, p_low bigint, p_high bigint, p_after bigint, p_limit bigint
) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    want bigint := p_limit + 1;
    r    everturn.ranges_v1;
    seqs bigint[];
BEGIN
    LOOP
        r := everturn.ranges_v1(s, p.head, p_low, p_high, want);
        seqs := ARRAY(
            SELECT e.seq FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last AND n.kind = 'message'
                                  ORDER BY n.seq DESC LIMIT p_limit + 1) AS e
             ORDER BY e.seq DESC LIMIT p_limit + 1);
        EXIT WHEN cardinality(seqs) > p_limit OR r.at < p_low;
        want := want * 2;  -- many of them are no messages
    END LOOP;
    IF cardinality(seqs) <= p_limit AND cardinality(p.kept) > 0 THEN
        seqs := seqs || ARRAY(SELECT k FROM unnest(p.kept) AS k
                               WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, p_high) ORDER BY k DESC);
    END IF;
    RETURN CASE WHEN cardinality(seqs) > p_limit THEN seqs[p_limit] END;
END
$$;

-- The first of these seqs that has no entry, or one that is not where it was written; 0 if all have one.
CREATE FUNCTION everturn.first_missing_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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
CREATE FUNCTION everturn.check_others_v1(s everturn.sessions) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
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
CREATE FUNCTION everturn.changes_v1(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
RETURNS TABLE (version bigint, kind text, first_seq bigint, count bigint, created_at double precision,
               snapshot_id text, label text)
LANGUAGE plpgsql STABLE AS $$
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
        RETURN QUERY SELECT g.version, g.kind, g.first_seq, g.count, g.created_at, g.snapshot_id, g.label;
    END LOOP;
    IF next > s.forgotten AND s.version - next < p_limit THEN
        PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost', next));
    END IF;
END
$$;
-- Reads across sessions: pages of them, and text search.

CREATE TYPE everturn.facts_v1 AS (
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
    forked_from text
);

-- A page in byte order of the names. Sessions whose row is lost or hidden are on it as well, without facts: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE FUNCTION everturn.sessions_by_name_v1(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_since double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.facts_v1 LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
               s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
          FROM everturn.sessions s
         WHERE s.namespace = p_namespace AND NOT s.ended AND s.session_id > p_past AND s.session_id >= p_prefix
           AND (p_beyond IS NULL OR s.session_id < p_beyond)
           AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) AND s.changed_at >= p_since
         ORDER BY s.session_id LIMIT p_limit)
    SELECT * FROM page
    UNION ALL
    SELECT DISTINCT k.session_id, '', 0, 0, 0, 0, 0, 0, 0.0::float8, 0.0::float8, NULL::float8, NULL::float8, NULL
      FROM everturn.names k LEFT JOIN everturn.sessions s ON s.no = k.no
     WHERE p_since = 0 AND k.namespace = p_namespace AND k.session_id > p_past AND k.session_id >= p_prefix
       AND (p_beyond IS NULL OR k.session_id < p_beyond)
       AND ((SELECT count(*) FROM page) < p_limit OR k.session_id <= (SELECT max(page.session_id) FROM page))
       AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace
            OR ((s.ended OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))) AND NOT everturn.is_whole_v1(s)))
     ORDER BY session_id
$$;

-- A page with the latest changed first: five minutes from the index at a time, sorted.
CREATE FUNCTION everturn.sessions_by_change_v1(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_before double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.facts_v1 LANGUAGE sql STABLE AS $$
    SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
           s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from
      FROM everturn.sessions s
     WHERE s.namespace = p_namespace AND NOT s.ended AND (s.changed_at, s.session_id) < (p_before, p_past)
       AND s.session_id >= p_prefix AND (p_beyond IS NULL OR s.session_id < p_beyond)
       AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))
       AND s.changed_in <= everturn.step_v1(least(p_before, 1e15))
     ORDER BY s.changed_in DESC, s.changed_at DESC, s.session_id DESC LIMIT p_limit
$$;

-- A time before which no change is still under way: a change that commits after this call has a later one.
CREATE FUNCTION everturn.began_v1(p_now double precision) RETURNS double precision
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce(p_now, least(everturn.now_v1(NULL), (
        SELECT extract(epoch FROM min(a.xact_start))::double precision FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend')));
END
$$;

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

-- Visible entries whose body is like the pattern, newest first, before (p_session, p_seq): at most p_limit of them.
-- ILIKE on a column that is COLLATE "C" folds the ASCII letters and no others, as core/text_search.py does.
-- Session by session, and down the path of each as far as there are matches, past what is not on it.
CREATE FUNCTION everturn.find_v1(
    p_namespace text, p_session_id text, p_pattern text, p_session bigint, p_seq bigint, p_limit integer,
    p_now double precision
) RETURNS SETOF everturn.match_v1 LANGUAGE plpgsql STABLE AS $$
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
        END LOOP;
        EXIT WHEN p_session_id IS NOT NULL;
    END LOOP;
END
$$;
-- Forks: copies of a state of one session into a new one, inside the database, in steps that each are a transaction. The copy
-- is staged under a number of its own until it is whole; one update gives it the target's name. A small one is one step.

-- Stage the copy of a state: its row, its path, and the entries below the floor that a trim left. Returns its number.
CREATE FUNCTION everturn.begin_fork_v1(
    s everturn.sessions, p everturn.plan_v1, p_target text, p_until double precision, p_at double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    no_    bigint;
    path   everturn.ranges_v1 := everturn.ranges_v1(s, p.head, 1, p.head, NULL);
    whole  everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.floor + 1, p.head, NULL);
    hidden everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.cleared + 1, p.floor, NULL);
BEGIN
    INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept, messages,
                                   bytes, dimension, expires_at, created_at, changed_at, forked_from, changed_in, expires_in,
                                   last_jump)
    VALUES (s.namespace, p_target, true, '', 1, p.head, p.head, p.cleared, p.floor, p.kept, p.messages,
            0, s.dimension, p_until, p_at, p_at, s.session_id, everturn.step_v1(p_at), everturn.step_v1(p_until),
            CASE WHEN path.firsts[1] > 1 THEN path.firsts[1] ELSE 0 END)
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
CREATE FUNCTION everturn.copy_entries_v1(
    p_source bigint, p_no bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean
) RETURNS bigint LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.go_on_fork_v1(p_no bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.fork_v1(
    p_namespace text, p_source text, p_snapshot text, p_version bigint, p_request json, p_no bigint, p_limit bigint,
    p_for double precision, p_patience integer, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
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

CREATE TYPE everturn.reclaimed_v1 AS (
    sessions bigint,
    entries  bigint,
    bytes    bigint,
    others   bigint,  -- of the entries, those that are no messages
    looked   bigint,  -- at so many rows: as many as were allowed means that more may be left
    last     bigint   -- of changes: the last version that was looked at
);

-- Every state a session can return to, with its name for people.
CREATE FUNCTION everturn.roots_v1(p_session bigint)
RETURNS TABLE (head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint, name text)
LANGUAGE sql STABLE AS $$
    SELECT s.head, s.cleared, s.floor, s.kept, s.messages, 'the head' FROM everturn.sessions s WHERE s.no = p_session
    UNION ALL
    SELECT n.head, n.cleared, n.floor, n.kept, n.messages, 'snapshot ' || n.snapshot_id
      FROM everturn.snapshots n WHERE n.session = p_session
    UNION ALL
    SELECT u.head, u.cleared, u.floor, u.kept, u.messages, 'the undo step of version ' || u.version
      FROM everturn.undo_steps u WHERE u.session = p_session
$$;

-- Delete some entries: at most p_limit (NULL: all) of those in these ranges, summaries only if told so.
CREATE FUNCTION everturn.reclaim_v1(p_session bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.forget_changes_v1(p_session bigint, p_beyond bigint, p_to bigint, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.check_undo_steps_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.drop_undo_v1(
    p_namespace text, p_session_id text, p_patience integer, p_issued double precision, p_not_after double precision,
    p_now double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.survey_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
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

CREATE TYPE everturn.work_v1 AS (
    unreadable    bigint[],  -- versions whose states show entries that will be reclaimed
    firsts        bigint[],  -- ranges of entries that no root shows
    lasts         bigint[],
    summaries     boolean,   -- whether summaries go as well
    jumps         bigint[],  -- on the way to nothing, in order
    forget_to     bigint,    -- the version up to which changes can no longer be read
    forget_beyond bigint     -- and beyond which they are deleted (NULL: not yet)
);

-- One step of compacting a session, of at most p_limit rows. No state shows the rows that it names, now or later (survey_v1).
CREATE FUNCTION everturn.compact_v1(
    p_namespace text, p_session_id text, p_no bigint, p_step json, p_limit bigint, p_patience integer, p_now double precision
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
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

CREATE TYPE everturn.removed_v1 AS (
    entries   bigint,
    bytes     bigint,
    snapshots bigint,
    is_gone   boolean  -- with its last row
);

-- One step of removing a session that ended: at most so many of its rows, and its own when no other is left. Entries and
-- changes go from the newest on; `last_seq` and `version` say where the next step begins: none looks at rows that are gone.
CREATE FUNCTION everturn.remove_v1(s everturn.sessions, p_limit bigint) RETURNS everturn.removed_v1 LANGUAGE plpgsql AS $$
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
-- at the same time take different sessions. One that is arriving (14-transfer.sql), or that somebody is erasing, is left alone
-- until it expires.
CREATE FUNCTION everturn.reap_v1(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1
LANGUAGE plpgsql AS $$
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

CREATE TYPE everturn.erased_v1 AS (
    entries   bigint,
    snapshots bigint,
    bytes     bigint,
    xid       xid,              -- of the transaction that did it
    spared    boolean,          -- another life than the one named lives there
    told      double precision, -- the server's clock
    left_over boolean           -- rows are left, which nobody can read; erase_more_v1 removes them
);

-- End a session that is to be erased, damaged or not: from here on nobody finds it. All its rows can be removed, though
-- it may not know how many they are; others leave them for a minute to the caller that erases it, and counts them.
CREATE FUNCTION everturn.end_erased_v1(s everturn.sessions, p_at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.sessions n WHERE n.no = s.no;
    DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
    s.ended := true;
    s.life := '-';
    s.version := 9223372036854775807;
    s.last_seq := 9223372036854775807;
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
CREATE FUNCTION everturn.erase_v1(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
)
RETURNS everturn.erased_v1 LANGUAGE plpgsql AS $$
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
    fence := greatest(fence, everturn.fence_v1(p_namespace, p_session_id, NULL));
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

-- The next step: remove rows of lives of a session that were erased, or expired, at most so many.
CREATE FUNCTION everturn.erase_more_v1(p_namespace text, p_session_id text, p_limit bigint) RETURNS everturn.erased_v1
LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.is_still_seen_v1(p_xid xid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                      AND a.backend_type = 'client backend' AND age(a.backend_xmin) >= age(p_xid))
$$;
-- Verification: everything stored of one session, seen at one moment. _shared/verification.py judges it.

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

CREATE FUNCTION everturn.verify_v1(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
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

-- Rows of a session that are lost, or not as they were written; and the seq, where one is known.
CREATE FUNCTION everturn.wrong_v1(s everturn.sessions) RETURNS TABLE (seq bigint, what text)
LANGUAGE plpgsql STABLE AS $$
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

-- Numbers of sessions that do not exist, though there are rows of them. (Those that still have a name are verified by it.)
CREATE FUNCTION everturn.orphans_v1() RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
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
END
$$;

-- The history that a store would read, for people with a SQL prompt:
-- SELECT * FROM everturn.history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW everturn.history AS
SELECT s.namespace, s.session_id, e.seq, e.turn, e.kind, to_timestamp(e.created_at) AS created_at, e.body
  FROM everturn.sessions s
 CROSS JOIN LATERAL everturn.path_v1(s.no) AS path
  JOIN everturn.entries e ON e.session = s.no AND e.seq BETWEEN path.first AND path.last
 WHERE NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(NULL))
   AND (e.seq > s.floor OR e.seq = ANY (s.kept) OR (e.kind = 'summary' AND e.seq > s.cleared));
-- Transfer: sessions in and out of the database, for copies between backends. JSON here is the exported form, as it is
-- (docs/storage.md).
--
-- A session that arrives is staged under a number of its own: a row of `sessions` that is `ended` and has no life ('').
-- One update makes it visible. Left alone, it is reaped when it expires.

CREATE FUNCTION everturn.state_json_v1(head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN json_build_object('head', head, 'cleared', cleared, 'floor', floor, 'kept', kept, 'messages', messages);

-- All of a session's present life but its log and its changes; NULL if there is none.
CREATE FUNCTION everturn.outline_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
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

-- Changes of a session, in order, as a JSON array. Raises if one is lost or damaged.
CREATE FUNCTION everturn.changes_json_v1(s everturn.sessions, p_after bigint, p_last bigint, p_limit bigint) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
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
CREATE FUNCTION everturn.portion_v1(
    p_namespace text, p_session_id text, p_life text, p_after_seq bigint, p_last_seq bigint, p_after_version bigint,
    p_last_version bigint, p_entries bigint, p_changes bigint, p_bytes bigint, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.put_rows_v1(
    p_session bigint, p_seqs bigint[], p_turns bigint[], p_times double precision[], p_checksums bigint[], p_kinds text[],
    p_bodies text[], p_changes json
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.stage_v1(
    p_namespace text, p_session_id text, p_version bigint, p_no bigint, p_for double precision, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
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
CREATE FUNCTION everturn.arriving_v1(p_namespace text, p_session_id text, p_no bigint, p_at double precision) RETURNS bigint
LANGUAGE sql AS $$
    SELECT n.bytes FROM everturn.sessions n
     WHERE n.no = p_no AND n.namespace = p_namespace AND n.session_id = p_session_id AND n.ended AND n.life = ''
       AND n.expires_at > p_at FOR UPDATE
$$;

-- Make a session visible in one step: the rows staged under p_no and these; or, without a number, these rows, added to the
-- session that is there. It must stand at p_onto ({"life", "version", "call"}); NULL: not be there.
CREATE FUNCTION everturn.restore_v1(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
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
-- Settings that every function here runs under, whoever calls it: set in one place, so that none is forgotten.
--
-- search_path: names in a function are looked up in pg_catalog alone (ours are qualified). Else a role that may create in
-- `public` has its own functions and operators called, as us. (Bodies after RETURN are parsed when they are created, under
-- the search_path of the migration, and inlined: they need no pin.)
-- enable_*: each table is read by an index, whatever the planner takes it for: before the first ANALYZE it takes a table of
-- 300,000 rows for a small one, and reads and sorts it whole for the latest 20. jit: what costs much by such a guess.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = (SELECT c.relnamespace FROM pg_class c WHERE c.oid = 'everturn.sessions'::regclass)
                AND p.prosqlbody IS NULL
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', f);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', f);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', f);
    END LOOP;
END
$$;
