-- Every change to a session: was it made before, may it be made (3-plans.sql), and the writing.

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
    told        double precision   -- the server's clock, for whoever asked
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
                    RETURN ('key_reused', s.life, s.version, 0, 0, 0, NULL, NULL, NULL, NULL, p_at)::everturn.outcome_v1;
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

-- Apply one change, or say why not. The session's row is locked from the first look to the end of the transaction.
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
                IF o.status = 'replayed' THEN
                    RETURN o;
                END IF;
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
            RETURN (p.refusal, coalesce(s.life, ''), coalesce(s.version, 0), 0, 0, coalesce(s.dimension, 0),
                    NULL, NULL, NULL, NULL, now_)::everturn.outcome_v1;
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

-- The change that nearly all are, with nothing to look up first: append one turn of messages, without a key or an
-- expectation. Where the session is not there, has expired, its head was moved, or it was changed or fenced since the request
-- was issued, it is a change like any other.
-- `at` is the time of the change: where the conditions hold, the session was changed before.
-- Returns outcome_v1 as text: one value is quicker to plan and to read than a row.
CREATE FUNCTION everturn.append_v1(
    p_namespace text, p_session_id text, p_call bytea, p_ttl double precision, p_bodies text[], p_checksums text,
    p_patience integer, p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    at    double precision := everturn.now_v1(p_now);
    n     bigint           := cardinality(p_bodies);
    size  bigint           := octet_length(array_to_string(p_bodies, ''));
    waits text;
    s     record;
    r     everturn.request_v1;
BEGIN
    waits := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    UPDATE everturn.sessions t
       SET version = t.version + 1, last_seq = t.last_seq + n, head = t.last_seq + n, messages = t.messages + n,
           bytes = t.bytes + size, changed_at = at, expires_at = at + t.ttl, changed_in = everturn.step_v1(at),
           expires_in = everturn.step_v1(at + t.ttl),
           tally = everturn.grown_v1(t.tally, n, size, t.changed_at, at, t.expires_at, at + t.ttl)
     WHERE t.namespace = p_namespace AND t.session_id = p_session_id AND NOT t.ended AND t.head = t.last_seq
       AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at
       AND NOT everturn.is_over_v1(t.expires_at, at)
    RETURNING t.no, t.life, t.version, t.head, t.cleared, t.floor, t.kept, t.messages, t.changed_at,
              everturn.now_v1(p_now) AS told INTO s;
    IF NOT FOUND THEN
        r.session_id := p_session_id;
        r.kind := 'append';
        r.call := p_call;
        r.ttl := p_ttl;
        r.issued := p_issued;
        r.not_after := p_not_after;
        r.entries := n;
        r.messages := n;
        r.checksums := p_checksums;
        RETURN everturn.apply_v1(p_namespace, r, p_bodies, p_now)::text;
    END IF;
    IF s.told > p_not_after THEN  -- a lock that was waited for, too long; the conditions above saw an earlier time
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, NULL, s.told);
    END IF;
    INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
    SELECT s.no, s.head - n + e.place, s.head - n + 1, s.changed_at,
           e.checksum + everturn.place_v1(s.no, s.head - n + e.place, s.head - n + 1, s.changed_at, 'message'),
           'message', e.body
      FROM unnest(p_bodies, p_checksums::bigint[]) WITH ORDINALITY AS e (body, checksum, place);
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, seal)
    VALUES (s.no, s.version, s.head - n + 1, n, s.head, s.cleared, s.floor, s.messages, s.changed_at, s.kept, 'append', p_call,
            everturn.change_seal_v1(s.no, s.version, s.head - n + 1, n, s.head, s.cleared, s.floor, s.messages, s.changed_at,
                                    s.kept, 'append', p_call, NULL, NULL, NULL, NULL));
    RETURN '(applied,' || s.life || ',' || s.version || ',' || s.head - n + 1 || ',' || n || ',0,,,,,' || s.told || ')';
END
$$;

CREATE TYPE everturn.placed_v1 AS (
    place   bigint,
    outcome text    -- outcome_v1
);

