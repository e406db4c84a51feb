-- Transfer: sessions in and out of the database, for copies between backends. JSON here is the exported form, as it is
-- (docs/storage.md).
--
-- A session that arrives is staged under a number of its own: a row of `sessions` that is `ended` and has no life ('').
-- One update makes it visible. Left alone, it is reaped when it expires.

CREATE OR REPLACE FUNCTION everturn.state_json_v1(head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN json_build_object('head', head, 'cleared', cleared, 'floor', floor, 'kept', kept, 'messages', messages);

-- All of a session's present life but its log and its changes; NULL if there is none.
CREATE OR REPLACE FUNCTION everturn.outline_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    at    double precision  := everturn.now_v1(p_now);
    s     everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    wrong text;
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    -- Sums that differ are an error here only where no entry is missing: else the copy can name the one that is.
    SELECT w.what INTO wrong FROM everturn.wrong_v1(s) AS w
     ORDER BY w.what LIKE 'bytes:%' OR w.what LIKE 'entries %' LIMIT 1;
    IF FOUND AND (NOT (wrong LIKE 'bytes:%' OR wrong LIKE 'entries %') OR NOT EXISTS (
            SELECT FROM everturn.roots_v1(s.no) AS r
             WHERE everturn.first_missing_v1(s.no, everturn.ranges_v1(s, r.head, r.floor + 1, r.head, NULL)) > 0)) THEN
        PERFORM everturn.damaged_v1(s.no, wrong);
    END IF;
    RETURN json_build_object(
        'session_id', s.session_id, 'life', s.life, 'version', s.version,
        'call', coalesce((SELECT encode(g.call, 'base64') FROM everturn.changes g
                           WHERE g.session = s.no AND g.version = s.version), ''),
        'last_seq', s.last_seq, 'state', everturn.state_json_v1(s.head, s.cleared, s.floor, s.kept, s.messages),
        'created_at', s.created_at, 'changed_at', s.changed_at, 'seen_at', at, 'ttl', s.ttl, 'expires_at', s.expires_at,
        'dimension', s.dimension, 'forked_from', s.forked_from,
        'jumps', coalesce((SELECT json_agg(json_build_array(j.seq, j.after) ORDER BY j.seq)
                             FROM everturn.jumps j WHERE j.session = s.no), '[]'),
        'snapshots', coalesce((SELECT json_agg(json_build_object(
                'id', n.snapshot_id, 'label', n.label, 'version', n.version, 'created_at', n.created_at,
                'state', everturn.state_json_v1(n.head, n.cleared, n.floor, n.kept, n.messages)) ORDER BY n.version)
            FROM everturn.snapshots n WHERE n.session = s.no), '[]'),
        'undo_steps', coalesce((SELECT json_agg(json_build_object(
                'version', u.version, 'kind', u.kind, 'moved_to', u.moved_to, 'hidden', u.hidden,
                'before', everturn.state_json_v1(u.head, u.cleared, u.floor, u.kept, u.messages)) ORDER BY u.version)
            FROM everturn.undo_steps u WHERE u.session = s.no), '[]'));
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

-- Changes of a session, in order, as a JSON array. Raises if one is lost or damaged.
CREATE OR REPLACE FUNCTION everturn.changes_json_v1(s everturn.sessions, p_after bigint, p_last bigint, p_limit bigint) RETURNS json
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    told  json;
    whole bigint;
    rows  bigint;
    upto  bigint;
BEGIN
    SELECT coalesce(json_agg(json_build_object(
               'version', g.version, 'kind', g.kind, 'first_seq', g.first_seq, 'count', g.count,
               'created_at', g.created_at, 'call', encode(g.call, 'base64'),
               'state', everturn.state_json_v1(coalesce(g.head, 0), g.cleared, g.floor, g.kept, g.messages),
               'readable', g.head IS NOT NULL AND g.version > s.forgotten,
               'key', encode(g.key, 'base64'), 'content', encode(g.content, 'base64'),
               'snapshot_id', g.snapshot_id, 'label', g.label) ORDER BY g.version), '[]'),
           count(*) FILTER (WHERE g.version > s.forgotten AND g.seal = everturn.change_seal_v1(
               g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
               g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)),
           count(*), max(g.version)
      INTO told, whole, rows, upto
      FROM (SELECT * FROM everturn.changes c
             WHERE c.session = s.no AND c.version > p_after AND c.version <= p_last
             ORDER BY c.version LIMIT p_limit) g;
    IF rows < p_limit OR upto IS NULL THEN
        upto := least(p_last, s.version);
    END IF;
    IF whole <> greatest(0, upto - greatest(p_after, s.forgotten)) THEN
        PERFORM everturn.damaged_v1(s.no, format('changes up to version %s are lost or damaged', upto));
    END IF;
    RETURN told;
END
$$;

-- The next rows of a life: entries, and behind them one row without a seq whose body is a JSON array of changes, NULL where
-- entries are left. No row at all: the life is over.
CREATE OR REPLACE FUNCTION everturn.portion_v1(
    p_namespace text, p_session_id text, p_life text, p_after_seq bigint, p_last_seq bigint, p_after_version bigint,
    p_last_version bigint, p_entries bigint, p_changes bigint, p_bytes bigint, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    s    everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    upto bigint;
    last everturn.row_v1;
BEGIN
    IF s.no IS NULL OR s.life <> p_life THEN
        RETURN;
    END IF;
    SELECT coalesce(max(q.seq), p_after_seq) INTO upto
      FROM (SELECT k.seq, sum(k.size) OVER (ORDER BY k.seq) - k.size AS before
              FROM (SELECT e.seq, octet_length(e.body) AS size FROM everturn.entries e
                     WHERE e.session = s.no AND e.seq > p_after_seq AND e.seq <= p_last_seq
                     ORDER BY e.seq LIMIT p_entries) k) q
     WHERE q.before < p_bytes;
    RETURN QUERY
        SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
               convert_to(e.body, 'UTF8'), e.kind, e.turn
          FROM everturn.entries e WHERE e.session = s.no AND e.seq > p_after_seq AND e.seq <= upto ORDER BY e.seq;
    IF NOT EXISTS (SELECT FROM everturn.entries e WHERE e.session = s.no AND e.seq > upto AND e.seq <= p_last_seq) THEN
        last.body := convert_to(
            everturn.changes_json_v1(s, p_after_version, p_last_version, p_changes)::text, 'UTF8');
    END IF;
    RETURN NEXT last;
END
$$;

-- Write rows under a session's number; those that are there are left as they are. Returns the counts of rows written.
CREATE OR REPLACE FUNCTION everturn.put_rows_v1(
    p_session bigint, p_seqs bigint[], p_turns bigint[], p_times double precision[], p_checksums bigint[], p_kinds text[],
    p_bodies text[], p_changes json
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    put everturn.reclaimed_v1;
BEGIN
    WITH written AS (
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT p_session, e.seq, e.turn, e.time,
               e.checksum % 4294967296 + everturn.place_v1(p_session, e.seq, e.turn, e.time, e.kind), e.kind, e.body
          FROM unnest(p_seqs, p_turns, p_times, p_checksums, p_kinds, p_bodies) AS e (seq, turn, time, checksum, kind, body)
            ON CONFLICT DO NOTHING
        RETURNING octet_length(body) AS bytes, kind
    )
    SELECT 1, count(*), coalesce(sum(bytes), 0), count(*) FILTER (WHERE kind <> 'message'), 0, 0 INTO put FROM written;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, snapshot_id, label, seal)
    SELECT g.*, everturn.change_seal_v1(
               g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
               g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)
      FROM (SELECT p_session AS session, (c ->> 'version')::bigint AS version, (c ->> 'first_seq')::bigint AS first_seq,
                   (c ->> 'count')::bigint AS count, CASE WHEN (c ->> 'readable')::boolean THEN t.head END AS head,
                   t.cleared, t.floor, t.messages, (c ->> 'created_at')::double precision AS created_at, t.kept,
                   c ->> 'kind' AS kind, decode(c ->> 'call', 'base64') AS call, decode(c ->> 'key', 'base64') AS key,
                   decode(c ->> 'content', 'base64') AS content, c ->> 'snapshot_id' AS snapshot_id, c ->> 'label' AS label
              FROM json_array_elements(p_changes) AS c
             CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, c -> 'state') AS t) AS g
        ON CONFLICT DO NOTHING;
    RETURN put;
END
$$;

-- Put rows where nobody sees them: under a number that was staged before, or a new one. Returns it; NULL if it has gone.
CREATE OR REPLACE FUNCTION everturn.stage_v1(
    p_namespace text, p_session_id text, p_version bigint, p_no bigint, p_for double precision, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    at   double precision := everturn.now_v1(p_now);
    seqs bigint[]         := p_seqs;
    no_  bigint           := p_no;
    put  everturn.reclaimed_v1;
BEGIN
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, everturn.fence_v1(p_namespace, p_session_id, NULL), at);
    IF p_no IS NULL THEN
        INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, messages, bytes,
                                       expires_at, created_at, changed_at, changed_in, expires_in)
        VALUES (p_namespace, p_session_id, true, '', p_version, 0, 0, 0, 0, at + p_for, at, at, everturn.step_v1(at),
                everturn.step_v1(at + p_for)) RETURNING no INTO no_;
    ELSIF everturn.arriving_v1(p_namespace, p_session_id, p_no, at) IS NULL THEN
        RETURN NULL;
    END IF;
    put := everturn.put_rows_v1(no_, seqs, p_turns::bigint[], p_times::double precision[], p_checksums::bigint[],
                                p_kinds, p_bodies, p_changes);
    UPDATE everturn.sessions n  -- last_seq and version: so that all of it can be reaped
       SET bytes = n.bytes + put.bytes, others = n.others + put.others, seal = NULL,
           last_seq = greatest(n.last_seq, seqs[cardinality(seqs)]), expires_at = at + p_for,
           expires_in = everturn.step_v1(at + p_for)
     WHERE n.no = no_;
    RETURN no_;
