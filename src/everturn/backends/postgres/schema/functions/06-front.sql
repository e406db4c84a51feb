-- Reads of the latest messages and of what a prompt begins with. STABLE: everything inside sees the one snapshot of the calling
-- statement.

-- The p_limit latest messages of a state, newest first. In front of them, the p_summaries latest summaries behind `cleared`, newest first, if a
-- trim or fold hides anything. Behind them, if there are earlier messages, those among the first p_front entries behind the floor, and all
-- that a trim kept. The last row is that of read_v3, with all entries counted.
-- A summary that is lost is missed while a session has no more than a thousand entries that are no messages; above, verify finds it.
CREATE OR REPLACE FUNCTION everturn.front_v3(
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
            -- As check_others_v1 does, without another look at the session.
            IF s.others <= 1000 AND s.others <> (
                SELECT count(*) FILTER (WHERE everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum))
                  FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message') THEN
                PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
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
CREATE OR REPLACE FUNCTION everturn.first_entries_v3(
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
CREATE OR REPLACE FUNCTION everturn.summaries_v3(p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_want bigint)
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
