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
