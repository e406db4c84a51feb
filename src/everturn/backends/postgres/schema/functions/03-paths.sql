-- Paths: the entries that a head shows, as ranges of seqs. This is `path` of core/paths.py in SQL, and the answers that the
-- Reader of core/plan_change.py gives. A path is walked from the head down, one index lookup a range, no further than asked for.
-- STABLE: called by a read, these functions see the snapshot of the read. plpgsql where SQL could not be inlined: it keeps plans.

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

-- The same for a session's row, as functions of version 1 ask for it.
CREATE OR REPLACE FUNCTION everturn.ranges_v1(
    s everturn.sessions, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN everturn.ranges_v2(s.no, s.last_jump, p_head, p_low, p_high, p_want);
END
$$;

-- Whether an entry is on the path that ends at p_head.
CREATE OR REPLACE FUNCTION everturn.on_path_v1(s everturn.sessions, p_head bigint, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN p_seq > 0 AND (everturn.ranges_v1(s, p_head, p_seq, p_seq, 1)).size = 1;
END
$$;

-- The number of messages in these ranges. (LATERAL and OFFSET 0, here and elsewhere: each range is looked up by itself, in the
-- primary key, whatever the planner takes the tables for.)
CREATE OR REPLACE FUNCTION everturn.messages_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT count(*)
              FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                  WHERE e.session = p_session AND e.seq BETWEEN part.first AND part.last
                                    AND e.kind = 'message' OFFSET 0) AS e);
END
$$;

-- Whether a trim that left this state hid summaries, which it still shows.
CREATE OR REPLACE FUNCTION everturn.has_hidden_summaries_v1(s everturn.sessions) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN everturn.has_summary_v5(s.no, everturn.ranges_v1(s, s.head, s.cleared + 1, s.floor, NULL));
END
$$;

-- Whether there is a summary on the path after an entry; or an entry above the floor that is lost, which may have been one.
CREATE OR REPLACE FUNCTION everturn.has_summary_after_v5(s everturn.sessions, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    r everturn.ranges_v1 := everturn.ranges_v1(s, s.head, greatest(p_seq, s.floor) + 1, s.head, NULL);
BEGIN
    RETURN everturn.has_summary_v5(s.no, everturn.ranges_v1(s, s.head, p_seq + 1, s.head, NULL))
        OR r.size > (SELECT count(*)
                       FROM unnest(r.firsts, r.lasts) AS part (first, last)
                      CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                           WHERE e.session = s.no AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- Whether there is a summary in these ranges.
CREATE OR REPLACE FUNCTION everturn.has_summary_v5(p_session bigint, r everturn.ranges_v1) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM unnest(r.firsts, r.lasts) AS part (first, last)
                    CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                         WHERE e.session = p_session AND e.kind = 'summary' AND e.kind <> 'message'
                                           AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- The ranges of the path to a session's head, for people with a SQL prompt: the view `history`.
CREATE OR REPLACE FUNCTION everturn.path_v1(p_session bigint) RETURNS TABLE (first bigint, last bigint)
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    s everturn.sessions;
    r everturn.ranges_v1;
BEGIN
    SELECT * INTO s FROM everturn.sessions n WHERE n.no = p_session;
    r := everturn.ranges_v1(s, s.head, 1, s.head, NULL);
    RETURN QUERY SELECT * FROM unnest(r.firsts, r.lasts);
END
$$;
