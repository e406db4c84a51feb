-- Reads of the entries of one state: the session, the part of its log that is read, the entries and the facts, by one query.
-- STABLE: everything inside sees the one snapshot of the calling statement. docs/decisions/052-postgres-costs.md has the figures.

-- The ranges of a path from the latest p_limit messages on, and how many messages are in them: one more, where there are more.
-- For sessions with other entries between the messages. p_most: messages that there can be at all.
CREATE OR REPLACE FUNCTION everturn.latest_v2(
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

-- The seq of the latest message that a limit leaves out, of a path that is one range; NULL if it leaves out none. (A function of its
-- own: the body of view_v3 would hold on to the table, which then could not be replaced by a partitioned one.)
CREATE OR REPLACE FUNCTION everturn.left_out_v4(p_session bigint, p_low bigint, p_high bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT n.seq FROM everturn.entries n
             WHERE n.session = p_session AND n.seq BETWEEN p_low AND p_high AND n.kind = 'message'
             ORDER BY n.seq DESC OFFSET p_limit LIMIT 1);
END
$$;

-- The window of a read of any state, found by a look at the log: at jumps, at messages between other entries.
CREATE OR REPLACE FUNCTION everturn.window_v3(
    p_session bigint, p_last_jump bigint, p_others bigint, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_kind text, p_after bigint, p_high bigint, p_limit bigint
) RETURNS everturn.window_v3 LANGUAGE plpgsql STABLE AS $$
DECLARE
    low     bigint := greatest(p_after, p_floor) + 1;
    shown   everturn.ranges_v1;
    below   everturn.ranges_v1;
    kept    bigint[];  -- messages that a trim left in view
    counted bigint;    -- messages in `shown`, at most one more than p_limit
    cut     boolean;
BEGIN
    IF p_limit IS NULL OR p_others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
        shown := everturn.ranges_v2(p_session, p_last_jump, p_head, low, p_high, p_limit);
        counted := shown.size;
        cut := shown.at >= low;
    ELSE
        SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
          FROM everturn.latest_v2(
                   p_session, p_last_jump, p_head, low, p_high, p_limit, p_messages - cardinality(p_kept)) AS l;
        cut := counted > p_limit;
    END IF;
    IF p_floor > 0 THEN
        kept := ARRAY(SELECT k FROM unnest(p_kept) AS k
                       WHERE k > p_after AND k > p_cleared AND k <= least(p_floor, p_high) ORDER BY k DESC);
        IF cardinality(kept) > p_limit - least(counted, p_limit) THEN
            kept := kept[1 : p_limit - least(counted, p_limit)];
            cut := true;
        END IF;
        shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        IF p_cleared < p_floor AND (p_kind IS NULL OR p_kind = 'summary') THEN
            below := everturn.ranges_v2(
                p_session, p_last_jump, p_head,
                CASE WHEN cut THEN coalesce(kept[cardinality(kept)], p_floor + 1) ELSE greatest(p_after, p_cleared) + 1 END,
                least(p_floor, p_high), NULL);
            IF below.size > 0 AND everturn.first_missing_v1(p_session, shown) = 0 THEN  -- else that is told
                PERFORM everturn.check_others_v1(n) FROM everturn.sessions n WHERE n.no = p_session;
            END IF;
        END IF;
    END IF;
    RETURN (shown.firsts, shown.lasts, shown.size, below.firsts, below.lasts, cut)::everturn.window_v3;
END
$$;

-- A session that is there, the state that is asked for (p_head and so on; NULL: now), and its window. No row if there is no
-- session, or if its row is not as it was written.
-- Most reads need no walk along the path for their window: it takes no jump there. Where all entries are messages, or all are
-- wanted, `low` follows from the seqs. Where others lie between the messages, left_out_v4 finds the latest message that the limit
-- leaves out. Every other read asks window_v3. (OFFSET 0: `low`, and then the window, are worked out once. One
-- SELECT without settings of its own: the planner makes this a part of the query that calls it.)
CREATE OR REPLACE FUNCTION everturn.view_v3(
    p_namespace text, p_session_id text, p_kind text, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_after bigint, p_before bigint, p_limit bigint, p_now double precision
) RETURNS TABLE (no bigint, others bigint, state json, facts json, shown everturn.window_v3) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.no, s.others, json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages), s.facts,
           CASE WHEN p_limit = 0 THEN ROW('{}', '{}', 0, NULL, NULL, false)::everturn.window_v3
                WHEN s.last_jump <= s.low AND s.last_jump <= s.head
                     AND (cardinality(s.kept) = 0 OR s.low > greatest(p_after, s.floor) + 1)
                     AND (p_kind = 'message' OR (s.cleared = s.floor AND (p_limit IS NULL OR s.others = 0)))
                THEN ROW(ARRAY[s.low], ARRAY[s.high], greatest(s.high - s.low + 1, 0), NULL, NULL,
                         s.low > greatest(p_after, s.floor) + 1)::everturn.window_v3
                ELSE everturn.window_v3(s.no, s.last_jump, s.others, s.head, s.cleared, s.floor, s.kept, s.messages, p_kind,
                                        p_after, s.high, p_limit) END
      FROM (SELECT t.*, least(p_before - 1, t.head) AS high,
                   CASE WHEN t.others = 0 OR p_limit IS NULL
                        THEN greatest(least(p_before - 1, t.head) - p_limit, p_after, t.floor)
                        WHEN p_kind = 'message' AND t.last_jump <= greatest(p_after, t.floor) + 1
                             AND t.messages - cardinality(t.kept) > p_limit
                        THEN everturn.left_out_v4(
                                 t.no, greatest(p_after, t.floor) + 1, least(p_before - 1, t.head), p_limit) END + 1 AS low
              FROM (SELECT n.no, n.others, n.last_jump, coalesce(p_head, n.head) AS head,
                           coalesce(p_cleared, n.cleared) AS cleared, coalesce(p_floor, n.floor) AS floor,
                           coalesce(p_kept, n.kept) AS kept, coalesce(p_messages, n.messages) AS messages,
                           everturn.facts_v1(n) AS facts
                      FROM everturn.sessions n
                     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n)) AS t
            OFFSET 0) AS s
    OFFSET 0;
