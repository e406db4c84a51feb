-- Forks: copies of a state of one session into a new one, inside the database, in steps that each are a transaction. The copy
-- is staged under a number of its own until it is whole; one update gives it the target's name. A small one is one step.

-- Begin a fork. The copy has the facts of its source: whoever erases by a fact must find it.
CREATE OR REPLACE FUNCTION everturn.begin_fork_v1(
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
CREATE OR REPLACE FUNCTION everturn.go_on_fork_v1(p_no bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
