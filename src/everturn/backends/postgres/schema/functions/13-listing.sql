-- Reads across sessions: pages of them, and text search.

-- Names within these bounds whose session is lost or hidden: `names` has them, and the row of `sessions` is not there, has another
-- name, or is on no page and not as it was written.
CREATE OR REPLACE FUNCTION everturn.hidden_names_v5(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_last text, p_at double precision
) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT DISTINCT k.session_id
      FROM everturn.names k
      LEFT JOIN LATERAL (SELECT n.namespace, n.session_id,
                                (n.ended OR everturn.is_over_v1(n.expires_at, p_at) OR n.changed_at < 0 OR n.changed_in IS NULL)
                                AND NOT everturn.is_whole_v1(n) AS is_hidden
                           FROM everturn.sessions n WHERE n.no = k.no OFFSET 0) AS s ON true
     WHERE k.namespace = p_namespace AND k.session_id > p_past AND k.session_id >= p_prefix
       AND k.session_id <= coalesce(p_last, p_beyond, repeat(chr(1114111), 129))  -- at the end: longer than any id
       AND (p_beyond IS NULL OR k.session_id < p_beyond)
       AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace OR s.is_hidden)
$$;

-- A page in byte order of the names. Sessions whose row is lost, hidden or damaged are on it as well, with zeros: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE OR REPLACE FUNCTION everturn.sessions_by_name_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_since double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT s.*, everturn.is_whole_v1(s) AS is_whole
          FROM everturn.sessions s
         WHERE s.namespace = p_namespace AND NOT s.ended AND s.session_id > p_past AND s.session_id >= p_prefix
           AND (p_beyond IS NULL OR s.session_id < p_beyond)
           AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) AND s.changed_at >= p_since
         ORDER BY s.session_id LIMIT p_limit)
    SELECT p.session_id, p.life, p.version, p.messages, p.last_seq, p.bytes, p.snapshots, p.undo_steps,
           p.created_at, p.changed_at, p.ttl, p.expires_at, p.forked_from, p.facts::text
      FROM page p WHERE p.is_whole
    UNION ALL
    SELECT k.name, '', 0, 0, 0, 0, 0, 0, 0.0::float8, 0.0::float8, NULL::float8, NULL::float8, NULL, NULL
      FROM (SELECT p.session_id FROM page p WHERE NOT p.is_whole
            UNION
            SELECT everturn.hidden_names_v5(
                p_namespace, p_prefix, p_beyond, p_past,
                (SELECT CASE count(*) WHEN p_limit THEN max(p.session_id) END FROM page p), everturn.now_v1(p_now))) AS k (name)
     ORDER BY session_id
$$;

-- A page with the latest changed first: five minutes from the index at a time, sorted. Raises for a session that is not as it was
-- written: its time cannot be trusted, so nobody knows its place. One whose time is wrong comes first of its five minutes,
-- whatever the time is; a later time than p_before as well. The first page (p_before: 1e300), if it has all sessions, raises for
-- those whose row is lost or hidden, too. Else the page by name does that, which comes last.
CREATE OR REPLACE FUNCTION everturn.sessions_by_change_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_before double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE AS $$
DECLARE
    at       double precision := everturn.now_v1(p_now);
    is_first boolean          := p_before >= 1e300;
    listed   bigint           := 0;
    s        record;
BEGIN
    FOR s IN
        SELECT n.*, everturn.is_whole_v1(n) AS is_whole FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND NOT n.ended
           AND n.session_id >= p_prefix AND (p_beyond IS NULL OR n.session_id < p_beyond)
           AND n.changed_in <= CASE WHEN is_first THEN 9223372036854775807 ELSE everturn.step_v1(least(p_before, 1e15)) END
           AND (((n.changed_at, n.session_id) < (p_before, p_past) AND NOT everturn.is_over_v1(n.expires_at, at))
                OR NOT everturn.is_timely_v5(n))
         ORDER BY n.changed_in DESC, everturn.is_timely_v5(n), n.changed_at DESC, n.session_id DESC LIMIT p_limit
    LOOP
        IF NOT s.is_whole THEN
            PERFORM everturn.damaged_v1(s.no, 'its row in the table sessions is not as it was written');
        END IF;
        RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps, s.created_at,
                     s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        listed := listed + 1;
    END LOOP;
    IF is_first AND listed < p_limit THEN
        PERFORM everturn.check_absent_v1(p_namespace, k.name)
           FROM everturn.hidden_names_v5(p_namespace, p_prefix, p_beyond, '', NULL, at) AS k (name);
    END IF;
END
$$;

-- Whether a row of the index of facts leads to a session that has this fact.
CREATE OR REPLACE FUNCTION everturn.has_fact_v5(f everturn.facts, s everturn.sessions) RETURNS boolean LANGUAGE sql STABLE
RETURN ((s).namespace = (f).namespace AND (s).session_id = (f).session_id AND (s).facts ->> (f).name = (f).value) IS TRUE;

