-- Reads of one session. STABLE, which here means: everything inside sees the one snapshot of the calling statement, so all
-- that is handed over is of one moment.

-- The facts of a session (model.SessionInfo), as a JSON array.
CREATE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN json_build_array(
        s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes,
        (SELECT count(*) FROM everturn.snapshots n WHERE n.session = s.no),
        (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no),
        s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from);
END
$$;

-- The facts of a session and the state it is in, as JSON; NULL if there is none. What read_v1 says of no entries, in half
-- the time.
CREATE FUNCTION everturn.glance_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT json_build_array(
                       everturn.facts_v1(s), json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages))::text
              FROM everturn.sessions s
             WHERE s.namespace = p_namespace AND s.session_id = p_session_id AND NOT s.ended
               AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)));
END
$$;

CREATE FUNCTION everturn.snapshots_v1(p_session bigint) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT json_agg(json_build_array(n.snapshot_id, n.label, n.version, n.messages, n.created_at) ORDER BY n.version)
              FROM everturn.snapshots n WHERE n.session = p_session);
END
$$;

-- The state a session was in: now, at a snapshot, or after a version; none if there is no such state any more.
CREATE FUNCTION everturn.state_v1(s everturn.sessions, p_snapshot text, p_version bigint) RETURNS everturn.plan_v1
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    p everturn.plan_v1;
BEGIN
    IF p_snapshot IS NOT NULL THEN
        SELECT n.head, n.cleared, n.floor, n.kept, n.messages INTO p.head, p.cleared, p.floor, p.kept, p.messages
          FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = p_snapshot;
        p.refusal := CASE WHEN NOT FOUND THEN 'no_snapshot' END;
    ELSIF p_version IS NULL THEN
        p.head := s.head;
        p.cleared := s.cleared;
        p.floor := s.floor;
        p.kept := s.kept;
        p.messages := s.messages;
    ELSIF p_version = 0 THEN
        p.head := 0;
        p.cleared := 0;
        p.floor := 0;
        p.kept := '{}';
        p.messages := 0;
    ELSE
        SELECT g.head, g.cleared, g.floor, g.kept, g.messages INTO p.head, p.cleared, p.floor, p.kept, p.messages
          FROM everturn.changes g WHERE g.session = s.no AND g.version = p_version AND g.head IS NOT NULL;
        p.refusal := CASE WHEN NOT FOUND THEN 'no_version' END;
    END IF;
    RETURN p;
END
$$;

