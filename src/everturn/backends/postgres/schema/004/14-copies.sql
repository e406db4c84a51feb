-- Facts in copies, forks and verification.

-- Begin a fork. The copy has the facts of its source: whoever erases by a fact must find it.
CREATE OR REPLACE FUNCTION everturn.begin_fork_v1(
    s everturn.sessions, p everturn.plan_v1, p_target text, p_until double precision, p_at double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    no_    bigint;
    path   everturn.ranges_v1 := everturn.ranges_v1(s, p.head, 1, p.head, NULL);
    whole  everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.floor + 1, p.head, NULL);
    hidden everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.cleared + 1, p.floor, NULL);
BEGIN
    INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept, messages,
                                   bytes, dimension, expires_at, created_at, changed_at, forked_from, changed_in, expires_in,
                                   last_jump, facts)
    VALUES (s.namespace, p_target, true, '', 1, p.head, p.head, p.cleared, p.floor, p.kept, p.messages,
            0, s.dimension, p_until, p_at, p_at, s.session_id, everturn.step_v1(p_at), everturn.step_v1(p_until),
            CASE WHEN path.firsts[1] > 1 THEN path.firsts[1] ELSE 0 END, s.facts)
    RETURNING no INTO no_;
    -- The jumps on the way, and no others: each but the first range begins with one.
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT no_, j.seq, j.after, j.prior, everturn.jump_seal_v1(no_, j.seq, j.after, j.prior)
      FROM (SELECT k.first AS seq, coalesce(lead(k.last) OVER way, 0) AS after,
                   CASE WHEN lead(k.first) OVER way > 1 THEN lead(k.first) OVER way ELSE 0 END AS prior
              FROM unnest(path.firsts, path.lasts) WITH ORDINALITY AS k (first, last, place)
            WINDOW way AS (ORDER BY k.place)) j
     WHERE j.seq > 1;
    INSERT INTO everturn.forks (no, source, next, rest) VALUES (no_, s.no, p.head, whole.size);
    PERFORM everturn.copy_entries_v1(s.no, no_, p.kept, p.kept, false),
            everturn.copy_entries_v1(s.no, no_, hidden.firsts, hidden.lasts, true);
    RETURN no_;
END
$$;

-- Everything stored of a session, and damaged effects and facts.
CREATE OR REPLACE FUNCTION everturn.verify_v3(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.verify_v1(p_namespace, p_session_id, p_now);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the effect %s is not as it was written', e.key), NULL::json
          FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'some of its effects are lost', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'the index of facts has not the facts of its row', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.facts IS DISTINCT FROM (
               SELECT jsonb_object_agg(f.name, f.value) FROM everturn.facts f
                WHERE f.session = n.no AND f.namespace = n.namespace AND f.session_id = n.session_id);
END
$$;

-- All of a session's present life but its log and its changes, with its effects and its facts.
CREATE OR REPLACE FUNCTION everturn.outline_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    outline json := everturn.outline_v1(p_namespace, p_session_id, p_now);
    no_     bigint;
    told    json;
    facts_  jsonb;
BEGIN
    IF outline IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT n.no, n.facts INTO no_, facts_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    IF EXISTS (SELECT FROM everturn.effects e
                WHERE e.session = no_ AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e)) THEN
        PERFORM everturn.damaged_v1(no_, 'an effect is not as it was written');
    END IF;
    PERFORM everturn.check_effects_v4(no_);
    SELECT json_agg(json_build_object(
               'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'at', e.at, 'by', e.by,
               'ended', e.ended, 'ended_at', e.ended_at, 'token', e.token, 'request', e.request::json,
               'result', e.result::json, 'error', e.error::json, 'note', e.note) ORDER BY e.began, e.key)
      INTO told FROM everturn.effects e WHERE e.session = no_;
    -- As text: jsonb, which could be added to, refuses \u0000.
    RETURN left(outline::text, -1) || coalesce(', "effects": ' || told::text, '')
           || coalesce(', "facts": ' || facts_::text, '') || '}';
END
$$;

-- Make a session visible that arrives, with its effects, as effect_json_v3 has them, and its facts.
CREATE OR REPLACE FUNCTION everturn.restore_v3(
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
    UPDATE everturn.sessions n
       SET facts = nullif((p_outline ->> 'facts')::jsonb, '{}'), seal = NULL,
           effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = no_)
     WHERE n.no = no_;
    RETURN o;
END
$$;
