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
    path    int8multirange;
    whole   int8multirange;
    trimmed int8multirange;
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
            o.status := 'no_session';
        ELSE
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
            UPDATE everturn.sessions SET ended = true WHERE no = was.no;
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
    path := everturn.path_v1(s.no, p.head);
    whole := everturn.whole_v1(path, p.head, p.cleared, p.floor, p.kept);
    trimmed := everturn.trimmed_v1(path, p.cleared, p.floor);
    INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
    SELECT t.no, e.seq, e.turn, e.created_at, e.checksum, e.kind, e.body
      FROM unnest(whole + trimmed) AS part
      JOIN everturn.entries e ON e.session = s.no AND e.seq >= lower(part) AND e.seq < upper(part)
     WHERE whole @> e.seq OR e.kind = 'summary';
    INSERT INTO everturn.jumps (session, seq, after)
    SELECT t.no, j.seq, j.after FROM everturn.jumps j WHERE j.session = s.no AND j.seq <= p.head;
    UPDATE everturn.sessions n
       SET bytes = (SELECT coalesce(sum(octet_length(e.body)), 0) FROM everturn.entries e WHERE e.session = t.no)
     WHERE n.no = t.no;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content)
    VALUES (t.no, 1, 0, 0, p.head, p.cleared, p.floor, p.messages, at, p.kept, 'fork', r.call, r.key, r.content);
    o.status := 'applied';
    o.life := t.life;
    o.version := 1;
    RETURN o;
END
$$;