-- The same for many different sessions, named in byte order, in one go: rows are written as sets, not one after the other.
-- `p_owners` says for each body whose it is. Those that are no such change are made like any other.
-- Sessions are found one by one, through an index, whatever the planner takes the table for: it keeps the plan it made
-- when there were few, and a join of names would go over all sessions for each batch.
CREATE FUNCTION everturn.append_many_v1(
    p_namespace text, p_session_ids text[], p_calls text[], p_counts text, p_sizes text, p_ttl double precision,
    p_bodies text[], p_checksums text, p_owners text, p_patience integer, p_issued double precision, p_not_after text,
    p_now double precision
) RETURNS SETOF everturn.placed_v1 LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    at       double precision;
    places   bigint[];
    outcomes text[];
    other    record;
    r        everturn.request_v1;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    -- In order, so that two of these never wait for each other in a ring.
    PERFORM FROM everturn.sessions t
      WHERE t.namespace = p_namespace AND t.session_id = ANY (p_session_ids) AND NOT t.ended
      ORDER BY t.session_id FOR UPDATE;
    at := everturn.now_v1(p_now);
    WITH asked AS MATERIALIZED (
        SELECT a.*, (SELECT n.no FROM everturn.sessions n
                      WHERE n.namespace = p_namespace AND n.session_id = a.session_id AND NOT n.ended) AS no
          FROM unnest(p_session_ids, p_calls, p_counts::bigint[], p_sizes::bigint[], p_not_after::double precision[])
               WITH ORDINALITY AS a (session_id, call, count, size, not_after, place)
    ), written AS (
        UPDATE everturn.sessions t
           SET version = t.version + 1, last_seq = t.last_seq + a.count, head = t.last_seq + a.count,
               messages = t.messages + a.count, bytes = t.bytes + a.size, changed_at = at, expires_at = at + t.ttl,
               changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
               tally = everturn.grown_v1(t.tally, a.count, a.size, t.changed_at, at, t.expires_at, at + t.ttl)
          FROM asked a
         WHERE t.no = a.no AND t.head = t.last_seq AND NOT everturn.is_over_v1(t.expires_at, at)
           AND t.changed_at < p_issued AND NOT everturn.is_late_v1(p_issued, a.not_after, t.fence, at)
        RETURNING a.place, a.call, a.count, t.head - a.count + 1 AS first, t.*
    ), turns AS (
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT q.no, q.seq, q.first, q.changed_at,
               q.checksum + everturn.place_v1(q.no, q.seq, q.first, q.changed_at, 'message'), 'message', q.body
          FROM (SELECT w.no, w.first + row_number() OVER (PARTITION BY w.no ORDER BY b.place) - 1 AS seq, w.first,
                       w.changed_at, b.checksum, b.body
                  FROM written w
                  JOIN unnest(p_bodies, p_checksums::bigint[], p_owners::bigint[]) WITH ORDINALITY
                       AS b (body, checksum, owner, place) ON b.owner = w.place) q
    ), records AS (
        INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at,
                                      kept, kind, call, seal)
        SELECT w.no, w.version, w.first, w.count, w.head, w.cleared, w.floor, w.messages, w.changed_at,
               w.kept, 'append', decode(w.call, 'hex'), everturn.change_seal_v1(
                   w.no, w.version, w.first, w.count, w.head, w.cleared, w.floor, w.messages, w.changed_at,
                   w.kept, 'append', decode(w.call, 'hex'), NULL, NULL, NULL, NULL)
          FROM written w
    )
    SELECT coalesce(array_agg(w.place), '{}'),
           array_agg('(applied,' || w.life || ',' || w.version || ',' || w.first || ',' || w.count || ',0,,,,,' || at || ')')
      INTO places, outcomes FROM written w;
    RETURN QUERY SELECT * FROM unnest(places, outcomes);
    FOR other IN
        SELECT a.session_id, a.call, a.not_after, a.place, array_agg(b.body ORDER BY b.place) AS bodies,
               array_agg(b.checksum ORDER BY b.place) AS checksums
          FROM unnest(p_session_ids, p_calls, p_not_after::double precision[]) WITH ORDINALITY
               AS a (session_id, call, not_after, place)
          JOIN unnest(p_bodies, p_checksums::bigint[], p_owners::bigint[]) WITH ORDINALITY
               AS b (body, checksum, owner, place) ON b.owner = a.place
         WHERE a.place <> ALL (places)
         GROUP BY a.session_id, a.call, a.not_after, a.place
         ORDER BY a.place
    LOOP
        r.session_id := other.session_id;
        r.kind := 'append';
        r.call := decode(other.call, 'hex');
        r.ttl := p_ttl;
        r.issued := p_issued;
        r.not_after := other.not_after;
        r.entries := cardinality(other.bodies);
        r.messages := r.entries;
        r.checksums := other.checksums;
        RETURN NEXT (other.place, everturn.apply_v1(p_namespace, r, other.bodies, p_now)::text)::everturn.placed_v1;
    END LOOP;
END
$$;