-- The same, and whether all that decides about the place of the session on a page of these facts is as it was written.
CREATE OR REPLACE FUNCTION everturn.is_led_to_v5(f everturn.facts, s everturn.sessions, p_where jsonb) RETURNS boolean
LANGUAGE sql STABLE
RETURN everturn.has_fact_v5(f, s) AND CASE WHEN (s).ended OR NOT (s).facts @> p_where THEN everturn.is_whole_v1(s)
                                           ELSE everturn.is_timely_v5(s) END;

-- A page of the sessions that have all these facts: in byte order of the names, or with the latest changed first (p_recent: before
-- p_bound and p_past; else past p_past, and changed since p_bound). The index of facts is read for the rarest of them. Raises
-- where it leads to a row that is not as it was written, or has not this fact.
CREATE OR REPLACE FUNCTION everturn.sessions_by_fact_v4(
    p_namespace text, p_where jsonb, p_recent boolean, p_prefix text, p_beyond text, p_past text, p_bound double precision,
    p_limit bigint, p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE AS $$
DECLARE
    at     double precision := everturn.now_v1(p_now);
    astray text             := 'the index of facts leads to a row that is not as it was written, or has not this fact';
    rarest record;
    s      record;
    listed bigint           := 0;
BEGIN
    SELECT w.key AS name, w.value INTO rarest FROM jsonb_each_text(p_where) AS w
     ORDER BY (SELECT count(*) FROM (SELECT FROM everturn.facts f
                                      WHERE f.namespace = p_namespace AND f.name = w.key AND f.value = w.value LIMIT 100) k)
     LIMIT 1;
    IF p_recent THEN
        FOR s IN  -- all are read, to be sorted; those that may be wrong come first
            SELECT f.session, n.*, everturn.is_led_to_v5(f, n, p_where) AND everturn.is_whole_v1(n) AS is_sound
              FROM everturn.facts f LEFT JOIN everturn.sessions n ON n.no = f.session
             WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value
               AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
               AND (((n.changed_at, n.session_id) < (p_bound, p_past) AND NOT n.ended AND n.facts @> p_where
                     AND NOT everturn.is_over_v1(n.expires_at, at))
                    OR NOT everturn.is_led_to_v5(f, n, p_where))
             ORDER BY everturn.is_led_to_v5(f, n, p_where), n.changed_at DESC, n.session_id DESC LIMIT p_limit
        LOOP
            IF NOT s.is_sound THEN
                PERFORM everturn.damaged_v1(s.session, astray);
            END IF;
            RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
                         s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        END LOOP;
        RETURN;
    END IF;
    FOR s IN
        SELECT f.session, n.*
          FROM everturn.facts f
          LEFT JOIN LATERAL (SELECT i.*, everturn.has_fact_v5(f, i) AND everturn.is_whole_v1(i) AS is_sound
                               FROM everturn.sessions i WHERE i.no = f.session OFFSET 0) AS n ON true
         WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value AND f.session_id > p_past
           AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
         ORDER BY f.session_id
    LOOP
        IF s.is_sound IS NOT TRUE THEN
            PERFORM everturn.damaged_v1(s.session, astray);
        END IF;
        IF s.changed_at >= p_bound AND s.facts @> p_where AND NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, at) THEN
            RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
                         s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
            listed := listed + 1;
            EXIT WHEN listed = p_limit;
        END IF;
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

-- The parts of these ranges above a seq.
CREATE OR REPLACE FUNCTION everturn.above_v5(r everturn.ranges_v1, p_seq bigint) RETURNS everturn.ranges_v1 LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(greatest(k.first, p_seq + 1)), array_agg(k.last), coalesce(sum(k.last - greatest(k.first, p_seq + 1) + 1), 0)::bigint, 0::bigint
      FROM unnest(r.firsts, r.lasts) AS k (first, last) WHERE k.last > p_seq
$$;

-- Raise unless there is an entry at each of these seqs of a session.
CREATE OR REPLACE FUNCTION everturn.check_there_v5(s everturn.sessions, r everturn.ranges_v1) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    lost bigint := CASE WHEN r.size > 0 THEN everturn.first_missing_v1(s.no, r) ELSE 0 END;
BEGIN
    IF lost > 0 THEN
        PERFORM everturn.damaged_v1(s.no, format('the entry with seq %s is lost, or not where it was written', lost));
    END IF;
END
$$;

-- Visible entries whose body is like the pattern, newest first, before (p_session, p_seq): at most p_limit of them.
-- ILIKE on a column that is COLLATE "C" folds the ASCII letters and no others, as core/text_search.py does.
-- Session by session, and down the path of each as far as there are matches, past what is not on it. Raises if an entry that it passes
-- is lost, or, at the end of all sessions, if one of these is.
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
        PERFORM everturn.check_there_v5(s, (s.kept, s.kept, cardinality(s.kept), 0)::everturn.ranges_v1);
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
            PERFORM everturn.check_there_v5(s, everturn.above_v5(r, s.floor));
        END LOOP;
        EXIT WHEN p_session_id IS NOT NULL;
    END LOOP;
    IF p_session_id IS NULL THEN
        PERFORM everturn.check_absent_v1(p_namespace, k.name)
           FROM everturn.hidden_names_v5(p_namespace, '', NULL, '', NULL, at) AS k (name);
    END IF;
END
$$;
