-- Paths: the entries that a head shows, as ranges of seqs. This is `path` of core/paths.py in SQL, and the answers that the
-- Reader of core/plan_change.py gives. A path is walked from the head down, one index lookup a range, no further than asked for.
-- STABLE: called by a read, these functions see the snapshot of the read. plpgsql where SQL could not be inlined: it keeps plans.

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, and to the p_want newest of these
-- (NULL: all). `at` is where the path goes on below them. Every jump names the one before it in the log, and the session the last:
-- one that is lost is noticed.
CREATE OR REPLACE FUNCTION everturn.ranges_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    link   bigint   := p_last_jump;  -- no jump lies between this one and the seqs above
    beside bigint;                   -- jumps of other branches that were passed over in a row
    lowest bigint;
    last   bigint;
    jump   record;
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
        last := least(at, p_high);
        lowest := greatest(p_low, last - (p_want - size) + 1);
        IF link < lowest OR link <= p_low THEN  -- the last range: it begins above the jump
            firsts := firsts || lowest;
            lasts := lasts || last;
            size := size + last - lowest + 1;
            at := lowest - 1;
            EXIT;
        END IF;
        beside := 0;
        -- (LIMIT: a loop fetches rows by fifties. A path that takes not all of these jumps asks again.)
        FOR jump IN SELECT j.seq, j.after, j.prior,
                           j.after < j.seq AND j.seal = everturn.jump_seal_v1(p_session, j.seq, j.after, j.prior) AS is_whole
                      FROM everturn.jumps j WHERE j.session = p_session AND j.seq <= link ORDER BY j.seq DESC LIMIT p_want
        LOOP
            IF jump.seq <> link OR NOT jump.is_whole THEN
                PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', link));
            END IF;
            link := jump.prior;
            IF jump.seq > at THEN
                beside := beside + 1;
                EXIT WHEN beside = 8;  -- passing over so many takes as long as a lookup
                CONTINUE;
            END IF;
            beside := 0;
            IF jump.seq <= p_high THEN
                lowest := greatest(jump.seq, p_low);
                last := least(at, p_high);
                firsts := firsts || lowest;
                lasts := lasts || last;
                size := size + last - lowest + 1;
            END IF;
            at := jump.after;
            EXIT WHEN link <= p_low OR at < p_low OR size >= p_want;
        END LOOP;
        IF NOT FOUND THEN
            PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', link));
        END IF;
    END LOOP;
    IF size > p_want THEN  -- of the last range, the upper part
        at := lowest + size - p_want - 1;
        firsts[cardinality(firsts)] := at + 1;
        size := p_want;
    END IF;
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
