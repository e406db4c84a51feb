-- Late requests: those that must not be applied, and the fences that tell. docs/decisions/020-late-requests.md says why.
-- Each request carries two moments on this server's clock: when it was issued, and after which its caller is gone.

-- Whether a request must not be applied: its caller has gone, or it was issued before a fence. A fence ahead of the clock
-- was set before the clock was set back, and so was a request that is issued ahead of it.
CREATE FUNCTION everturn.is_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_at > p_not_after OR p_issued > p_at OR coalesce(p_issued < p_fence AND p_fence <= p_at, false);

-- Undo the whole statement, and say so, if a request must not be applied. For statements of one request.
CREATE FUNCTION everturn.refuse_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF everturn.is_late_v1(p_issued, p_not_after, p_fence, p_at) THEN
        RAISE EXCEPTION 'the request came too late' USING ERRCODE = 'EVLAT', DETAIL = p_at::text;
    END IF;
END
$$;

CREATE FUNCTION everturn.digest_v1(p_session_id text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(convert_to(p_session_id, 'UTF8'));

-- Receipts of a session's latest changes, by their call ids: as many as are remembered at least. For its tombstone.
CREATE FUNCTION everturn.calls_of_v1(s everturn.sessions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(encode(c.call, 'hex'), jsonb_build_array(
               s.life, c.version, c.first_seq, c.count, c.messages, c.created_at)), '{}')
      FROM everturn.changes c WHERE c.session = s.no AND c.version > s.version - 1024
$$;

-- Keep the fence of a session that is not there, and the calls that were erased with it, for as long as requests live.
CREATE FUNCTION everturn.leave_tombstone_v1(p_namespace text, p_session_id text, p_at double precision, p_calls jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO everturn.tombstones AS t (namespace, digest, fence, until, calls)
    VALUES (p_namespace, everturn.digest_v1(p_session_id), p_at, p_at + 60, p_calls)
        ON CONFLICT (namespace, digest) DO UPDATE
       SET fence = EXCLUDED.fence, until = EXCLUDED.until,
           calls = CASE WHEN t.until > p_at THEN t.calls ELSE '{}' END || EXCLUDED.calls
$$;

-- The fence of a session that is not there. `p_was` is its life that expired, if any: what was issued before its latest
-- change belongs to that life.
CREATE FUNCTION everturn.fence_v1(p_namespace text, p_session_id text, p_was everturn.sessions) RETURNS double precision
LANGUAGE sql STABLE AS $$
    SELECT greatest(p_was.fence, p_was.changed_at, (
        SELECT t.fence FROM everturn.tombstones t
         WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(p_session_id)))
$$;

-- Let no earlier attempt of a refused retry be applied: the caller is told that it was not.
CREATE FUNCTION everturn.fence_off_v1(
    p_namespace text, p_session_id text, p_session bigint, p_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_session IS NULL THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, p_at, '{}');
    ELSE
        UPDATE everturn.sessions SET fence = p_at WHERE no = p_session;
    END IF;
END
$$;

-- The version that a call made; NULL if it made none. A first attempt looks only among changes made since it was issued:
-- its retry may have overtaken it, or the network may have sent it twice.
CREATE FUNCTION everturn.version_of_v1(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    g record;
BEGIN
    IF NOT coalesce(r.retry, false) AND s.changed_at < r.issued THEN
        RETURN NULL;
    END IF;
    FOR g IN SELECT c.version, c.call, c.created_at FROM everturn.changes c WHERE c.session = s.no ORDER BY c.version DESC LOOP
        IF g.call = r.call THEN
            RETURN g.version;
        ELSIF NOT coalesce(r.retry, false) AND g.created_at < r.issued THEN
            RETURN NULL;
        ELSIF g.version <= s.version - 2048 AND (g.created_at < p_at - 3600 OR g.created_at > p_at) THEN
            RETURN NULL;  -- older than any call; or made before the clock was set back, and then there may be many
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
