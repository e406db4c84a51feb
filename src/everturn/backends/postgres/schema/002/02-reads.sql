-- Reads of the entries of one state. STABLE: everything inside sees the one snapshot of the calling statement.

-- The entries a query names, newest first (but for summaries that a trim hid, which follow), and behind them one row without a seq whose body is a JSON object: their session
-- and state, the first seq that is missing, and whether p_limit left out earlier messages. With a limit, entries older than
-- the latest p_limit messages are not looked at.
-- Few expressions, and single columns of the session: plpgsql makes each expression ready anew in every transaction, for a
-- microsecond each. force_generic_plan, for all that it calls: else queries over ranges are planned anew each time, which takes
-- three times as long as running them for the latest 20. There is one good plan for them, whatever the ranges are.
CREATE FUNCTION everturn.read_v2(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       record;
    p       record;             -- the state
    high    bigint;
    shown   everturn.ranges_v1; -- visible whatever their kind
    hidden  everturn.ranges_v1; -- what a trim hid: there, summaries alone are visible
    kept    bigint[];           -- messages that it left in view
    counted   bigint;             -- messages in `shown`, at most one more than p_limit
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
        last.body := convert_to('{"status":"no_session"}', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := s;
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        p := everturn.state_v1(everturn.session_v1(p_namespace, p_session_id, p_now), p_snapshot, p_version);
    END IF;
    IF p.refusal IS NULL AND p_limit IS DISTINCT FROM 0 THEN
        high := least(p_before - 1, p.head);
        IF p_limit IS NULL OR s.others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
            shown := everturn.ranges_v2(s.no, s.last_jump, p.head, greatest(p_after, p.floor) + 1, high, p_limit);
            counted := shown.size;
            cut := shown.at > greatest(p_after, p.floor);
        ELSE
            SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
              FROM everturn.latest_v2(
                       s.no, s.last_jump, p.head, greatest(p_after, p.floor) + 1, high, p_limit,
                       p.messages - cardinality(p.kept)) AS l;
            cut := counted > p_limit;
        END IF;
        IF p.floor > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k
                           WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, high) ORDER BY k DESC);
            IF cardinality(kept) > p_limit - least(counted, p_limit) THEN
                kept := kept[1 : p_limit - least(counted, p_limit)];
                cut := true;
            END IF;
            IF p.cleared < p.floor AND (p_kind IS NULL OR p_kind = 'summary') THEN
                hidden := everturn.ranges_v2(
                    s.no, s.last_jump, p.head,
                    CASE WHEN cut THEN coalesce(kept[cardinality(kept)], p.floor + 1)
                         ELSE greatest(p_after, p.cleared) + 1 END, least(p.floor, high), NULL);
            END IF;
            shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        IF p_kind IS NULL OR p_kind = 'message' THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND (p_kind IS NULL OR n.kind = 'message') ORDER BY n.seq DESC OFFSET 0) AS e;
            GET DIAGNOSTICS handed = ROW_COUNT;
        ELSE
            hidden.firsts := shown.firsts || hidden.firsts;
            hidden.lasts := shown.lasts || hidden.lasts;
        END IF;
        IF hidden.firsts IS NOT NULL THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(hidden.firsts, hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = coalesce(p_kind, 'summary') AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e;
        END IF;
        IF handed IS DISTINCT FROM shown.size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
        IF hidden.size > 0 AND missing = 0 THEN
            PERFORM everturn.check_others_v1(everturn.session_v1(p_namespace, p_session_id, p_now));
        END IF;
    END IF;
    last.body := convert_to(json_build_object(
        'status', coalesce(p.refusal, 'found'), 'facts', s.facts,
        'state', CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        'snapshots', CASE WHEN p_snapshots THEN
            everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
        'first_missing', missing, 'cut', cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The ranges of a path from the latest p_limit messages on, and how many messages are in them: one more, where there are more.
-- For sessions with other entries between the messages. p_most: messages that there can be at all.
CREATE FUNCTION everturn.latest_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_limit bigint, p_most bigint,
    OUT ranges everturn.ranges_v1, OUT counted bigint
) LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    want bigint := 4 * (p_limit + 1);  -- seqs; the query ends where it has found enough
    seqs bigint[];
BEGIN
    LOOP
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, p_low, p_high, want);
        seqs := ARRAY(SELECT e.seq FROM unnest(ranges.firsts, ranges.lasts) AS part (first, last)
                       CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                            WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last
                                              AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e
                       LIMIT p_limit + 1);
        counted := cardinality(seqs);
        EXIT WHEN counted > p_limit OR counted >= p_most OR ranges.at < p_low;
        want := want * 4;
    END LOOP;
    IF counted >= p_limit THEN
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, seqs[p_limit], p_high, NULL);
    END IF;
END
$$;
