-- Effects are counted in the row of their session, so that none is missed: one that vanishes would begin again.

ALTER TABLE everturn.sessions ADD COLUMN effects bigint NOT NULL DEFAULT 0;

-- The seal of a session, as before; and over the number of its effects, if it has any.
CREATE OR REPLACE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])
    || CASE WHEN (s).facts IS NULL THEN '' ELSE convert_to((s).facts::text, 'UTF8') END
    || CASE WHEN (s).effects <> 0 THEN int8send((s).effects) ELSE '' END) FROM 1 FOR 8);

-- (A session that is damaged stays as it is: the trigger that seals would refuse it, and the migration with it.)
UPDATE everturn.sessions n
   SET effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no), seal = NULL
 WHERE EXISTS (SELECT FROM everturn.effects e WHERE e.session = n.no) AND everturn.is_whole_v1(n);

-- End a session that is to be erased, as before. One that was put together from what is left of it has no count of effects.
CREATE OR REPLACE FUNCTION everturn.end_erased_v1(s everturn.sessions, p_at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.sessions n WHERE n.no = s.no;
    DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
    s.ended := true;
    s.life := '-';
    s.version := 9223372036854775807;
    s.last_seq := 9223372036854775807;
    s.effects := coalesce(s.effects, 0);
    s.changed_at := p_at;
    s.changed_in := everturn.step_v1(p_at);
    s.expires_at := p_at + 60;
    s.expires_in := everturn.step_v1(p_at + 60);
    s.seal := everturn.session_seal_v1(s);
    s.tally := everturn.tally_v1(s.version, s.last_seq, s.head, s.messages, s.bytes, s.changed_at, s.expires_at) % 1099511627689;
    INSERT INTO everturn.sessions OVERRIDING SYSTEM VALUE VALUES (s.*);
END
$$;

-- Raise if a session has not as many effects as it should. By one statement: all that it sees is of one moment.
CREATE FUNCTION everturn.check_effects_v4(p_session bigint) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM FROM everturn.sessions n
      WHERE n.no = p_session AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    IF FOUND THEN
        PERFORM everturn.damaged_v1(p_session, 'some of its effects are lost');
    END IF;
END
$$;

-- An effect of a session; NULL if it was never begun. Raises if it is not as it was written, or if one is lost.
CREATE OR REPLACE FUNCTION everturn.effect_of_v3(p_session bigint, p_key text) RETURNS everturn.effects
LANGUAGE plpgsql STABLE AS $$
DECLARE
    e everturn.effects;
BEGIN
    SELECT * INTO e FROM everturn.effects k WHERE k.session = p_session AND k.key = p_key;
    IF NOT FOUND THEN
        PERFORM everturn.check_effects_v4(p_session);
    ELSIF e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) THEN
        PERFORM everturn.damaged_v1(p_session, format('the effect %s is not as it was written', p_key));
    END IF;
    RETURN e;
END
$$;

-- Write the effect that a change begins or ends. `s` is the session before it.
CREATE OR REPLACE FUNCTION everturn.write_effect_v3(s everturn.sessions, r everturn.request_v1, p_at double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    e      everturn.effects := everturn.effect_of_v3(s.no, r.label);
    is_new boolean          := e.key IS NULL;
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
        UPDATE everturn.sessions t SET effects = t.effects + 1, seal = NULL WHERE t.no = s.no;
    END IF;
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
