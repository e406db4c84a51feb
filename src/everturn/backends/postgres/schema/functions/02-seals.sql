-- Seals, by which damage is noticed: a checksum over every small row, a mark over the place of every entry, and a second list of
-- the names. Reads look at them. So does a change, before it writes a row anew: else it would seal a damaged one. (A plain append
-- need not look: it adds to a sum, and a sum that was wrong stays wrong.)
-- SHA-256 and sums, because PostgreSQL's own hashes differ between architectures, and a dump must be readable on any.
-- STABLE, as convert_to is: else these functions could not be inlined.

-- Raise that something stored is not as it was written: SQLSTATE EVT01, which errors.py turns into CorruptEntry.
CREATE OR REPLACE FUNCTION everturn.damaged_v1(p_session bigint, p_what text) RETURNS void LANGUAGE plpgsql STABLE AS $$
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
CREATE OR REPLACE FUNCTION everturn.lost_change_v5(p_session bigint, p_version bigint) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM everturn.damaged_v1(p_session, format('the change that made version %s is lost or damaged', p_version));
END
$$;

-- Raise if a change is not as it was written. (By its number: no function takes a row of a table that can be partitioned.)
CREATE OR REPLACE FUNCTION everturn.check_change_v5(p_session bigint, p_version bigint) RETURNS void LANGUAGE plpgsql STABLE AS $$
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
CREATE OR REPLACE FUNCTION everturn.check_session_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT everturn.is_whole_v1(s) THEN
        PERFORM everturn.damaged_v1(s.no, 'its row in the table sessions is not as it was written');
    END IF;
END
$$;

-- Raise if a session that is not there should be: its name is known, and the row that it names is lost, or not as it was
-- written. (One that has ended, and waits to be reaped, is.)
CREATE OR REPLACE FUNCTION everturn.check_absent_v1(p_namespace text, p_session_id text) RETURNS void LANGUAGE plpgsql STABLE AS $$
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
CREATE OR REPLACE FUNCTION everturn.seal_session_v1() RETURNS trigger LANGUAGE plpgsql AS $$
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
CREATE OR REPLACE FUNCTION everturn.note_name_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO everturn.names (namespace, session_id, no) VALUES (NEW.namespace, NEW.session_id, NEW.no);
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION everturn.seal_snapshot_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seal := everturn.snapshot_seal_v1(NEW);
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION everturn.seal_undo_step_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seal := everturn.undo_seal_v1(NEW);
    RETURN NEW;
END
$$;
