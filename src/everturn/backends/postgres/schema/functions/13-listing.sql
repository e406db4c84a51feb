-- Reads across sessions: pages of them, and text search.

-- A page in byte order of the names. Sessions whose row is lost or hidden are on it as well, with zeros: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE OR REPLACE FUNCTION everturn.sessions_by_name_v4(
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
CREATE OR REPLACE FUNCTION everturn.sessions_by_change_v4(
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
CREATE OR REPLACE FUNCTION everturn.sessions_by_fact_v4(
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

-- A time before which no change is still under way: a change that commits after this call has a later one.
CREATE OR REPLACE FUNCTION everturn.began_v1(p_now double precision) RETURNS double precision
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN coalesce(p_now, least(everturn.now_v1(NULL), (
        SELECT extract(epoch FROM min(a.xact_start))::double precision FROM pg_stat_activity a
         WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend')));
END
$$;

-- Visible entries whose body is like the pattern, newest first, before (p_session, p_seq): at most p_limit of them.
-- ILIKE on a column that is COLLATE "C" folds the ASCII letters and no others, as core/text_search.py does.
-- Session by session, and down the path of each as far as there are matches, past what is not on it.
CREATE OR REPLACE FUNCTION everturn.find_v1(
    p_namespace text, p_session_id text, p_pattern text, p_session bigint, p_seq bigint, p_limit integer,
    p_now double precision
) RETURNS SETOF everturn.match_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    at    double precision := everturn.now_v1(p_now);
    next  bigint := p_session;
    s     everturn.sessions;
    r     everturn.ranges_v1;
    m     everturn.match_v1;
    upto  bigint;
    found integer := 0;
BEGIN
    IF p_session_id IS NOT NULL THEN
        s := everturn.session_v1(p_namespace, p_session_id, p_now);
        next := s.no;
    END IF;
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.no <= next AND n.namespace || '' = p_namespace  -- so written, it can be read by number only
           AND NOT n.ended AND NOT everturn.is_over_v1(n.expires_at, at)
         ORDER BY n.no DESC
    LOOP
        PERFORM everturn.check_session_v1(s);
        upto := CASE WHEN s.no = p_session THEN least(s.head, p_seq - 1) ELSE s.head END;
        r.at := s.head;
        WHILE r.at > 0 LOOP
            r := everturn.ranges_v1(s, r.at, 1, upto, 1000);
            FOR m IN  -- in the order of the ranges, and within each from its end: nothing is sorted, so the first come at once
                SELECT e.session, s.session_id, e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(r.firsts, r.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND (n.seq > s.floor OR n.seq = ANY (s.kept) OR n.kind = 'summary' AND n.seq > s.cleared)
                                        AND n.body ILIKE p_pattern
                                      ORDER BY n.seq DESC OFFSET 0) AS e
            LOOP
                RETURN NEXT m;
                found := found + 1;
                IF found = p_limit THEN
                    RETURN;
                END IF;
            END LOOP;
        END LOOP;
        EXIT WHEN p_session_id IS NOT NULL;
    END LOOP;
END
$$;
