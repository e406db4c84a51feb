-- Effects: things done in the world for a session, begun and ended in it. The rules are those of core/plan_change.py. They are
-- counted in the row of their session, so that none is missed: one that vanishes would begin again.

CREATE OR REPLACE FUNCTION everturn.effect_seal_v3(e everturn.effects) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[(e).session, (e).attempt, (e).began, (e).ended, (e).token]) || array_send(ARRAY[(e).at, (e).ended_at])
    || array_send(ARRAY[convert_to((e).key, 'UTF8'), convert_to((e).status, 'UTF8'), convert_to((e).by, 'UTF8'),
                        convert_to((e).request, 'UTF8'), convert_to((e).result, 'UTF8'), convert_to((e).error, 'UTF8'),
                        convert_to((e).note, 'UTF8')])) FROM 1 FOR 8);

-- Raise if a session has not as many effects as it should. By one statement: all that it sees is of one moment.
CREATE OR REPLACE FUNCTION everturn.check_effects_v4(p_session bigint) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM FROM everturn.sessions n
      WHERE n.no = p_session AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    IF FOUND THEN
        PERFORM everturn.damaged_v1(p_session, 'some of its effects are lost');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION everturn.effect_key_seal_v5(session bigint, key text, next_key text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    int8send(session) || array_send(ARRAY[convert_to(key, 'UTF8'), convert_to(next_key, 'UTF8')])) FROM 1 FOR 8);

-- The link between the two keys, one after the other, that a key which was never begun is between. Raises if no link shows that. It
-- does not matter why: whatever the search leads to, a link with its seal that spans the key was written, and would have been replaced
-- if the key had been begun. NULL for a session without effects. `p_effects`: how many it has.
CREATE OR REPLACE FUNCTION everturn.spanning_link_v5(p_session bigint, p_effects bigint, p_key text) RETURNS everturn.effect_keys
LANGUAGE plpgsql STABLE AS $$
DECLARE
    k everturn.effect_keys;
BEGIN
    IF coalesce(p_effects, 0) = 0 THEN
        RETURN NULL;
    END IF;
    SELECT * INTO k FROM everturn.effect_keys l WHERE l.session = p_session AND l.key < p_key ORDER BY l.key DESC LIMIT 1;
    IF NOT FOUND THEN  -- it is before the first: the last is linked to that
        SELECT * INTO k FROM everturn.effect_keys l WHERE l.session = p_session ORDER BY l.key DESC LIMIT 1;
    END IF;
    IF (k.session = p_session AND k.seal = everturn.effect_key_seal_v5(k.session, k.key, k.next_key)
        AND CASE WHEN k.key COLLATE "C" < k.next_key COLLATE "C"
                 THEN p_key COLLATE "C" > k.key COLLATE "C" AND p_key COLLATE "C" < k.next_key COLLATE "C"
                 ELSE p_key COLLATE "C" > k.key COLLATE "C" OR p_key COLLATE "C" < k.next_key COLLATE "C" END) IS NOT TRUE THEN
        PERFORM everturn.damaged_v1(
            p_session, format('some of its effects are lost: nothing shows that %s was never begun', p_key));
    END IF;
    RETURN k;
END
$$;

-- Link the effects of a session as they are, in place of the links that it has.
CREATE OR REPLACE FUNCTION everturn.link_effects_v5(p_session bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.effect_keys k WHERE k.session = p_session;
    INSERT INTO everturn.effect_keys (session, key, next_key, seal)
    SELECT p_session, l.key, l.next_key, everturn.effect_key_seal_v5(p_session, l.key, l.next_key)
      FROM (SELECT e.key, coalesce(lead(e.key) OVER in_order, first_value(e.key) OVER in_order) AS next_key
              FROM everturn.effects e WHERE e.session = p_session
            WINDOW in_order AS (ORDER BY e.key)) l;
END
$$;

-- An effect of a session; NULL if it is not there: spanning_link_v5 says whether it was never begun. Raises if it is not as it was written.
CREATE OR REPLACE FUNCTION everturn.effect_of_v5(p_session bigint, p_key text) RETURNS everturn.effects
LANGUAGE plpgsql STABLE AS $$
DECLARE
    e everturn.effects;
BEGIN
    SELECT * INTO e FROM everturn.effects k WHERE k.session = p_session AND k.key = p_key;
    IF FOUND AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) THEN
        PERFORM everturn.damaged_v1(p_session, format('the effect %s is not as it was written', p_key));
    END IF;
    RETURN e;
END
$$;

-- An effect as JSON. Its bodies are texts in it.
CREATE OR REPLACE FUNCTION everturn.effect_json_v3(e everturn.effects, p_held bigint) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
SET extra_float_digits = 1 AS $$
    SELECT json_build_object(
        'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'ended', e.ended, 'token', e.token, 'by', e.by,
        'at', e.at, 'ended_at', e.ended_at, 'request', e.request, 'result', e.result, 'error', e.error, 'note', e.note,
        'held', e.token > 0 AND e.token = p_held)
$$;