END
$$;

-- The bytes of the rows staged under a number, which is locked; NULL if it has gone.
CREATE OR REPLACE FUNCTION everturn.arriving_v1(p_namespace text, p_session_id text, p_no bigint, p_at double precision) RETURNS bigint
LANGUAGE sql AS $$
    SELECT n.bytes FROM everturn.sessions n
     WHERE n.no = p_no AND n.namespace = p_namespace AND n.session_id = p_session_id AND n.ended AND n.life = ''
       AND n.expires_at > p_at FOR UPDATE
$$;

-- Make a session visible in one step: the rows staged under p_no and these; or, without a number, these rows, added to the
-- session that is there. It must stand at p_onto ({"life", "version", "call"}); NULL: not be there.
CREATE OR REPLACE FUNCTION everturn.restore_v1(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    name text               := p_outline ->> 'session_id';
    now_ everturn.plan_v1   := json_populate_record(NULL::everturn.plan_v1, p_outline -> 'state');
    s    everturn.sessions;
    was  everturn.sessions;
    o    everturn.outcome_v1;
    at   double precision;
    past double precision;  -- the fence
    no_  bigint;
    size bigint;
    put  everturn.reclaimed_v1;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    o := ('applied', p_outline ->> 'life', (p_outline ->> 'version')::bigint, 0, 0, 0, NULL, NULL, NULL, NULL, NULL);
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = name AND NOT n.ended FOR UPDATE;
        at := everturn.now_v1(p_now);
        was := s;
        IF everturn.is_over_v1(s.expires_at, at) THEN
            s := NULL;
        END IF;
        o.told := at;
        past := CASE WHEN s.no IS NULL THEN everturn.fence_v1(p_namespace, name, was) ELSE s.fence END;
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, past, at);
        IF (s.life, s.version, (SELECT g.call FROM everturn.changes g WHERE g.session = s.no AND g.version = s.version))
           IS DISTINCT FROM
           (p_onto ->> 'life', (p_onto ->> 'version')::bigint, decode(p_onto ->> 'call', 'base64')) THEN
            o.status := 'exists';
            o.life := coalesce(s.life, '');
            o.version := coalesce(s.version, 0);
            RETURN o;
        END IF;
        IF p_no IS NOT NULL THEN
            no_ := p_no;
            size := everturn.arriving_v1(p_namespace, name, p_no, at);
            IF size IS NULL THEN
                o.status := 'moved';
                RETURN o;
            END IF;
            s.last_seq := 0;
            s.last_jump := 0;
        ELSIF s.no IS NOT NULL THEN
            no_ := s.no;
            size := s.bytes;
        ELSE
            INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, messages, bytes,
                                           created_at, changed_at, changed_in)
            VALUES (p_namespace, name, true, '', 0, 0, 0, 0, 0, at, at, everturn.step_v1(at)) RETURNING no INTO no_;
            size := 0;
        END IF;
        IF was.no <> no_ THEN
            UPDATE everturn.sessions n SET ended = true, expires_at = NULL, expires_in = NULL, seal = NULL  -- to be reaped now
             WHERE n.no = was.no;
        END IF;
        BEGIN
            UPDATE everturn.sessions n
               SET ended = false, life = o.life, version = o.version, last_seq = (p_outline ->> 'last_seq')::bigint,
                   head = now_.head, cleared = now_.cleared, floor = now_.floor, kept = now_.kept,
                   messages = now_.messages, dimension = (p_outline ->> 'dimension')::integer,
                   ttl = (p_outline ->> 'ttl')::double precision, expires_at = at + p_expires_in,
                   created_at = (p_outline ->> 'created_at')::double precision,
                   changed_at = (p_outline ->> 'changed_at')::double precision, forked_from = p_outline ->> 'forked_from',
                   changed_in = everturn.step_v1((p_outline ->> 'changed_at')::double precision),
                   expires_in = everturn.step_v1(at + p_expires_in), fence = past, seal = NULL
             WHERE n.no = no_;
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            PERFORM everturn.remove_v1(n, 1) FROM everturn.sessions n WHERE n.no = no_ AND p_no IS NULL;
            -- Another worker began it meanwhile: look again.
        END;
    END LOOP;
    PERFORM everturn.bind_lease_v5(p_namespace, name, o.life);
    put := everturn.put_rows_v1(no_, p_seqs::bigint[], p_turns::bigint[], p_times::double precision[],
                                p_checksums::bigint[], p_kinds, p_bodies, p_changes);
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT no_, j.seq, j.after, j.prior, everturn.jump_seal_v1(no_, j.seq, j.after, j.prior)
      FROM (SELECT k.seq, k.after, coalesce(lag(k.seq) OVER (ORDER BY k.seq), s.last_jump, 0) AS prior
              FROM (SELECT (i ->> 0)::bigint AS seq, (i ->> 1)::bigint AS after
                      FROM json_array_elements(p_outline -> 'jumps') AS i) k
             WHERE k.seq > coalesce(s.last_seq, 0)) j;
    DELETE FROM everturn.snapshots n WHERE n.session = no_;
    INSERT INTO everturn.snapshots (session, snapshot_id, label, version, head, cleared, floor, kept, messages, created_at)
    SELECT no_, n ->> 'id', n ->> 'label', (n ->> 'version')::bigint, t.head, t.cleared, t.floor, t.kept, t.messages,
           (n ->> 'created_at')::double precision
      FROM json_array_elements(p_outline -> 'snapshots') AS n
     CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, n -> 'state') AS t;
    DELETE FROM everturn.undo_steps u WHERE u.session = no_;
    INSERT INTO everturn.undo_steps (session, version, kind, moved_to, hidden, head, cleared, floor, kept, messages)
    SELECT no_, (u ->> 'version')::bigint, u ->> 'kind', (u ->> 'moved_to')::bigint, (u ->> 'hidden')::bigint,
           t.head, t.cleared, t.floor, t.kept, t.messages
      FROM json_array_elements(p_outline -> 'undo_steps') AS u
     CROSS JOIN LATERAL json_populate_record(NULL::everturn.plan_v1, u -> 'before') AS t;
    UPDATE everturn.sessions n
       SET bytes = size + put.bytes, others = n.others + put.others, seal = NULL,
           snapshots = (SELECT count(*) FROM everturn.snapshots k WHERE k.session = no_),
           undo_steps = (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = no_),
           last_jump = coalesce((SELECT max(j.seq) FROM everturn.jumps j WHERE j.session = no_), 0),
           forgotten = coalesce((SELECT max(g.version) - 1  -- from here on there is a change for every version
                                   FROM (SELECT c.version, lag(c.version) OVER (ORDER BY c.version) AS before
                                           FROM everturn.changes c WHERE c.session = no_) g
                                  WHERE g.version - 1 IS DISTINCT FROM g.before), o.version)
     WHERE n.no = no_;
    RETURN o;
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
    PERFORM everturn.link_effects_v5(no_);
    UPDATE everturn.sessions n
       SET facts = nullif((p_outline ->> 'facts')::jsonb, '{}'), seal = NULL,
           effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = no_)
     WHERE n.no = no_;
    RETURN o;
END
$$;
