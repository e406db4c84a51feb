-- Sessions found by their facts, and facts in answers about sessions.

-- A session (model.SessionInfo), as a JSON array.
CREATE OR REPLACE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from, coalesce((s).facts, '{}'));

CREATE TYPE everturn.listed_v4 AS (
    session_id  text,
    life        text,
    version     bigint,
    messages    bigint,
    last_seq    bigint,
    bytes       bigint,
    snapshots   bigint,
    undo_steps  bigint,
    created_at  double precision,
    changed_at  double precision,
    ttl         double precision,
    expires_at  double precision,
    forked_from text,
    facts       text
);

-- A page in byte order of the names. Sessions whose row is lost or hidden are on it as well, with zeros: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE FUNCTION everturn.sessions_by_name_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_since double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
               s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text
          FROM everturn.sessions s
         WHERE s.namespace = p_namespace AND NOT s.ended AND s.session_id > p_past AND s.session_id >= p_prefix
           AND (p_beyond IS NULL OR s.session_id < p_beyond)
           AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) AND s.changed_at >= p_since
         ORDER BY s.session_id LIMIT p_limit)
    SELECT * FROM page
    UNION ALL
    SELECT DISTINCT k.session_id, '', 0, 0, 0, 0, 0, 0, 0.0::float8, 0.0::float8, NULL::float8, NULL::float8, NULL, NULL
      FROM everturn.names k LEFT JOIN everturn.sessions s ON s.no = k.no
     WHERE p_since = 0 AND k.namespace = p_namespace AND k.session_id > p_past AND k.session_id >= p_prefix
       AND (p_beyond IS NULL OR k.session_id < p_beyond)
       AND ((SELECT count(*) FROM page) < p_limit OR k.session_id <= (SELECT max(page.session_id) FROM page))
       AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace
            OR ((s.ended OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))) AND NOT everturn.is_whole_v1(s)))
     ORDER BY session_id
$$;

-- A page with the latest changed first: five minutes from the index at a time, sorted.
CREATE FUNCTION everturn.sessions_by_change_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_before double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE AS $$
    SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
           s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text
      FROM everturn.sessions s
     WHERE s.namespace = p_namespace AND NOT s.ended AND (s.changed_at, s.session_id) < (p_before, p_past)
       AND s.session_id >= p_prefix AND (p_beyond IS NULL OR s.session_id < p_beyond)
       AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))
       AND s.changed_in <= everturn.step_v1(least(p_before, 1e15))
     ORDER BY s.changed_in DESC, s.changed_at DESC, s.session_id DESC LIMIT p_limit
$$;

-- A page of the sessions that have all these facts: in byte order of the names, or with the latest changed first (p_recent: before
-- p_bound and p_past; else past p_past, and changed since p_bound). The index of facts is read for the rarest of them.
CREATE FUNCTION everturn.sessions_by_fact_v4(
    p_namespace text, p_where jsonb, p_recent boolean, p_prefix text, p_beyond text, p_past text, p_bound double precision,
    p_limit bigint, p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE AS $$
DECLARE
    at     double precision := everturn.now_v1(p_now);
    rarest record;
    s      everturn.sessions;
    listed bigint := 0;
BEGIN
    SELECT w.key AS name, w.value INTO rarest FROM jsonb_each_text(p_where) AS w
     ORDER BY (SELECT count(*) FROM (SELECT FROM everturn.facts f
                                      WHERE f.namespace = p_namespace AND f.name = w.key AND f.value = w.value LIMIT 100) k)
     LIMIT 1;
    IF p_recent THEN
        RETURN QUERY
            SELECT n.session_id, n.life, n.version, n.messages, n.last_seq, n.bytes, n.snapshots, n.undo_steps,
                   n.created_at, n.changed_at, n.ttl, n.expires_at, n.forked_from, n.facts::text
              FROM everturn.facts f JOIN everturn.sessions n ON n.no = f.session
             WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value
               AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
               AND (n.changed_at, n.session_id) < (p_bound, p_past) AND NOT n.ended AND n.facts @> p_where
               AND NOT everturn.is_over_v1(n.expires_at, at)
             ORDER BY n.changed_at DESC, n.session_id DESC LIMIT p_limit;
        RETURN;
    END IF;
    FOR s IN
        SELECT n.* FROM everturn.facts f JOIN everturn.sessions n ON n.no = f.session
         WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value AND f.session_id > p_past
           AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
         ORDER BY f.session_id
    LOOP
        CONTINUE WHEN s.ended OR everturn.is_over_v1(s.expires_at, at) OR s.changed_at < p_bound;
        PERFORM everturn.check_session_v1(s);
        IF s.facts ->> rarest.name IS DISTINCT FROM rarest.value THEN
            PERFORM everturn.damaged_v1(s.no, format('the index of facts has not the fact %s of its row', rarest.name));
        END IF;
        CONTINUE WHEN NOT s.facts @> p_where;
        RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps, s.created_at,
                     s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        listed := listed + 1;
        EXIT WHEN listed = p_limit;
    END LOOP;
END
$$;
