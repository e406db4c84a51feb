-- Copies a state of one session into a new one, inside the database. The target's name is taken by the unique index; the
-- source's row is locked for sharing, so that its state stands still meanwhile.

CREATE FUNCTION everturn.fork_v1(
    p_namespace text, p_source text, p_snapshot text, p_version bigint, p_request json, p_patience integer,
    p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    r       everturn.request_v1 := json_populate_record(NULL::everturn.request_v1, p_request);
    t       everturn.sessions;
    was     everturn.sessions;
    s       everturn.sessions;
    p       everturn.plan_v1;
    o       everturn.outcome_v1;
    at      double precision;
    fence   double precision;
    path    everturn.ranges_v1;
    whole   everturn.ranges_v1;
    hidden  everturn.ranges_v1;
    size    bigint;
    others_ bigint;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    o.first_seq := 0;
    o.count := 0;
    o.detail := 0;
    LOOP
        SELECT * INTO t FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        at := everturn.now_v1(p_now);
        was := t;
        o.told := at;
        fence := everturn.fence_v1(p_namespace, r.session_id, was);
        IF t.no IS NOT NULL AND NOT everturn.is_over_v1(t.expires_at, at) THEN
            PERFORM everturn.refuse_late_v1(r.issued, r.not_after, t.fence, at);
            o := everturn.recall_v1(t, r, at);
            IF o.status IS NULL THEN
                o := ('exists', t.life, t.version, 0, 0, 0, NULL, NULL, NULL, NULL, at)::everturn.outcome_v1;
            END IF;
            IF r.retry AND o.status <> 'replayed' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, t.no, at);
            END IF;
            RETURN o;
        END IF;
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_source AND NOT n.ended FOR SHARE;
        at := everturn.now_v1(p_now);  -- after both locks
        PERFORM everturn.refuse_late_v1(r.issued, r.not_after, fence, at);
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
        IF was.no IS NOT NULL THEN
            UPDATE everturn.sessions SET ended = true, seal = NULL WHERE no = was.no;
        END IF;
        INSERT INTO everturn.sessions (namespace, session_id, life, version, last_seq, head, cleared, floor, kept, messages,
                                       bytes, dimension, ttl, expires_at, created_at, changed_at, forked_from,
                                       changed_in, expires_in, fence)
        VALUES (p_namespace, r.session_id, everturn.life_v1(r.call), 1, p.head, p.head, p.cleared, p.floor, p.kept, p.messages,
                0, s.dimension, r.ttl, at + r.ttl, at, at, p_source, everturn.step_v1(at), everturn.step_v1(at + r.ttl),
                fence)
            ON CONFLICT (namespace, session_id) WHERE NOT ended DO NOTHING
        RETURNING * INTO t;
        EXIT WHEN t.no IS NOT NULL;
    END LOOP;
    path := everturn.ranges_v1(s, p.head, 1, p.head, NULL);
    whole := everturn.ranges_v1(s, p.head, p.floor + 1, p.head, NULL);
    hidden := everturn.ranges_v1(s, p.head, p.cleared + 1, p.floor, NULL);
    WITH written AS (
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT t.no, e.seq, e.turn, e.created_at,
               everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)
               + everturn.place_v1(t.no, e.seq, e.turn, e.created_at, e.kind), e.kind, e.body
          FROM (SELECT q.first, q.last, false AS is_hidden
                  FROM unnest(whole.firsts || p.kept, whole.lasts || p.kept) AS q (first, last)
                UNION ALL
                SELECT q.first, q.last, true FROM unnest(hidden.firsts, hidden.lasts) AS q (first, last)) AS part
         CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                              WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                AND (NOT part.is_hidden OR n.kind = 'summary') OFFSET 0) AS e
        RETURNING octet_length(body) AS bytes, kind
    )
    SELECT coalesce(sum(w.bytes), 0), count(*) FILTER (WHERE w.kind <> 'message') INTO size, others_ FROM written w;
    -- The jumps on the way, and no others: each but the first range begins with one.
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT t.no, j.seq, j.after, j.prior, everturn.jump_seal_v1(t.no, j.seq, j.after, j.prior)
      FROM (SELECT k.first AS seq, coalesce(lead(k.last) OVER way, 0) AS after,
                   CASE WHEN lead(k.first) OVER way > 1 THEN lead(k.first) OVER way ELSE 0 END AS prior
              FROM unnest(path.firsts, path.lasts) WITH ORDINALITY AS k (first, last, place)
            WINDOW way AS (ORDER BY k.place)) j
     WHERE j.seq > 1;
    UPDATE everturn.sessions n
       SET bytes = size, others = others_, seal = NULL,
           last_jump = CASE WHEN path.firsts[1] > 1 THEN path.firsts[1] ELSE 0 END
     WHERE n.no = t.no;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, seal)
    VALUES (t.no, 1, 0, 0, p.head, p.cleared, p.floor, p.messages, at, p.kept, 'fork', r.call, r.key, r.content,
            everturn.change_seal_v1(t.no, 1, 0, 0, p.head, p.cleared, p.floor, p.messages, at, p.kept, 'fork', r.call, r.key,
                                    r.content, NULL, NULL));
    o.status := 'applied';
    o.life := t.life;
    o.version := 1;
    RETURN o;
END
$$;