-- The seq of the latest message but `p_limit` - 1; NULL if there are no more than `p_limit`.
CREATE FUNCTION everturn.window_start_v1(p_session bigint, p_shown int8multirange, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    part  int8range;
    left_ bigint := p_limit;
    seqs  bigint[];
    start bigint;
BEGIN
    FOR part IN SELECT p FROM unnest(p_shown) AS p ORDER BY p DESC LOOP
        seqs := ARRAY(SELECT e.seq FROM everturn.entries e
                       WHERE e.session = p_session AND e.seq >= lower(part) AND e.seq < upper(part) AND e.kind = 'message'
                       ORDER BY e.seq DESC LIMIT left_ + 1);
        IF left_ > 0 AND cardinality(seqs) >= left_ THEN
            start := seqs[left_];
        END IF;
        IF cardinality(seqs) > left_ THEN
            RETURN start;
        END IF;
        left_ := left_ - cardinality(seqs);
    END LOOP;
    RETURN NULL;
END
$$;

CREATE TYPE everturn.row_v1 AS (
    seq        bigint,
    created_at double precision,
    checksum   bigint,
    body       bytea,
    kind       text,
    turn       bigint
);

-- (Where entries are joined with ranges, that they lie between the first and the last of these is said too: on a table that
-- was never analysed, such as one that sessions were just copied into, the planner would else read all of a session's log.)
--
-- The entries a query names, in order, and behind them one row without a seq whose body is a JSON object: what session and
-- state they are of, and what is missing.
CREATE FUNCTION everturn.read_v1(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    s       everturn.sessions;
    p       everturn.plan_v1;
    path    int8multirange;
    must    int8multirange;  -- what is visible whatever its kind
    trimmed int8multirange;  -- where summaries are visible
    start   bigint;
    handed  bigint;
    missing bigint := 0;
    last    everturn.row_v1;
BEGIN
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
    IF NOT FOUND THEN
        last.body := convert_to('{"status":"no_session"}', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := everturn.state_v1(s, p_snapshot, p_version);
    IF p.refusal IS NULL AND p_limit IS DISTINCT FROM 0 THEN
        path := everturn.path_v1(s.no, p.head) * everturn.span_v1(p_after + 1, coalesce(p_before - 1, p.head));
        must := everturn.whole_v1(path, p.head, p.cleared, p.floor, p.kept);
        IF p_limit IS NOT NULL THEN
            start := everturn.window_start_v1(s.no, must, p_limit);
            IF start IS NOT NULL THEN
                path := path * everturn.span_v1(start, p.head);
                must := must * everturn.span_v1(start, p.head);
            END IF;
        END IF;
        trimmed := everturn.trimmed_v1(path, p.cleared, p.floor);
        IF p_kind = 'message' AND must = int8multirange(range_merge(must)) THEN  -- one range: the common case
            RETURN QUERY
                SELECT e.seq, e.created_at, e.checksum, convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM everturn.entries e
                 WHERE e.session = s.no AND e.seq >= lower(must) AND e.seq < upper(must) AND e.kind = 'message'
                 ORDER BY e.seq;
        ELSIF p_kind = 'message' THEN
            RETURN QUERY
                SELECT e.seq, e.created_at, e.checksum, convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM unnest(must) AS part
                  JOIN everturn.entries e ON e.session = s.no AND e.seq >= lower(part) AND e.seq < upper(part)
                 WHERE e.kind = 'message' AND e.seq >= lower(must) AND e.seq < upper(must)
                 ORDER BY e.seq;
        ELSIF p_kind IS NOT NULL THEN
            RETURN QUERY
                SELECT e.seq, e.created_at, e.checksum, convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM everturn.entries e
                 WHERE e.session = s.no AND e.kind = p_kind AND e.kind <> 'message'
                   AND (must @> e.seq OR (p_kind = 'summary' AND trimmed @> e.seq))
                 ORDER BY e.seq;
        ELSE
            RETURN QUERY
                SELECT e.seq, e.created_at, e.checksum, convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(must) AS part
                  JOIN everturn.entries e ON e.session = s.no AND e.seq >= lower(part) AND e.seq < upper(part)
                 WHERE e.seq >= lower(must) AND e.seq < upper(must)
                UNION ALL
                SELECT e.seq, e.created_at, e.checksum, convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM everturn.entries e
                 WHERE e.session = s.no AND e.kind = 'summary' AND e.kind <> 'message'
                   AND trimmed @> e.seq AND NOT must @> e.seq
                 ORDER BY seq;
        END IF;
        GET DIAGNOSTICS handed = ROW_COUNT;
        -- Where all that must be there is of the kind asked for, counting was enough.
        IF p_kind IS DISTINCT FROM 'message' OR handed <> everturn.size_v1(must) THEN
            missing := everturn.first_missing_v1(s.no, must);
        END IF;
    END IF;
    last.body := convert_to(json_build_object(
        'status', coalesce(p.refusal, 'found'), 'facts', everturn.facts_v1(s),
        'state', CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        'snapshots', CASE WHEN p_snapshots THEN everturn.snapshots_v1(s.no) END,
        'first_missing', missing, 'cut', start IS NOT NULL)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The first of these seqs that has no entry; 0 if all have one.
CREATE FUNCTION everturn.first_missing_v1(p_session bigint, p_must int8multirange) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    there int8multirange;
BEGIN
    IF everturn.size_v1(p_must) = (
        SELECT count(*) FROM unnest(p_must) AS part
          JOIN everturn.entries e ON e.session = p_session AND e.seq >= lower(part) AND e.seq < upper(part)
         WHERE e.seq >= lower(p_must) AND e.seq < upper(p_must)) THEN
        RETURN 0;
    END IF;
    SELECT range_agg(int8range(e.seq, e.seq, '[]')) INTO there FROM unnest(p_must) AS part
      JOIN everturn.entries e ON e.session = p_session AND e.seq >= lower(part) AND e.seq < upper(part)
     WHERE e.seq >= lower(p_must) AND e.seq < upper(p_must);
    RETURN lower(p_must - coalesce(there, '{}'));
END
$$;

-- The latest changes, newest first.
CREATE FUNCTION everturn.changes_v1(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
RETURNS TABLE (version bigint, kind text, first_seq bigint, count bigint, created_at double precision,
               snapshot_id text, label text)
LANGUAGE sql STABLE AS $$
    SELECT g.version, g.kind, g.first_seq, g.count, g.created_at, g.snapshot_id, g.label
      FROM everturn.sessions s JOIN everturn.changes g ON g.session = s.no
     WHERE s.namespace = p_namespace AND s.session_id = p_session_id AND NOT s.ended
       AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))
     ORDER BY g.version DESC LIMIT p_limit
$$;
