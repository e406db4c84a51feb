-- The latest messages, and what a prompt begins with. STABLE: all of it is of the one snapshot of the calling statement.

-- The latest p_limit messages of a state, as read_v2 gives them; and in front of them, if there are earlier ones, those that a trim kept
-- and those among the first p_front entries behind the floor, in any order, some of them perhaps a second time. In front of all: the
-- p_summaries latest summaries behind `cleared`, if a trim or fold hides anything. A summary that is lost is missed while a session
-- has no more than a thousand entries that are no messages; behind that, verify finds it.
CREATE FUNCTION everturn.front_v3(
    p_namespace text, p_session_id text, p_snapshot text, p_version bigint, p_limit bigint, p_front bigint, p_summaries bigint,
    p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s      record;
    p      record;              -- the state
    path   everturn.ranges_v1;  -- newest first
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    at     bigint;
    size   bigint := 0;
    handed bigint;
BEGIN
    SELECT n.no, n.last_jump, n.others, n.head, n.cleared, n.floor, n.kept, n.messages, NULL AS refusal
      INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    p := s;
    IF s.no IS NOT NULL AND (p_snapshot IS NOT NULL OR p_version IS NOT NULL) THEN
        p := everturn.state_v1(everturn.session_v1(p_namespace, p_session_id, p_now), p_snapshot, p_version);
    END IF;
    IF p.refusal IS NULL AND p.cleared < p.floor AND s.others > 0 THEN
        path := everturn.ranges_v2(s.no, s.last_jump, p.head, p.cleared + 1, p.head, NULL);
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(path.firsts, path.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.kind = 'summary' AND n.kind <> 'message'
                                    AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
             LIMIT p_summaries;
        IF s.others <= 1000 THEN
            PERFORM everturn.check_others_v1(everturn.session_v1(p_namespace, p_session_id, p_now));
        END IF;
    END IF;
    IF p.refusal IS NULL AND p.messages > p_limit THEN
        path := everturn.ranges_v2(s.no, s.last_jump, p.head, p.floor + 1, p.head, NULL);
        at := cardinality(path.firsts);
        WHILE at > 0 AND size < p_front LOOP
            firsts := firsts || path.firsts[at];
            lasts := lasts || least(path.lasts[at], path.firsts[at] + p_front - size - 1);
            size := size + lasts[cardinality(lasts)] - path.firsts[at] + 1;
            at := at - 1;
        END LOOP;
        path := (firsts || p.kept, lasts || p.kept, size + cardinality(p.kept), 0)::everturn.ranges_v1;
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(path.firsts, path.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                    AND n.kind = 'message' OFFSET 0) AS e;
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed < path.size AND everturn.first_missing_v1(s.no, path) > 0 THEN
            PERFORM everturn.damaged_v1(
                s.no, format('the entry at seq %s is lost or damaged', everturn.first_missing_v1(s.no, path)));
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM everturn.read_v2(
        p_namespace, p_session_id, 'message', p_snapshot, p_version, 0, NULL, p_limit, false, p_now);
END
$$;
