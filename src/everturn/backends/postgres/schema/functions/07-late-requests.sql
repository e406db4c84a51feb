-- Late requests: those that must not be applied, the fences that tell, and the receipts of earlier attempts.
-- docs/decisions/020-late-requests.md says why. Each request carries two moments on this server's clock: when it was issued, and
-- after which its caller is gone.

-- Whether a request must not be applied: its caller has gone, or it was issued before a fence. A fence ahead of the clock
-- was set before the clock was set back, and so was a request that is issued ahead of it.
CREATE OR REPLACE FUNCTION everturn.is_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_at > p_not_after OR p_issued > p_at OR coalesce(p_issued < p_fence AND p_fence <= p_at, false);

-- Undo the whole statement, and say so, if a request must not be applied. For statements of one request.
CREATE OR REPLACE FUNCTION everturn.refuse_late_v1(
    p_issued double precision, p_not_after double precision, p_fence double precision, p_at double precision
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF everturn.is_late_v1(p_issued, p_not_after, p_fence, p_at) THEN
        RAISE EXCEPTION 'the request came too late' USING ERRCODE = 'EVLAT', DETAIL = p_at::text;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION everturn.digest_v1(p_session_id text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN sha256(convert_to(p_session_id, 'UTF8'));

-- Receipts of a session's latest changes, by their call ids: as many as are remembered at least. For its tombstone.
CREATE OR REPLACE FUNCTION everturn.calls_of_v1(s everturn.sessions) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(encode(c.call, 'hex'), jsonb_build_array(
               s.life, c.version, c.first_seq, c.count, c.messages, c.created_at)), '{}')
      FROM everturn.changes c WHERE c.session = s.no AND c.version > s.version - 1024
$$;

-- Keep the fence of a session that is not there, and the calls that were erased with it, for as long as requests live.
CREATE OR REPLACE FUNCTION everturn.leave_tombstone_v1(p_namespace text, p_session_id text, p_at double precision, p_calls jsonb)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO everturn.tombstones AS t (namespace, digest, fence, until, calls)
    VALUES (p_namespace, everturn.digest_v1(p_session_id), p_at, p_at + 60, p_calls)
        ON CONFLICT (namespace, digest) DO UPDATE
       SET fence = EXCLUDED.fence, until = EXCLUDED.until,
           calls = CASE WHEN t.until > p_at THEN t.calls ELSE '{}' END || EXCLUDED.calls
$$;

-- The fence of a session that is not there. `p_was` is its life that expired, if any: what was issued before its latest
-- change belongs to that life.
CREATE OR REPLACE FUNCTION everturn.fence_v1(p_namespace text, p_session_id text, p_was everturn.sessions) RETURNS double precision
LANGUAGE sql STABLE AS $$
    SELECT greatest(p_was.fence, p_was.changed_at, (
        SELECT t.fence FROM everturn.tombstones t
         WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(p_session_id)))
$$;

-- Let no earlier attempt of a refused retry be applied: the caller is told that it was not.
CREATE OR REPLACE FUNCTION everturn.fence_off_v1(
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
-- its retry may have overtaken it, or the network may have sent it twice. Raises if a change that a retry passes is lost: it may be the
-- one. (Of a first attempt, rows of turns in the same statement may still have to be written.)
CREATE OR REPLACE FUNCTION everturn.version_of_v1(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    g    record;
    next bigint := s.version;
BEGIN
    IF NOT coalesce(r.retry, false) AND s.changed_at < r.issued THEN
        RETURN NULL;
    END IF;
    FOR g IN SELECT c.version, c.call, c.created_at FROM everturn.changes c WHERE c.session = s.no ORDER BY c.version DESC LOOP
        IF r.retry AND g.version <> next AND next > s.forgotten THEN
            PERFORM everturn.lost_change_v5(s.no, next);
        END IF;
        next := next - 1;
        IF g.call = r.call THEN
            RETURN g.version;
        ELSIF NOT coalesce(r.retry, false) AND g.created_at < r.issued THEN
            RETURN NULL;
        ELSIF g.version <= s.version - 2048 AND (g.created_at < p_at - 3600 OR g.created_at > p_at) THEN
            RETURN NULL;  -- older than any call; or made before the clock was set back, and then there may be many
        END IF;
    END LOOP;
    IF r.retry AND next > s.forgotten THEN
        PERFORM everturn.lost_change_v5(s.no, next);
    END IF;
    RETURN NULL;
END
$$;

-- The first receipt of this call or key; NULL if neither is known.
CREATE OR REPLACE FUNCTION everturn.recall_v1(s everturn.sessions, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    c    everturn.changes;
    made bigint := everturn.version_of_v1(s, r, p_at);
BEGIN
    IF made IS NOT NULL THEN
        SELECT * INTO c FROM everturn.changes g WHERE g.session = s.no AND g.version = made;
        PERFORM everturn.check_change_v5(s.no, c.version);
    ELSIF r.key IS NOT NULL THEN
        FOR c IN SELECT * FROM everturn.changes g WHERE g.session = s.no AND g.key = r.key ORDER BY g.version DESC LOOP
            PERFORM everturn.check_change_v5(s.no, c.version);
            -- A turn that a rollback dropped may be written again; a change without a turn is never dropped.
            IF c.count = 0 OR everturn.on_path_v1(s, s.head, c.first_seq + c.count - 1) THEN
                IF c.content IS DISTINCT FROM r.content THEN
                    RETURN ('key_reused', s.life, c.version, c.first_seq, c.count, 0, NULL, NULL, NULL, NULL, p_at)
                           ::everturn.outcome_v1;
                END IF;
                EXIT;
            END IF;
            c := NULL;
        END LOOP;
    END IF;
    IF c.version IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN ('replayed', s.life, c.version, c.first_seq, c.count, 0, c.snapshot_id, c.label, c.messages, c.created_at, p_at)
           ::everturn.outcome_v1;
END
$$;

-- The first receipt of a retry whose change was erased since with its session; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.recall_erased_v1(p_namespace text, r everturn.request_v1, p_at double precision)
RETURNS everturn.outcome_v1 LANGUAGE sql STABLE AS $$
    SELECT ('replayed', c.made ->> 0, (c.made ->> 1)::bigint, (c.made ->> 2)::bigint, (c.made ->> 3)::bigint, 0,
            r.snapshot_id, r.label, (c.made ->> 4)::bigint, (c.made ->> 5)::double precision, p_at)::everturn.outcome_v1
      FROM (SELECT t.calls -> encode(r.call, 'hex') AS made FROM everturn.tombstones t
             WHERE t.namespace = p_namespace AND t.digest = everturn.digest_v1(r.session_id)) c
     WHERE c.made IS NOT NULL
$$;
