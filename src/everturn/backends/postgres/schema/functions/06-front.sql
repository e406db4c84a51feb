-- Reads of the latest messages and of what a prompt begins with. STABLE: everything inside sees the one snapshot of the calling
-- statement.

-- The p_limit latest messages of a state, newest first. In front of them, the p_summaries latest summaries behind `cleared`, newest first, if a
-- trim or fold hides anything. Behind them, if there are earlier messages, those among the first p_front entries behind the floor, and all
-- that a trim kept. The last row is that of read_v3, with all entries counted.
-- A summary that is lost is missed while a session has no more than a thousand entries that are no messages; above, verify finds it.
-- The path is walked once, and everything is found in its ranges.
CREATE OR REPLACE FUNCTION everturn.front_v3(
    p_namespace text, p_session_id text, p_snapshot text, p_version bigint, p_limit bigint, p_front bigint, p_summaries bigint,
    p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       record;
    p       record;             -- the state
    hides   boolean;            -- whether it may have summaries of what it hides
    path    everturn.ranges_v1; -- down to the floor; if it hides, to what is cleared
    seqs    bigint[];           -- of the latest messages, and one more
    counted bigint;             -- messages behind the floor; or one more than p_limit
    wanted  bigint;             -- entries, at the most
    firsts  bigint[] := '{}';   -- ranges, visible whatever the kind of their entries
    lasts   bigint[] := '{}';
    size    bigint   := 0;
    starts  bigint[] := '{}';   -- ranges of what a prompt begins with, the last one first
    ends    bigint[] := '{}';
    kept    bigint[] := '{}';   -- messages that a trim left in view
    cut     boolean  := false;
    oldest  bigint;             -- of the latest p_limit messages
    first   bigint;
    final   bigint;
    at      bigint   := 1;      -- a place in `path`
    sound   bigint;             -- entries that are no messages, and as they were written
    beside  bigint   := 0;      -- entries of these ranges that are known to be no messages
    handed  bigint;
    missing bigint   := 0;
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
        hides := p.cleared < p.floor AND s.others > 0;
        path := everturn.ranges_v2(s.no, s.last_jump, p.head, CASE WHEN hides THEN p.cleared ELSE p.floor END + 1, p.head, NULL);
        oldest := p.floor + 1;
        IF s.others = 0 THEN  -- all entries are messages: the latest are those of the highest seqs
            counted := path.size;
            wanted := p_limit;
        ELSE
            seqs := ARRAY(SELECT e.seq FROM unnest(path.firsts, path.lasts) AS part (first, last)
                           CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                                WHERE n.session = s.no AND n.seq BETWEEN greatest(part.first, p.floor + 1) AND part.last
                                                  AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e
                           WHERE part.last > p.floor LIMIT p_limit + 1);
            counted := cardinality(seqs);
            wanted := path.size;
            oldest := coalesce(seqs[p_limit], oldest);
        END IF;
        IF cardinality(p.kept) > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k WHERE k > p.cleared ORDER BY k DESC);
        END IF;
        cut := counted + cardinality(kept) > p_limit;
        WHILE size < wanted AND path.lasts[at] >= oldest LOOP
            first := greatest(path.firsts[at], oldest, path.lasts[at] - (wanted - size) + 1);
            firsts := firsts || first;
            lasts := lasts || path.lasts[at];
            size := size + path.lasts[at] - first + 1;
            at := at + 1;
        END LOOP;
        oldest := first;
        at := cardinality(path.firsts);
        WHILE cut AND p_front > 0 AND path.firsts[at] < oldest LOOP  -- from the beginning on
            first := greatest(path.firsts[at], p.floor + 1);
            final := least(path.lasts[at], oldest - 1, first + p_front - 1);
            IF first <= final THEN
                starts := first || starts;
                ends := final || ends;
                size := size + final - first + 1;
                p_front := p_front - (final - first + 1);
            END IF;
            at := at - 1;
        END LOOP;
        firsts := firsts || starts || kept;
        lasts := lasts || ends || kept;
        size := size + cardinality(kept);
        IF hides THEN
            RETURN QUERY
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(path.firsts, path.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = 'summary' AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
                 LIMIT p_summaries;
            IF s.others <= 1000 THEN  -- as check_others_v1 does, without another look at the session
                SELECT count(*), count(*) FILTER (WHERE EXISTS (
                           SELECT FROM unnest(firsts, lasts) AS part (first, last) WHERE e.seq BETWEEN part.first AND part.last))
                  INTO sound, beside FROM everturn.entries e
                 WHERE e.session = s.no AND e.kind <> 'message'
                   AND everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum);
                IF s.others <> sound THEN
                    PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
                END IF;
            END IF;
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(firsts, lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                    AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e;
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed + beside <> size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, (firsts, lasts, size, 0)::everturn.ranges_v1);
        END IF;
    END IF;
    last.body := convert_to(json_build_array(
        coalesce(p.refusal, 'found'), s.facts,
        CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        NULL, missing, NULL, cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;
