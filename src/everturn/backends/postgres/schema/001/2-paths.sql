-- What a path is, and what a state shows of it: rules.path and rules.State in SQL. Sets of seqs are multiranges.
-- STABLE: called by a read, they see what the read sees. plpgsql where SQL could not be inlined: it keeps its plans.

-- The seqs from low to high, both included; none if there are none.
CREATE FUNCTION everturn.span_v1(low bigint, high bigint) RETURNS int8multirange
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN low <= high THEN int8multirange(int8range(low, high, '[]')) ELSE '{}' END;

-- These seqs.
CREATE FUNCTION everturn.points_v1(seqs bigint[]) RETURNS int8multirange
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF cardinality(seqs) = 0 THEN
        RETURN '{}';
    END IF;
    RETURN (SELECT range_agg(int8range(seq, seq, '[]')) FROM unnest(seqs) AS seq);
END
$$;

-- How many there are.
CREATE FUNCTION everturn.size_v1(ranges int8multirange) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT coalesce(sum(upper(part) - lower(part)), 0) FROM unnest(ranges) AS part);
END
$$;

-- The seqs that lead to a head.
CREATE FUNCTION everturn.path_v1(p_session bigint, p_head bigint) RETURNS int8multirange
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    at     bigint   := p_head;
    jump   record;
BEGIN
    FOR jump IN
        SELECT j.seq, j.after FROM everturn.jumps j WHERE j.session = p_session AND j.seq <= p_head ORDER BY j.seq DESC
    LOOP
        IF jump.seq <= at THEN
            firsts := firsts || jump.seq;
            lasts := lasts || at;
            at := jump.after;
        END IF;
    END LOOP;
    IF cardinality(firsts) = 0 THEN
        RETURN everturn.span_v1(1, at);
    END IF;
    RETURN (SELECT range_agg(int8range(first, last, '[]')) FROM unnest(firsts, lasts) AS part (first, last))
           + everturn.span_v1(1, at);
END
$$;

-- What a state shows whatever its kind: kept entries, and all above the floor.
CREATE FUNCTION everturn.whole_v1(path int8multirange, head bigint, cleared bigint, floor bigint, kept bigint[])
RETURNS int8multirange LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN path * (everturn.span_v1(floor + 1, head) + everturn.span_v1(cleared + 1, floor) * everturn.points_v1(kept));

-- Where a state shows summaries alone: what a trim hid.
CREATE FUNCTION everturn.trimmed_v1(path int8multirange, cleared bigint, floor bigint)
RETURNS int8multirange LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN path * everturn.span_v1(cleared + 1, floor);

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
RETURN coalesce(given, extract(epoch FROM clock_timestamp())::double precision);

-- A life is named after the call that began it.
CREATE FUNCTION everturn.life_v1(call bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substring(call FROM 1 FOR 8), 'hex');
