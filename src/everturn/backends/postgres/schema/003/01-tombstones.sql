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