-- The token of the lease that is held; 0 if none is.
CREATE OR REPLACE FUNCTION everturn.held_v3(p_namespace text, s everturn.sessions, p_at double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v5(p_namespace, s.session_id, s.lease);
BEGIN
    RETURN CASE WHEN everturn.in_force_v3(l, s.life, p_at) THEN l.token ELSE 0 END;
END
$$;

-- The effect that a request is about, for the answer to it; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.effect_text_v5(
    p_namespace text, s everturn.sessions, e everturn.effects, p_at double precision
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN e.key IS NOT NULL THEN everturn.effect_json_v3(
        e, CASE WHEN e.token > 0 THEN everturn.held_v3(p_namespace, s, p_at) END)::text END;
END
$$;

-- The plan for a request that begins or ends an effect, which is `e`, or the reason of its refusal. The state stays.
CREATE OR REPLACE FUNCTION everturn.plan_effect_v5(s everturn.sessions, r everturn.request_v1, e everturn.effects)
RETURNS everturn.plan_v1 LANGUAGE plpgsql AS $$
DECLARE
    p everturn.plan_v1;
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF r.kind = 'begin_effect' THEN
        IF e.status = 'finished' OR (e.status = 'started' AND e.attempt <> r.effect_attempt) THEN
            p.refusal := 'unchanged';
        END IF;
    ELSIF e.key IS NULL THEN
        p.refusal := 'no_effect';
    ELSIF r.effect_attempt NOT IN (0, e.attempt) THEN
        p.refusal := 'effect_repeated';
    ELSIF e.status <> 'started' THEN
        p.refusal := 'effect_ended';
    END IF;
    RETURN p;
END
$$;

-- Write the effect that a change begins or ends. `s` and `e` are the session and the effect before it, `k` the link that shows that
-- there was no such effect.
CREATE OR REPLACE FUNCTION everturn.write_effect_v5(
    s everturn.sessions, r everturn.request_v1, e everturn.effects, k everturn.effect_keys, p_at double precision
) RETURNS everturn.effects LANGUAGE plpgsql AS $$
DECLARE
    is_new boolean := e.key IS NULL;
BEGIN
    IF r.kind = 'begin_effect' THEN
        e := (s.no, r.label, 'started', coalesce(e.attempt, 0) + 1, s.version + 1, 0, coalesce(r.lease_token, 0), r.effect_by, p_at,
              NULL, coalesce(r.effect_body, e.request), NULL, NULL, NULL, NULL)::everturn.effects;
    ELSE
        e.ended := s.version + 1;
        e.ended_at := p_at;
        e.note := r.effect_note;
        IF r.kind = 'finish_effect' THEN
            e.status := 'finished';
            e.result := r.effect_body;
        ELSE
            e.status := 'failed';
            e.error := r.effect_body;
        END IF;
    END IF;
    e.seal := everturn.effect_seal_v3(e);
    INSERT INTO everturn.effects VALUES (e.*)
        ON CONFLICT (session, key) DO UPDATE
       SET status = EXCLUDED.status, attempt = EXCLUDED.attempt, began = EXCLUDED.began, ended = EXCLUDED.ended,
           token = EXCLUDED.token, by = EXCLUDED.by, at = EXCLUDED.at, ended_at = EXCLUDED.ended_at, request = EXCLUDED.request,
           result = EXCLUDED.result, error = EXCLUDED.error, note = EXCLUDED.note, seal = EXCLUDED.seal;
    IF is_new THEN
        UPDATE everturn.effect_keys l
           SET next_key = e.key, seal = everturn.effect_key_seal_v5(s.no, k.key, e.key)
         WHERE l.session = s.no AND l.key = k.key;
        k.next_key := coalesce(k.next_key, e.key);
        INSERT INTO everturn.effect_keys (session, key, next_key, seal)
        VALUES (s.no, e.key, k.next_key, everturn.effect_key_seal_v5(s.no, e.key, k.next_key));
    END IF;
    RETURN e;
END
$$;

-- The effects of a session's present life, in the order in which they were begun, as JSON; NULL if there is no session.
CREATE OR REPLACE FUNCTION everturn.effects_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    s     everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    held  bigint;
    wrong text;
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT e.key INTO wrong FROM everturn.effects e
     WHERE e.session = s.no AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) LIMIT 1;
    IF FOUND THEN
        PERFORM everturn.damaged_v1(s.no, format('the effect %s is not as it was written', wrong));
    END IF;
    PERFORM everturn.check_effects_v4(s.no);
    held := everturn.held_v3(p_namespace, s, everturn.now_v1(p_now));
    RETURN json_build_object('life', s.life, 'version', s.version, 'effects', coalesce(
        (SELECT json_agg(everturn.effect_json_v3(e, held) ORDER BY e.began, e.key) FROM everturn.effects e
          WHERE e.session = s.no), '[]'));
END
$$;

-- The effects of a session go when its row goes, and so does the lease of that life.
CREATE OR REPLACE FUNCTION everturn.forget_effects_v3() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.effects e WHERE e.session = OLD.no;
    DELETE FROM everturn.effect_keys k WHERE k.session = OLD.no;
    DELETE FROM everturn.leases l WHERE l.namespace = OLD.namespace AND l.session_id = OLD.session_id AND l.life = OLD.life;
    RETURN NULL;
END
$$;
