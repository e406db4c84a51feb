-- Reads of the latest messages, with less work where other entries lie between them (tool calls, summaries, records) and where
-- turns are folded. docs/decisions/052-postgres-costs.md has the figures.

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, and to the p_want newest of these
-- (NULL: all). `at` is where the path goes on below them. A jump is looked at where the path takes it. Every jump names the one
-- before it in the log, and the session the last: one that is lost is noticed.
CREATE OR REPLACE FUNCTION everturn.ranges_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    link   bigint   := p_last_jump;  -- no jump lies between this one and the seqs above
    batch  bigint   := coalesce(p_want, 1000);
    top    bigint;
    lowest bigint;
    jump   record;
    part   record;
BEGIN
    IF p_high < p_low THEN
        at := 0;
    ELSIF p_last_jump <= p_low AND p_high <= p_head THEN  -- one range: no jump was ever made above its beginning
        lowest := greatest(p_low, p_high - p_want + 1);
        RETURN (ARRAY[lowest], ARRAY[p_high], p_high - lowest + 1, lowest - 1)::everturn.ranges_v1;
    END IF;
    WHILE at >= p_low AND (p_want IS NULL OR size < p_want) LOOP
        IF link > at THEN  -- others lie between, of branches that this path does not take
            SELECT j.seq, j.after, j.prior, j.seal INTO jump
              FROM everturn.jumps j WHERE j.session = p_session AND j.seq > at ORDER BY j.seq LIMIT 1;
            IF jump.seq IS NULL OR jump.prior > at
               OR jump.seal <> everturn.jump_seal_v1(p_session, jump.seq, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(p_session, format('a jump after seq %s is lost or damaged', at));
            END IF;
            link := jump.prior;
        END IF;
        top := least(at, p_high);
        lowest := greatest(p_low, top - (p_want - size) + 1);
        IF link < lowest OR link <= p_low THEN  -- the last range: it begins above the jump
            firsts := firsts || lowest;
            lasts := lasts || top;
            size := size + top - lowest + 1;
            at := lowest - 1;
            EXIT;
        END IF;
        -- Many jumps in one query, as long as each range is followed by the one before it in the log.
        SELECT array_agg(greatest(k.seq, p_low) ORDER BY k.seq DESC) FILTER (WHERE k.held > 0) AS firsts,
               array_agg(least(k.last, p_high) ORDER BY k.seq DESC) FILTER (WHERE k.held > 0) AS lasts,
               coalesce(sum(k.held), 0) AS size, min(k.after) AS after, min(k.prior) AS prior,
               coalesce(max(k.named) FILTER (WHERE NOT k.is_whole), CASE count(*) WHEN 0 THEN link END) AS damaged
          INTO part
          FROM (SELECT w.*, sum(w.held) OVER (ORDER BY w.seq DESC) - w.held AS held_above
                  FROM (SELECT j.seq, j.after, j.prior, lag(j.after, 1, at) OVER newest AS last,
                               lag(j.prior, 1, link) OVER newest AS named,
                               greatest(least(lag(j.after, 1, at) OVER newest, p_high) - greatest(j.seq, p_low) + 1, 0) AS held,
                               j.seq = lag(j.prior, 1, link) OVER newest AND j.after < j.seq
                               AND j.seal = everturn.jump_seal_v1(p_session, j.seq, j.after, j.prior) AS is_whole,
                               bool_or(j.prior > j.after OR j.after < p_low) OVER (
                                   ORDER BY j.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS is_beyond
                          FROM (SELECT * FROM everturn.jumps n
                                 WHERE n.session = p_session AND n.seq <= link ORDER BY n.seq DESC LIMIT batch) AS j
                        WINDOW newest AS (ORDER BY j.seq DESC)) AS w
                 WHERE w.is_beyond IS NOT TRUE) AS k
         WHERE p_want IS NULL OR k.held_above < p_want - size;
        IF part.damaged IS NOT NULL THEN
            PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', part.damaged));
        END IF;
        firsts := firsts || part.firsts;
        lasts := lasts || part.lasts;
        size := size + part.size;
        at := part.after;
        link := part.prior;
        batch := batch * 2;
        IF size > p_want THEN  -- of the last range, the upper part
            lowest := firsts[cardinality(firsts)] + size - p_want;
            firsts[cardinality(firsts)] := lowest;
            size := p_want;
            at := lowest - 1;
        END IF;
    END LOOP;
    RETURN (firsts, lasts, size, at)::everturn.ranges_v1;
END
$$;

-- The seq of the latest message that a limit leaves out, of a path that is one range; NULL if it leaves out none. (A function of its
-- own: the body of view_v3 would hold on to the table, which then could not be replaced by a partitioned one.)
CREATE FUNCTION everturn.left_out_v4(p_session bigint, p_low bigint, p_high bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT n.seq FROM everturn.entries n
             WHERE n.session = p_session AND n.seq BETWEEN p_low AND p_high AND n.kind = 'message'
             ORDER BY n.seq DESC OFFSET p_limit LIMIT 1);
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

