-- Paths: the entries that a head shows, as ranges of seqs. This is `path` of core/paths.py in SQL, and the answers that the
-- Reader of core/plan_change.py gives. A path is walked from the head down, one index lookup a range, no further than asked for.
-- STABLE: called by a read, these functions see the snapshot of the read. plpgsql where SQL could not be inlined: it keeps plans.

-- Ranges of seqs, the newest first.
CREATE TYPE everturn.ranges_v1 AS (
    firsts bigint[],
    lasts  bigint[],
    size   bigint,  -- how many seqs they hold
    at     bigint   -- the seq at which the path goes on below them
);

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, until they hold p_want seqs
-- (NULL: all). Every jump names the one before it in the log, and the session the last: one that is lost is noticed.
CREATE FUNCTION everturn.ranges_v1(s everturn.sessions, p_head bigint, p_low bigint, p_high bigint, p_want bigint)
RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';  -- variables of their own: to the field of a row, appending would copy all there are
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    no     bigint   := s.no;
    link   bigint   := s.last_jump;  -- no jump lies between this one and the seqs above
    jump   record;
BEGIN
    IF p_high < p_low THEN
        at := 0;
    END IF;
    WHILE at >= p_low AND (p_want IS NULL OR size < p_want) LOOP
        IF link > at THEN  -- others lie between, of branches that this path does not take
            SELECT j.seq, j.after, j.prior, j.seal INTO jump
              FROM everturn.jumps j WHERE j.session = no AND j.seq > at ORDER BY j.seq LIMIT 1;
            IF jump.seq IS NULL OR jump.prior > at
               OR jump.seal <> everturn.jump_seal_v1(no, jump.seq, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(no, format('a jump after seq %s is lost or damaged', at));
            END IF;
            link := jump.prior;
        END IF;
        IF link = 0 THEN  -- the first range of the log begins without a jump
            firsts := firsts || p_low;
            lasts := lasts || least(at, p_high);
            size := size + least(at, p_high) - p_low + 1;
            at := 0;
            EXIT;
        END IF;
        -- Jump by jump, as long as each range is followed by the one before it in the log.
        FOR jump IN SELECT j.seq, j.after, j.prior, j.seal FROM everturn.jumps j
                     WHERE j.session = no AND j.seq <= link ORDER BY j.seq DESC
        LOOP
            IF jump.seq <> link OR jump.after >= link
               OR jump.seal <> everturn.jump_seal_v1(no, link, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(no, format('the jump at seq %s is lost or damaged', link));
            END IF;
            IF link <= p_high THEN
                firsts := firsts || greatest(link, p_low);
                lasts := lasts || least(at, p_high);
                size := size + least(at, p_high) - greatest(link, p_low) + 1;
            END IF;
            at := jump.after;
            link := jump.prior;
            EXIT WHEN at < p_low OR link > at OR link = 0 OR size >= p_want;
        END LOOP;
        IF NOT FOUND THEN
            PERFORM everturn.damaged_v1(no, format('the jump at seq %s is lost or damaged', link));
        END IF;
    END LOOP;
    RETURN (firsts, lasts, size, at)::everturn.ranges_v1;
END
$$;

-- Whether an entry is on the path that ends at p_head.
CREATE FUNCTION everturn.on_path_v1(s everturn.sessions, p_head bigint, p_seq bigint) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN p_seq > 0 AND (everturn.ranges_v1(s, p_head, p_seq, p_seq, 1)).size = 1;
END
$$;

-- The number of messages in these ranges. (LATERAL and OFFSET 0, here and elsewhere: each range is looked up by itself, in the
-- primary key, whatever the planner takes the tables for.)
CREATE FUNCTION everturn.messages_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
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
CREATE FUNCTION everturn.has_hidden_summaries_v1(s everturn.sessions) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    r everturn.ranges_v1 := everturn.ranges_v1(s, s.head, s.cleared + 1, s.floor, NULL);
BEGIN
    RETURN EXISTS (SELECT FROM unnest(r.firsts, r.lasts) AS part (first, last)
                    CROSS JOIN LATERAL (SELECT FROM everturn.entries e
                                         WHERE e.session = s.no AND e.kind = 'summary' AND e.kind <> 'message'
                                           AND e.seq BETWEEN part.first AND part.last OFFSET 0) AS e);
END
$$;

-- The ranges of the path to a session's head, for people with a SQL prompt: the view `history`.
CREATE FUNCTION everturn.path_v1(p_session bigint) RETURNS TABLE (first bigint, last bigint)
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

-- Whether the session has expired by a time.
CREATE FUNCTION everturn.is_over_v1(expires_at double precision, at_time double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN expires_at IS NOT NULL AND expires_at <= at_time;

-- A time in steps of five minutes, for the indexes of `sessions`: whatever writes a time there writes its step beside it.
CREATE FUNCTION everturn.step_v1(at_time double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN floor(at_time / 300)::bigint;

-- The server's clock, unless a time is given (tests bring their own).
CREATE FUNCTION everturn.now_v1(given double precision) RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, date_part('epoch', clock_timestamp()));  -- extract makes a numeric of it, on the way

-- A life is named after the call that began it.
CREATE FUNCTION everturn.life_v1(call bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substring(call FROM 1 FOR 8), 'hex');