END;

-- The entries a query names, newest first (but for summaries that a trim hid, which follow), and behind them one row without a
-- seq, whose body is a JSON array: the status, the session, its state, its snapshots, the first seq that is missing, the number of
-- entries that there must be (NULL: they have been counted here), and whether p_limit left out earlier messages. Whoever finds
-- another number of entries asks again with p_counts, to be told which one is missing.
-- One query, because plpgsql makes every query and expression ready anew in each transaction. force_generic_plan, for all that it
-- calls: else queries over ranges are planned anew each time, which takes far longer than to run them. There is one good plan for
-- them, whatever the ranges are.
CREATE OR REPLACE FUNCTION everturn.read_v3(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_counts boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    at   everturn.plan_v1;  -- a state of the past
    s    everturn.sessions;
    last everturn.row_v1;
BEGIN
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        s := everturn.session_v1(p_namespace, p_session_id, p_now);
        IF s.no IS NOT NULL THEN
            at := everturn.state_v1(s, p_snapshot, p_version);
            IF at.refusal IS NOT NULL THEN
                last.body := convert_to(json_build_array(at.refusal, everturn.facts_v1(s))::text, 'UTF8');
                RETURN NEXT last;
                RETURN;
            END IF;
        END IF;
    END IF;
    -- The newest range first, and each from its end: the rows come in order, and none is sorted.
    IF p_kind = 'message' THEN
        RETURN QUERY
            SELECT x.* FROM everturn.view_v3(p_namespace, p_session_id, p_kind, at.head, at.cleared, at.floor, at.kept, at.messages,
                                             p_after, p_before, p_limit, p_now) AS v
             CROSS JOIN LATERAL (
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest((v.shown).firsts, (v.shown).lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.seq BETWEEN part.first AND part.last AND n.kind = 'message'
                                      ORDER BY n.seq DESC OFFSET 0) AS e
                UNION ALL
                SELECT NULL, NULL, NULL, convert_to(json_build_array(
                    'found', v.facts, v.state,
                    CASE WHEN p_snapshots THEN everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
                    CASE WHEN v.others > 0 OR p_counts THEN everturn.missing_v3(v.no, v.shown) ELSE 0 END,
                    CASE WHEN v.others > 0 OR p_counts THEN NULL ELSE (v.shown).size END, (v.shown).cut)::text, 'UTF8'), NULL, NULL
             ) AS x;
    ELSE
        RETURN QUERY
            SELECT x.* FROM everturn.view_v3(p_namespace, p_session_id, p_kind, at.head, at.cleared, at.floor, at.kept, at.messages,
                                             p_after, p_before, p_limit, p_now) AS v
             CROSS JOIN LATERAL (
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest((v.shown).firsts, (v.shown).lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.seq BETWEEN part.first AND part.last
                                      ORDER BY n.seq DESC OFFSET 0) AS e
                 WHERE p_kind IS NULL
                UNION ALL
                SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(CASE WHEN p_kind IS NOT NULL THEN (v.shown).firsts END || (v.shown).below_firsts,
                              CASE WHEN p_kind IS NOT NULL THEN (v.shown).lasts END || (v.shown).below_lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = v.no AND n.kind = coalesce(p_kind, 'summary') AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e
                UNION ALL
                SELECT NULL, NULL, NULL, convert_to(json_build_array(
                    'found', v.facts, v.state,
                    CASE WHEN p_snapshots THEN everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
                    CASE WHEN p_kind IS NOT NULL OR p_counts THEN everturn.missing_v3(v.no, v.shown) ELSE 0 END,
                    CASE WHEN p_kind IS NOT NULL OR p_counts THEN NULL ELSE (v.shown).size END, (v.shown).cut)::text, 'UTF8'),
                    NULL, NULL
             ) AS x;
    END IF;
    IF NOT FOUND THEN
        PERFORM everturn.session_v1(p_namespace, p_session_id, p_now);  -- raises, if there should be one
        last.body := convert_to('["no_session"]', 'UTF8');
        RETURN NEXT last;
    END IF;
END
$$;

-- The first seq of a window that has no entry, or one that is not where it was written; 0 if all have one.
CREATE OR REPLACE FUNCTION everturn.missing_v3(p_session bigint, p_shown everturn.window_v3) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN everturn.first_missing_v1(
        p_session, (p_shown.firsts, p_shown.lasts, p_shown.size, 0)::everturn.ranges_v1);
END
$$;
