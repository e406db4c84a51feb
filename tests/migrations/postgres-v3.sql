-- Version 3: parts that version 1 has had since its tombstones remember receipts. A schema that was made before that has a version 1
-- without it, and is made like the others here; in a schema that was made since, this changes nothing.
--
--   01-tombstones  receipts of changes that were erased        02-reads     entries of one state, by one query
--   03-front       what a prompt begins with                   99-settings  the settings that every function runs under

-- A tombstone from before has no receipts: retries of changes that were erased until now are refused as late, as they were then.
ALTER TABLE everturn.tombstones ADD COLUMN IF NOT EXISTS calls jsonb NOT NULL DEFAULT '{}';
ALTER TABLE everturn.tombstones ALTER COLUMN calls DROP DEFAULT;

-- Receipts of a session's latest changes, by their call ids: as many as are remembered at least. For its tombstone.
CREATE OR REPLACE FUNCTION everturn.calls_of_v1(s everturn.sessions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(encode(c.call, 'hex'), jsonb_build_array(
               s.life, c.version, c.first_seq, c.count, c.messages, c.created_at)), '{}')
      FROM everturn.changes c WHERE c.session = s.no AND c.version > s.version - 1024
$$;

-- Keep the fence of a session that is not there, and the calls that were erased with it, for as long as requests live.
CREATE OR REPLACE FUNCTION everturn.leave_tombstone_v1(p_namespace text, p_session_id text, p_at double precision, p_calls jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO everturn.tombstones AS t (namespace, digest, fence, until, calls)
    VALUES (p_namespace, everturn.digest_v1(p_session_id), p_at, p_at + 60, p_calls)
        ON CONFLICT (namespace, digest) DO UPDATE
       SET fence = EXCLUDED.fence, until = EXCLUDED.until,
           calls = CASE WHEN t.until > p_at THEN t.calls ELSE '{}' END || EXCLUDED.calls
$$;

-- Let no earlier attempt of a refused retry be applied: the caller is told that it was not.
CREATE OR REPLACE FUNCTION everturn.fence_off_v1(
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

DROP FUNCTION IF EXISTS everturn.leave_tombstone_v1(text, text, double precision);

-- The first receipt of this call or key; NULL if neither is known.
CREATE OR REPLACE FUNCTION everturn.recall_v1(s everturn.sessions, r everturn.request_v1, p_at double precision)
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
CREATE OR REPLACE FUNCTION everturn.recall_erased_v1(p_namespace text, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE sql STABLE AS $$
    SELECT ('replayed', c.made ->> 0, (c.made ->> 1)::bigint, (c.made ->> 2)::bigint, (c.made ->> 3)::bigint, 0,
            r.snapshot_id, r.label, (c.made ->> 4)::bigint, (c.made ->> 5)::double precision, p_at)::everturn.outcome_v1
      FROM (SELECT t.calls -> encode(r.call, 'hex') AS made FROM everturn.tombstones t
             WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(r.session_id)) c
     WHERE c.made IS NOT NULL
$$;

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction.
CREATE OR REPLACE FUNCTION everturn.apply_v1(p_namespace text, r everturn.request_v1, p_bodies text[], p_now double precision)
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

-- One step of a fork. The first (p_no IS NULL) looks at the source, whose row is locked for sharing, so that its state stands
-- still meanwhile; it goes on with a copy of that state that somebody left half done. The last makes the target visible.
-- Status `staged`: the copy with the number `first_seq` has `count` entries to go. `moved`: it has gone, or lacks an entry.
CREATE OR REPLACE FUNCTION everturn.fork_v1(
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

-- Erase every life of a session, but for a living one that is not the one named (NULL: that one too), and remove at most so
-- many of their rows.
CREATE OR REPLACE FUNCTION everturn.erase_v1(
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
-- Reads of the entries of one state: the session, the part of its log that is read, the entries and the facts, by one query.
-- STABLE: everything inside sees the one snapshot of the calling statement.

-- The part of a log that a read shows.
CREATE TYPE everturn.window_v3 AS (
    firsts       bigint[],  -- ranges that are visible whatever their kind, the newest first
    lasts        bigint[],
    size         bigint,    -- how many seqs they hold
    below_firsts bigint[],  -- ranges that a trim hid: there, summaries alone are visible
    below_lasts  bigint[],
    cut          boolean    -- whether the limit left out earlier messages
);

-- The window of a read of any state, found by a look at the log: at jumps, at messages between other entries.
CREATE FUNCTION everturn.window_v3(
    p_session bigint, p_last_jump bigint, p_others bigint, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_kind text, p_after bigint, p_high bigint, p_limit bigint
) RETURNS everturn.window_v3 LANGUAGE plpgsql STABLE AS $$
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
-- Most reads need no look at the log for their window: the path takes no jump there, and all entries are messages, or all are
-- wanted. Every other read asks window_v3. (OFFSET 0: the window is worked out once. One SELECT without settings of its own: the
-- planner makes this a part of the query that calls it.)
CREATE FUNCTION everturn.view_v3(
    p_namespace text, p_session_id text, p_kind text, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_after bigint, p_before bigint, p_limit bigint, p_now double precision
) RETURNS TABLE (no bigint, others bigint, state json, facts json, shown everturn.window_v3) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.no, s.others, json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages), s.facts,
           CASE WHEN p_limit = 0 THEN ROW('{}', '{}', 0, NULL, NULL, false)::everturn.window_v3
                WHEN s.last_jump <= s.low AND s.last_jump <= s.head AND (p_limit IS NULL OR s.others = 0)
                     AND cardinality(s.kept) = 0 AND (p_kind = 'message' OR s.cleared = s.floor)
                THEN ROW(ARRAY[s.low], ARRAY[s.high], greatest(s.high - s.low + 1, 0), NULL, NULL,
                         s.low > greatest(p_after, s.floor) + 1)::everturn.window_v3
                ELSE everturn.window_v3(s.no, s.last_jump, s.others, s.head, s.cleared, s.floor, s.kept, s.messages, p_kind,
                                        p_after, s.high, p_limit) END
      FROM (SELECT t.*, least(p_before - 1, t.head) AS high,
                   greatest(least(p_before - 1, t.head) - p_limit, p_after, t.floor) + 1 AS low
              FROM (SELECT n.no, n.others, n.last_jump, coalesce(p_head, n.head) AS head,
                           coalesce(p_cleared, n.cleared) AS cleared, coalesce(p_floor, n.floor) AS floor,
                           coalesce(p_kept, n.kept) AS kept, coalesce(p_messages, n.messages) AS messages,
                           everturn.facts_v1(n) AS facts
                      FROM everturn.sessions n
                     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n)) AS t) AS s
    OFFSET 0;
END;

-- The entries a query names, newest first (but for summaries that a trim hid, which follow), and behind them one row without a
-- seq, whose body is a JSON array: the status, the session, its state, its snapshots, the first seq that is missing, the number of
-- entries that there must be (NULL: they have been counted here), and whether p_limit left out earlier messages. Whoever finds
-- another number of entries asks again with p_counts, to be told which one is missing.
-- One query, because plpgsql makes every query and expression ready anew in each transaction. force_generic_plan, for all that it
-- calls: else queries over ranges are planned anew each time, which takes far longer than to run them. There is one good plan for
-- them, whatever the ranges are.
CREATE FUNCTION everturn.read_v3(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_counts boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
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
CREATE FUNCTION everturn.missing_v3(p_session bigint, p_shown everturn.window_v3) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN everturn.first_missing_v1(
        p_session, (p_shown.firsts, p_shown.lasts, p_shown.size, 0)::everturn.ranges_v1);
END
$$;
-- Reads of the latest messages and of what a prompt begins with. STABLE: everything inside sees the one snapshot of the calling statement.

-- The p_limit latest messages of a state, newest first. In front of them, the p_summaries latest summaries behind `cleared`, newest first, if a
-- trim or fold hides anything. Behind them, if there are earlier messages, those among the first p_front entries behind the floor, and all
-- that a trim kept. The last row is that of read_v3, with all entries counted.
-- A summary that is lost is missed while a session has no more than a thousand entries that are no messages; above, verify finds it.
CREATE FUNCTION everturn.front_v3(
    p_namespace text, p_session_id text, p_snapshot text, p_version bigint, p_limit bigint, p_front bigint, p_summaries bigint,
    p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       record;
    p       record;             -- the state
    shown   everturn.ranges_v1; -- visible whatever their kind
    kept    bigint[];           -- messages that it left in view
    front   everturn.ranges_v1; -- what a prompt begins with
    counted bigint;             -- messages in `shown`, at most one more than p_limit
    cut     boolean := false;
    handed  bigint;
    missing bigint  := 0;
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
        IF s.others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
            shown := everturn.ranges_v2(s.no, s.last_jump, p.head, p.floor + 1, p.head, p_limit);
            counted := shown.size;
            cut := shown.at > p.floor;
        ELSE
            SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
              FROM everturn.latest_v2(
                       s.no, s.last_jump, p.head, p.floor + 1, p.head, p_limit,
                       p.messages - cardinality(p.kept)) AS l;
            cut := counted > p_limit;
        END IF;
        IF p.floor > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k WHERE k > p.cleared ORDER BY k DESC);
            cut := cut OR cardinality(kept) > p_limit - counted;
        END IF;
        IF cut AND counted > 0 THEN
            front := everturn.first_entries_v3(
                s.no, s.last_jump, p.head, p.floor + 1, shown.firsts[cardinality(shown.firsts)] - 1, p_front);
            shown := (shown.firsts || front.firsts, shown.lasts || front.lasts, shown.size + front.size, 0);
        END IF;
        IF p.cleared < p.floor AND s.others > 0 THEN
            RETURN QUERY SELECT * FROM everturn.summaries_v3(s.no, s.last_jump, p.head, p.cleared + 1, p_summaries);
            IF s.others <= 1000 THEN
                PERFORM everturn.check_others_v1(everturn.session_v1(p_namespace, p_session_id, p_now));
            END IF;
        END IF;
        IF cardinality(kept) > 0 THEN
            shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                    AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e;
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed IS DISTINCT FROM shown.size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
    END IF;
    last.body := convert_to(json_build_array(
        coalesce(p.refusal, 'found'), s.facts,
        CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        NULL, missing, NULL, cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The first p_want seqs of a path from p_low to p_high, as ranges, the last one first.
CREATE FUNCTION everturn.first_entries_v3(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    path   everturn.ranges_v1;
BEGIN
    IF p_last_jump <= p_low AND p_high >= p_low THEN  -- one range
        size := least(p_high - p_low + 1, p_want);
        RETURN (ARRAY[p_low], ARRAY[p_low + size - 1], size, 0)::everturn.ranges_v1;
    END IF;
    path := everturn.ranges_v2(p_session, p_last_jump, p_head, p_low, p_high, NULL);
    FOR at IN REVERSE cardinality(path.firsts) .. 1 LOOP
        EXIT WHEN size = p_want;
        firsts := path.firsts[at] || firsts;
        lasts := least(path.lasts[at], path.firsts[at] + p_want - size - 1) || lasts;
        size := size + lasts[1] - firsts[1] + 1;
    END LOOP;
    RETURN (firsts, lasts, size, 0)::everturn.ranges_v1;
END
$$;

-- The p_want latest summaries on a path from p_low on, the last one first.
CREATE FUNCTION everturn.summaries_v3(p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_want bigint)
RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    path everturn.ranges_v1 := everturn.ranges_v2(p_session, p_last_jump, p_head, p_low, p_head, NULL);
BEGIN
    RETURN QUERY
        SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
               convert_to(e.body, 'UTF8'), e.kind, e.turn
          FROM unnest(path.firsts, path.lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                              WHERE n.session = p_session AND n.kind = 'summary' AND n.kind <> 'message'
                                AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
         LIMIT p_want;
END
$$;
-- Leases: the right to work on a session for a while. The rules are those of core/leases.py.

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

CREATE FUNCTION everturn.lease_seal_v3(
    namespace text, session_id text, life text, token bigint, holder text, until double precision
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to(namespace, 'UTF8'), convert_to(session_id, 'UTF8'), convert_to(life, 'UTF8'),
                     convert_to(holder, 'UTF8')]) || int8send(token) || float8send(until)) FROM 1 FOR 8);

-- Whether a lease is in force, in this life of the session ('': there is none). One that ends later than the longest could was
-- taken before the clock was set back.
CREATE FUNCTION everturn.in_force_v3(l everturn.leases, p_life text, p_at double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((l).life IN ('', p_life) AND (l).until > p_at AND (l).until <= p_at + 86460, false);

-- The lease of a session. Raises if it is not as it was written.
CREATE FUNCTION everturn.lease_of_v3(p_namespace text, p_session_id text) RETURNS everturn.leases LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases;
BEGIN
    SELECT * INTO l FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id;
    IF FOUND AND l.seal <> everturn.lease_seal_v3(l.namespace, l.session_id, l.life, l.token, l.holder, l.until) THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = 'its lease is not as it was written', DETAIL = p_session_id;
    END IF;
    RETURN l;
END
$$;

-- Whether the lease that a change names is in force. The session's row is locked, which keeps a lease from being taken; where there
-- is none, the lease's own row is.
CREATE FUNCTION everturn.is_claimed_v3(
    p_namespace text, s everturn.sessions, r everturn.request_v1, p_at double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases;
BEGIN
    IF s.no IS NULL THEN
        PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = r.session_id FOR SHARE;
    END IF;
    l := everturn.lease_of_v3(p_namespace, r.session_id);
    RETURN everturn.in_force_v3(l, coalesce(s.life, ''), p_at) AND l.token = r.lease_token
           AND l.holder = coalesce(r.lease_holder, l.holder);
END
$$;

CREATE TYPE everturn.lease_outcome_v3 AS (
    status text,
    token  bigint,
    until  double precision,
    left_  double precision,
    told   double precision
);

-- Take, renew or release the lease of a session. It is no change: the version and the expiry stay. The row of the session is locked:
-- changes that are under way come before it, or after it.
CREATE FUNCTION everturn.lease_v3(
    p_namespace text, p_session_id text, p_action text, p_holder text, p_token bigint, p_seconds double precision,
    p_patience integer, p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.lease_outcome_v3 LANGUAGE plpgsql AS $$
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
        PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id FOR UPDATE;
        l := everturn.lease_of_v3(p_namespace, p_session_id);
        at := everturn.now_v1(p_now);  -- after both locks
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, NULL, at);
        IF s.no IS NULL OR everturn.is_over_v1(s.expires_at, at) THEN
            s.life := '';
        END IF;
        held := everturn.in_force_v3(l, s.life, at);
        IF p_action = 'take' THEN
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

-- Erase a session, and its lease with it.
CREATE FUNCTION everturn.erase_v3(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS everturn.erased_v1 LANGUAGE plpgsql AS $$
DECLARE
    erased everturn.erased_v1 := everturn.erase_v1(
        p_namespace, p_session_id, p_life, p_limit, p_patience, p_issued, p_not_after, p_now);
BEGIN
    IF NOT erased.spared THEN
        DELETE FROM everturn.leases l WHERE l.namespace = p_namespace AND l.session_id = p_session_id;
    END IF;
    RETURN erased;
END
$$;

-- One step of reaping, as reap_v1, and some leases that are over, of names that have no session.
CREATE FUNCTION everturn.reap_v3(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
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
-- Effects: things done in the world for a session, begun and ended in it. The rules are those of core/plan_change.py.

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

CREATE FUNCTION everturn.effect_seal_v3(e everturn.effects) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[(e).session, (e).attempt, (e).began, (e).ended, (e).token]) || array_send(ARRAY[(e).at, (e).ended_at])
    || array_send(ARRAY[convert_to((e).key, 'UTF8'), convert_to((e).status, 'UTF8'), convert_to((e).by, 'UTF8'),
                        convert_to((e).request, 'UTF8'), convert_to((e).result, 'UTF8'), convert_to((e).error, 'UTF8'),
                        convert_to((e).note, 'UTF8')])) FROM 1 FOR 8);

-- An effect of a session; NULL if it was never begun. Raises if it is not as it was written.
CREATE FUNCTION everturn.effect_of_v3(p_session bigint, p_key text) RETURNS everturn.effects LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.effect_json_v3(e everturn.effects, p_held bigint) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
SET extra_float_digits = 1 AS $$
    SELECT json_build_object(
        'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'ended', e.ended, 'token', e.token, 'by', e.by,
        'at', e.at, 'ended_at', e.ended_at, 'request', e.request, 'result', e.result, 'error', e.error, 'note', e.note,
        'held', e.token > 0 AND e.token = p_held)
$$;

-- The token of the lease that is held; 0 if none is.
CREATE FUNCTION everturn.held_v3(p_namespace text, s everturn.sessions, p_at double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v3(p_namespace, s.session_id);
BEGIN
    RETURN CASE WHEN everturn.in_force_v3(l, s.life, p_at) THEN l.token ELSE 0 END;
END
$$;

-- The effect that a request is about, for the answer to it; NULL if there is none.
CREATE FUNCTION everturn.effect_text_v3(p_namespace text, s everturn.sessions, p_key text, p_at double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e everturn.effects := everturn.effect_of_v3(s.no, p_key);
BEGIN
    RETURN CASE WHEN e.key IS NOT NULL THEN everturn.effect_json_v3(e, everturn.held_v3(p_namespace, s, p_at))::text END;
END
$$;

-- The plan for a request that begins or ends an effect, or the reason of its refusal. The state stays.
CREATE FUNCTION everturn.plan_effect_v3(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p everturn.plan_v1;
    e everturn.effects := everturn.effect_of_v3(s.no, r.label);
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

-- Write the effect that a change begins or ends. `s` is the session before it.
CREATE FUNCTION everturn.write_effect_v3(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e everturn.effects := everturn.effect_of_v3(s.no, r.label);
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
END
$$;

-- The effects of a session's present life, in the order in which they were begun, as JSON; NULL if there is no session.
CREATE FUNCTION everturn.effects_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql AS $$
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
    held := everturn.held_v3(p_namespace, s, everturn.now_v1(p_now));
    RETURN json_build_object('life', s.life, 'version', s.version, 'effects', coalesce(
        (SELECT json_agg(everturn.effect_json_v3(e, held) ORDER BY e.began, e.key) FROM everturn.effects e
          WHERE e.session = s.no), '[]'));
END
$$;

-- The effects of a session go when its row goes, and so does the lease of that life.
CREATE FUNCTION everturn.forget_effects_v3() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.effects e WHERE e.session = OLD.no;
    DELETE FROM everturn.leases l WHERE l.namespace = OLD.namespace AND l.session_id = OLD.session_id AND l.life = OLD.life;
    RETURN NULL;
END
$$;

CREATE TRIGGER forget_effects AFTER DELETE ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.forget_effects_v3();

-- Everything stored of a session, as verify_v1, and damaged effects.
CREATE FUNCTION everturn.verify_v3(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.verify_v1(p_namespace, p_session_id, p_now);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the effect %s is not as it was written', e.key), NULL::json
          FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e);
END
$$;

-- All of a session's present life but its log and its changes, as outline_v1, and its effects, whose bodies are JSON in it.
CREATE FUNCTION everturn.outline_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    outline json := everturn.outline_v1(p_namespace, p_session_id, p_now);
    no_     bigint;
    told    json;
BEGIN
    IF outline IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT n.no INTO no_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    IF EXISTS (SELECT FROM everturn.effects e
                WHERE e.session = no_ AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e)) THEN
        PERFORM everturn.damaged_v1(no_, 'an effect is not as it was written');
    END IF;
    SELECT json_agg(json_build_object(
               'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'at', e.at, 'by', e.by,
               'ended', e.ended, 'ended_at', e.ended_at, 'token', e.token, 'request', e.request::json,
               'result', e.result::json, 'error', e.error::json, 'note', e.note) ORDER BY e.began, e.key)
      INTO told FROM everturn.effects e WHERE e.session = no_;
    -- As text: jsonb, which could be added to, refuses \u0000.
    RETURN CASE WHEN told IS NULL THEN outline::text
                ELSE left(outline::text, -1) || ', "effects": ' || told::text || '}' END;
END
$$;

-- Make a session visible that arrives, as restore_v1, with its effects, as effect_json_v3 has them: bodies are texts there, because no
-- operator of json takes \u0000.
CREATE FUNCTION everturn.restore_v3(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_effects json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
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
    RETURN o;
END
$$;
-- Changes that name a lease, or begin or end an effect.

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction. `p_bodies`, of p_size bytes, and `p_checksums` are of its entries.
CREATE OR REPLACE FUNCTION everturn.apply_v2(
    p_namespace text, r everturn.request_v1, p_bodies text[], p_checksums bigint[], p_size bigint, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    s     everturn.sessions;
    over  everturn.sessions;  -- a life that has expired
    p     everturn.plan_v1;
    o     everturn.outcome_v1;
    now_  double precision;
    at    double precision;
    first bigint := 0;
BEGIN
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        now_ := everturn.now_v1(p_now);  -- after the lock: however long it was waited for
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
                p := everturn.plan_effect_v3(s, r);
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
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, CASE WHEN r.effect_attempt IS NOT NULL THEN
                        everturn.effect_text_v3(p_namespace, s, r.label, now_) END, NULL, NULL, now_)::everturn.outcome_v1;
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
            UPDATE everturn.leases l SET life = s.life, seal = everturn.lease_seal_v3(
                       l.namespace, l.session_id, s.life, l.token, l.holder, l.until)
             WHERE l.namespace = p_namespace AND l.session_id = r.session_id AND l.life = '';
            EXIT;
        END IF;
        over := NULL;  -- another worker began it meanwhile: look again
    END LOOP;
    IF r.entries > 0 THEN
        first := s.last_seq + 1;
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT s.no, first + e.place - 1, first, at, e.checksum + everturn.place_v1(
                   s.no, first + e.place - 1, first, at, coalesce(e.kind, 'message')),
               coalesce(e.kind, 'message'), e.body
          FROM unnest(p_bodies, p_checksums, r.kinds) WITH ORDINALITY AS e (body, checksum, kind, place);
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
               tally = everturn.grown_v1(t.tally, r.entries, p_size, t.changed_at, at, t.expires_at, at + t.ttl)
         WHERE t.no = s.no;
    ELSE
        PERFORM everturn.write_state_v2(s, r, p, first, p_size, at, now_);
    END IF;
    IF r.effect_attempt IS NOT NULL THEN
        PERFORM everturn.write_effect_v3(s, r, at);
        r.label := everturn.effect_text_v3(p_namespace, s, r.label, now_);
    END IF;
    RETURN ('applied', s.life, s.version + 1, first, r.entries, 0, r.snapshot_id, r.label, p.messages, at, now_)
           ::everturn.outcome_v1;
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
