-- Leases: the right to work on a session for a while. The rules are those of core/leases.py.

CREATE OR REPLACE FUNCTION everturn.lease_seal_v3(
    namespace text, session_id text, life text, token bigint, holder text, until double precision
) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to(namespace, 'UTF8'), convert_to(session_id, 'UTF8'), convert_to(life, 'UTF8'),
                     convert_to(holder, 'UTF8')]) || int8send(token) || float8send(until)) FROM 1 FOR 8);

-- Whether a lease is as it was written; NULL where there is none.
CREATE OR REPLACE FUNCTION everturn.is_sealed_v5(l everturn.leases) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN (l).seal = everturn.lease_seal_v3((l).namespace, (l).session_id, (l).life, (l).token, (l).holder, (l).until);

-- Whether a lease is in force, in this life of the session ('': there is none). One that ends later than the longest could was
-- taken before the clock was set back.
CREATE OR REPLACE FUNCTION everturn.in_force_v3(l everturn.leases, p_life text, p_at double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce((l).life IN ('', p_life) AND (l).until > p_at AND (l).until <= p_at + 86460, false);

-- Whether this lease is in force, as it was written, and the one with this token and holder (NULL or '': whoever holds it).
CREATE OR REPLACE FUNCTION everturn.is_named_v5(
    l everturn.leases, p_life text, p_token bigint, p_holder text, p_at double precision
) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
RETURN (l).token = p_token AND coalesce(nullif(p_holder, ''), (l).holder) = (l).holder AND everturn.in_force_v3(l, p_life, p_at)
       AND (l).seal = everturn.lease_seal_v3((l).namespace, (l).session_id, (l).life, (l).token, (l).holder, (l).until);

-- The lease of a session. Raises if it is not as it was written, or lost: `p_noted` is the token that the session's row notes of a
-- lease that was not released (NULL: it notes none). Else the holder of a lost lease and the next one would both believe that they have
-- it, with the same token. (No seal covers what is noted. So where there is a lease, that alone counts.)
CREATE OR REPLACE FUNCTION everturn.lease_of_v5(p_namespace text, p_session_id text, p_noted bigint) RETURNS everturn.leases
LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases;
BEGIN
    SELECT * INTO l FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id;
    IF NOT FOUND AND p_noted IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = 'its lease is lost', DETAIL = p_session_id;
    ELSIF FOUND AND l.seal <> everturn.lease_seal_v3(l.namespace, l.session_id, l.life, l.token, l.holder, l.until) THEN
        RAISE EXCEPTION USING ERRCODE = 'EVT01', MESSAGE = 'its lease is not as it was written', DETAIL = p_session_id;
    END IF;
    RETURN l;
END
$$;

-- The same, for workers of version 4 that are still open: they do not say what the session's row notes.
CREATE OR REPLACE FUNCTION everturn.lease_of_v3(p_namespace text, p_session_id text) RETURNS everturn.leases LANGUAGE plpgsql AS $$
BEGIN
    RETURN everturn.lease_of_v5(p_namespace, p_session_id, NULL);
END
$$;

-- Lock the lease of a session that is not there: no lease is taken while a session begins, and none begins while a lease is taken.
-- False: the session began while the lock was waited for. Then nothing is locked, and the caller looks again: whoever locks both rows
-- begins with the session's.
CREATE OR REPLACE FUNCTION everturn.is_absent_v5(p_namespace text, p_session_id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id FOR UPDATE;
    IF EXISTS (SELECT FROM everturn.sessions n
                WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended) THEN
        RAISE EXCEPTION USING ERRCODE = 'EVAGN', MESSAGE = 'the session began meanwhile';
    END IF;
    RETURN true;
EXCEPTION WHEN SQLSTATE 'EVAGN' THEN  -- which lets the lock go
    RETURN false;
END
$$;

-- Let a lease that was taken before the life began end with it. A row that is not as it was written stays so, and is noticed.
CREATE OR REPLACE FUNCTION everturn.bind_lease_v5(p_namespace text, p_session_id text, p_life text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE everturn.leases l
       SET life = p_life, seal = everturn.lease_seal_v3(l.namespace, l.session_id, p_life, l.token, l.holder, l.until)
     WHERE l.namespace = p_namespace AND l.session_id = p_session_id AND l.life = ''
       AND l.seal = everturn.lease_seal_v3(l.namespace, l.session_id, l.life, l.token, l.holder, l.until);
END
$$;

-- Whether the lease that a change names is in force. The session's row is locked, which keeps a lease from being taken; where there
-- is none, the lease's own row is (is_absent_v5).
CREATE OR REPLACE FUNCTION everturn.is_claimed_v3(
    p_namespace text, s everturn.sessions, r everturn.request_v1, p_at double precision
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v5(p_namespace, r.session_id, s.lease);  -- raises, if it is damaged
BEGIN
    RETURN coalesce(everturn.is_named_v5(l, coalesce(s.life, ''), r.lease_token, r.lease_holder, p_at), false);
END
$$;

-- Take, renew or release the lease of a session. It is no change: the version and the expiry stay. The row of the session is locked:
-- changes that are under way come before it, or after it.
CREATE OR REPLACE FUNCTION everturn.lease_v3(
    p_namespace text, p_session_id text, p_action text, p_holder text, p_token bigint, p_seconds double precision,
    p_patience integer, p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.lease_outcome_v3 LANGUAGE plpgsql AS $$
DECLARE
    s    everturn.sessions;
    l    everturn.leases;
    at   double precision;
    held boolean;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
        IF FOUND THEN
            PERFORM FROM everturn.leases k WHERE k.namespace = p_namespace AND k.session_id = p_session_id FOR UPDATE;
        ELSIF NOT everturn.is_absent_v5(p_namespace, p_session_id) THEN
            CONTINUE;
        ELSE
            PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
        END IF;
        l := everturn.lease_of_v5(p_namespace, p_session_id, s.lease);
        at := everturn.now_v1(p_now);  -- after both locks
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, NULL, at);
        IF s.no IS NULL OR everturn.is_over_v1(s.expires_at, at) THEN
            s.life := '';
        END IF;
        held := everturn.in_force_v3(l, s.life, at);
        IF p_action = 'take' THEN
            PERFORM everturn.check_session_v1(n) FROM everturn.sessions n WHERE n.no = s.no;
            IF held AND l.holder <> p_holder THEN
                RETURN ('lease_held', l.token, l.until, l.until - at, at)::everturn.lease_outcome_v3;
            END IF;
            l.token := CASE WHEN held THEN l.token ELSE coalesce(l.token, 0) + 1 END;
            l.life := s.life;
            l.until := at + p_seconds;
        ELSIF l.holder IS DISTINCT FROM p_holder OR p_token NOT IN (0, l.token) OR l.life NOT IN ('', s.life)
              OR (p_action = 'renew' AND NOT held) THEN
            RETURN ('lease_lost', 0, 0, 0, at)::everturn.lease_outcome_v3;
        ELSE
            l.until := CASE p_action WHEN 'renew' THEN at + p_seconds ELSE 0 END;
        END IF;
        l.seal := everturn.lease_seal_v3(p_namespace, p_session_id, l.life, l.token, p_holder, l.until);
        -- From here on no turn is written that names another lease, or one that was released: also none that waits for this row.
        UPDATE everturn.sessions n SET lease = CASE WHEN l.until > 0 THEN l.token END
         WHERE n.no = s.no AND n.lease IS DISTINCT FROM CASE WHEN l.until > 0 THEN l.token END;
        IF l.namespace IS NOT NULL THEN
            UPDATE everturn.leases k SET life = l.life, token = l.token, holder = p_holder, until = l.until, seal = l.seal
             WHERE k.namespace = p_namespace AND k.session_id = p_session_id;
            EXIT;
        END IF;
        INSERT INTO everturn.leases (namespace, session_id, life, token, holder, until, seal)
        VALUES (p_namespace, p_session_id, l.life, l.token, p_holder, l.until, l.seal) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;  -- else another worker took it meanwhile: look again
    END LOOP;
    RETURN ('applied', l.token, l.until, greatest(l.until - at, 0), at)::everturn.lease_outcome_v3;
END
$$;
