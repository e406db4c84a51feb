-- Effects: things done in the world for a session, begun and ended in it. The rules are those of core/plan_change.py.

-- Effects of a session, by key. They belong to the life: no rollback, undo, trim, fold or clear touches them.
CREATE TABLE everturn.effects (
    session  bigint           NOT NULL,
    key      text             COLLATE "C" NOT NULL,
    status   text             COLLATE "C" NOT NULL,  -- started, finished, failed
    attempt  bigint           NOT NULL,
    began    bigint           NOT NULL,              -- version of the change that began it
    ended    bigint           NOT NULL,              -- version of the change that ended it; 0 while it is started
    token    bigint           NOT NULL,              -- of the lease it was begun under; 0 for none
    by       text             COLLATE "C" NOT NULL,
    at       double precision NOT NULL,
    ended_at double precision,
    request  text             COLLATE "C",           -- JSON, like the next two; text, as the bodies of entries
    result   text             COLLATE "C",
    error    text             COLLATE "C",
    note     text             COLLATE "C",           -- reason of a person who ended it
    seal     bytea,                                  -- effect_seal_v3
    PRIMARY KEY (session, key)
);

CREATE FUNCTION everturn.effect_seal_v3(e everturn.effects) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[(e).session, (e).attempt, (e).began, (e).ended, (e).token]) || array_send(ARRAY[(e).at, (e).ended_at])
    || array_send(ARRAY[convert_to((e).key, 'UTF8'), convert_to((e).status, 'UTF8'), convert_to((e).by, 'UTF8'),
                        convert_to((e).request, 'UTF8'), convert_to((e).result, 'UTF8'), convert_to((e).error, 'UTF8'),
                        convert_to((e).note, 'UTF8')])) FROM 1 FOR 8);

-- An effect of a session; NULL if it was never begun. Raises if it is not as it was written.
CREATE FUNCTION everturn.effect_of_v3(p_session bigint, p_key text) RETURNS everturn.effects LANGUAGE plpgsql STABLE AS $$
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
CREATE FUNCTION everturn.effect_json_v3(e everturn.effects, p_held bigint) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE
SET extra_float_digits = 1 AS $$
    SELECT json_build_object(
        'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'ended', e.ended, 'token', e.token, 'by', e.by,
        'at', e.at, 'ended_at', e.ended_at, 'request', e.request, 'result', e.result, 'error', e.error, 'note', e.note,
        'held', e.token > 0 AND e.token = p_held)
$$;

-- The token of the lease that is held; 0 if none is.
CREATE FUNCTION everturn.held_v3(p_namespace text, s everturn.sessions, p_at double precision) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    l everturn.leases := everturn.lease_of_v3(p_namespace, s.session_id);
BEGIN
    RETURN CASE WHEN everturn.in_force_v3(l, s.life, p_at) THEN l.token ELSE 0 END;
END
$$;

-- The effect that a request is about, for the answer to it; NULL if there is none.
CREATE FUNCTION everturn.effect_text_v3(p_namespace text, s everturn.sessions, p_key text, p_at double precision) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    e everturn.effects := everturn.effect_of_v3(s.no, p_key);
BEGIN
    RETURN CASE WHEN e.key IS NOT NULL THEN everturn.effect_json_v3(e, everturn.held_v3(p_namespace, s, p_at))::text END;
END
$$;

-- The plan for a request that begins or ends an effect, or the reason of its refusal. The state stays.
CREATE FUNCTION everturn.plan_effect_v3(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p everturn.plan_v1;
    e everturn.effects := everturn.effect_of_v3(s.no, r.label);
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

-- Write the effect that a change begins or ends. `s` is the session before it.
CREATE FUNCTION everturn.write_effect_v3(s everturn.sessions, r everturn.request_v1, p_at double precision) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    e everturn.effects := everturn.effect_of_v3(s.no, r.label);
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
END
$$;

-- The effects of a session's present life, in the order in which they were begun, as JSON; NULL if there is no session.
CREATE FUNCTION everturn.effects_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS json
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
    held := everturn.held_v3(p_namespace, s, everturn.now_v1(p_now));
    RETURN json_build_object('life', s.life, 'version', s.version, 'effects', coalesce(
        (SELECT json_agg(everturn.effect_json_v3(e, held) ORDER BY e.began, e.key) FROM everturn.effects e
          WHERE e.session = s.no), '[]'));
END
$$;

-- The effects of a session go when its row goes, and so does the lease of that life.
CREATE FUNCTION everturn.forget_effects_v3() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.effects e WHERE e.session = OLD.no;
    DELETE FROM everturn.leases l WHERE l.namespace = OLD.namespace AND l.session_id = OLD.session_id AND l.life = OLD.life;
    RETURN NULL;
END
$$;

CREATE TRIGGER forget_effects AFTER DELETE ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.forget_effects_v3();

-- Everything stored of a session, as verify_v1, and damaged effects.
CREATE FUNCTION everturn.verify_v3(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.verify_v1(p_namespace, p_session_id, p_now);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the effect %s is not as it was written', e.key), NULL::json
          FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e);
END
$$;

-- All of a session's present life but its log and its changes, as outline_v1, and its effects, whose bodies are JSON in it.
CREATE FUNCTION everturn.outline_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    outline json := everturn.outline_v1(p_namespace, p_session_id, p_now);
    no_     bigint;
    told    json;
BEGIN
    IF outline IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT n.no INTO no_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    IF EXISTS (SELECT FROM everturn.effects e
                WHERE e.session = no_ AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e)) THEN
        PERFORM everturn.damaged_v1(no_, 'an effect is not as it was written');
    END IF;
    SELECT json_agg(json_build_object(
               'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'at', e.at, 'by', e.by,
               'ended', e.ended, 'ended_at', e.ended_at, 'token', e.token, 'request', e.request::json,
               'result', e.result::json, 'error', e.error::json, 'note', e.note) ORDER BY e.began, e.key)
      INTO told FROM everturn.effects e WHERE e.session = no_;
    -- As text: jsonb, which could be added to, refuses \u0000.
    RETURN CASE WHEN told IS NULL THEN outline::text
                ELSE left(outline::text, -1) || ', "effects": ' || told::text || '}' END;
END
$$;

-- Make a session visible that arrives, as restore_v1, with its effects, as effect_json_v3 has them: bodies are texts there, because no
-- operator of json takes \u0000.
CREATE FUNCTION everturn.restore_v3(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_effects json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    o everturn.outcome_v1 := everturn.restore_v1(
        p_namespace, p_outline, p_expires_in, p_onto, p_no, p_seqs, p_turns, p_times, p_checksums, p_kinds, p_bodies, p_changes,
        p_patience, p_issued, p_not_after, p_now);
    no_ bigint;
BEGIN
    IF o.status <> 'applied' THEN
        RETURN o;
    END IF;
    SELECT n.no INTO no_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_outline ->> 'session_id' AND NOT n.ended;
    DELETE FROM everturn.effects e WHERE e.session = no_;
    INSERT INTO everturn.effects (session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note)
    SELECT no_, e ->> 'key', e ->> 'status', (e ->> 'attempt')::bigint, (e ->> 'began')::bigint,
           (e ->> 'ended')::bigint, (e ->> 'token')::bigint, e ->> 'by', (e ->> 'at')::double precision,
           (e ->> 'ended_at')::double precision, e ->> 'request', e ->> 'result', e ->> 'error', e ->> 'note'
      FROM json_array_elements(p_effects) AS e;
    UPDATE everturn.effects e SET seal = everturn.effect_seal_v3(e) WHERE e.session = no_;
    RETURN o;
END
$$;
