-- Reads of one session. STABLE, which here means: everything inside sees the one snapshot of the calling statement, so all
-- rows of an answer are of one moment.

-- The facts of a session (model.SessionInfo), as a JSON array.
CREATE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from);

-- The facts of a session and the state it is in, as JSON; NULL if there is none. It takes half the
-- time of a read_v1 without entries.
CREATE FUNCTION everturn.glance_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    RETURN json_build_array(everturn.facts_v1(s), json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages))::text;
END
$$;

-- The row of a session that is there; NULL if there is none. Raises if it is not as it was written, or should be there.
CREATE FUNCTION everturn.session_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS everturn.sessions
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions;
BEGIN
    -- In the query, where the columns are at hand: of a variable, each would be taken out one by one, twice as slow.
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n);
    IF NOT FOUND THEN
        PERFORM everturn.check_session_v1(n) FROM everturn.sessions n
          WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
            AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
        PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
    END IF;
    RETURN s;
END
$$;

-- The snapshots of a session, as JSON. Raises if one is lost or damaged.
CREATE FUNCTION everturn.snapshots_v1(s everturn.sessions) RETURNS json
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    listed json;
    whole  bigint;
    there  bigint;
BEGIN
    SELECT json_agg(json_build_array(n.snapshot_id, n.label, n.version, n.messages, n.created_at) ORDER BY n.version),
           count(*) FILTER (WHERE n.seal = everturn.snapshot_seal_v1(n)), count(*)
      INTO listed, whole, there FROM everturn.snapshots n WHERE n.session = s.no;
    IF whole <> s.snapshots OR there <> s.snapshots THEN
        PERFORM everturn.damaged_v1(s.no, 'snapshots are lost or damaged');
    END IF;
    RETURN listed;
END
$$;

-- The state a session was in: now, at a snapshot, or after a version; none if there is no such state any more. Raises if it
-- is lost or damaged.
CREATE FUNCTION everturn.state_v1(s everturn.sessions, p_snapshot text, p_version bigint) RETURNS everturn.plan_v1
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    p everturn.plan_v1;
    n everturn.snapshots;
    g everturn.changes;
BEGIN
    IF p_snapshot IS NOT NULL THEN
        SELECT * INTO n FROM everturn.snapshots k WHERE k.session = s.no AND k.snapshot_id = p_snapshot;
        IF NOT FOUND THEN
            PERFORM everturn.snapshots_v1(s);  -- was there one?
            p.refusal := 'no_snapshot';
        ELSIF n.seal IS DISTINCT FROM everturn.snapshot_seal_v1(n) THEN
            PERFORM everturn.damaged_v1(s.no, 'the snapshot is not as it was written');
        ELSE
            p.head := n.head;
            p.cleared := n.cleared;
            p.floor := n.floor;
            p.kept := n.kept;
            p.messages := n.messages;
        END IF;
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
        SELECT * INTO g FROM everturn.changes k WHERE k.session = s.no AND k.version = p_version;
        IF p_version BETWEEN s.forgotten + 1 AND s.version AND g.seal IS DISTINCT FROM everturn.change_seal_v1(
            g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept, g.kind,
            g.call, g.key, g.content, g.snapshot_id, g.label) THEN
            PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost or damaged', p_version));
        ELSIF p_version NOT BETWEEN s.forgotten + 1 AND s.version OR g.head IS NULL THEN
            p.refusal := 'no_version';
        ELSE
            p.head := g.head;
            p.cleared := g.cleared;
            p.floor := g.floor;
            p.kept := g.kept;
            p.messages := g.messages;
        END IF;
    END IF;
    RETURN p;
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

-- The entries a query names, in order, and behind them one row without a seq whose body is a JSON object: their
-- session and state, and the first seq that is missing. The path is walked no further down than the query reaches.
-- force_generic_plan, for all that it calls: else queries over ranges are planned anew each time, which takes three times as
-- long as running them for the latest 20. There is one good plan for them, whatever the ranges are.
CREATE FUNCTION everturn.read_v1(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    p       everturn.plan_v1;
    shown   everturn.ranges_v1;                       -- visible whatever their kind
    hidden  everturn.ranges_v1 := ('{}', '{}', 0, 0);  -- where summaries alone are visible: what a trim hid
    kept    bigint[];
    low     bigint;
    high    bigint;
    start   bigint;
    handed  bigint;
    missing bigint := 0;
    last    everturn.row_v1;
BEGIN
    IF s.no IS NULL THEN
        last.body := convert_to('{"status":"no_session"}', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := everturn.state_v1(s, p_snapshot, p_version);
    IF p.refusal IS NULL AND p_limit IS DISTINCT FROM 0 THEN
        low := greatest(p_after, p.floor) + 1;
        high := least(p_before - 1, p.head);
        IF p_limit IS NOT NULL THEN
            start := everturn.window_start_v1(s, p, low, high, p_after, p_limit);
            low := greatest(low, start);
        END IF;
        shown := everturn.ranges_v1(s, p.head, low, high, NULL);
        IF cardinality(p.kept) > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k
                           WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, high) AND k >= coalesce(start, 1));
            shown.firsts := shown.firsts || kept;
            shown.lasts := shown.lasts || kept;
            shown.size := shown.size + cardinality(kept);
        END IF;
        IF (p_kind IS NULL OR p_kind = 'summary') AND p.cleared < p.floor THEN
            hidden := everturn.ranges_v1(
                s, p.head, greatest(p_after + 1, p.cleared + 1, start), least(p.floor, high), NULL);
        END IF;
        IF p_kind = 'message' AND cardinality(shown.firsts) = 1 THEN  -- the common case
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM everturn.entries e
                 WHERE e.session = s.no AND e.seq BETWEEN shown.firsts[1] AND shown.lasts[1] AND e.kind = 'message'
                 ORDER BY e.seq;
        ELSIF p_kind = 'message' THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND n.kind = 'message' OFFSET 0) AS e
                 ORDER BY e.seq;
        ELSIF p_kind IS NOT NULL THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), NULL::text, NULL::bigint
                  FROM unnest(shown.firsts || hidden.firsts, shown.lasts || hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = p_kind AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                 ORDER BY e.seq;
        ELSE
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                UNION ALL
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(hidden.firsts, hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = 'summary' AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e
                 ORDER BY seq;
        END IF;
        GET DIAGNOSTICS handed = ROW_COUNT;
        -- Of messages alone, counting was enough to see that none is missing.
        IF p_kind IS DISTINCT FROM 'message' OR handed <> shown.size THEN
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
        IF hidden.size > 0 AND missing = 0 THEN
            PERFORM everturn.check_others_v1(s);
        END IF;
    END IF;
    last.body := convert_to(json_build_object(
        'status', coalesce(p.refusal, 'found'), 'facts', everturn.facts_v1(s),
        'state', CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        'snapshots', CASE WHEN p_snapshots THEN everturn.snapshots_v1(s) END,
        'first_missing', missing, 'cut', start IS NOT NULL)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The seq of the latest visible message but `p_limit` - 1; NULL if there are no more than `p_limit`.
CREATE FUNCTION everturn.window_start_v1(
    s everturn.sessions, p everturn.plan_v1, p_low bigint, p_high bigint, p_after bigint, p_limit bigint
) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    want bigint := p_limit + 1;
    r    everturn.ranges_v1;
    seqs bigint[];
BEGIN
    LOOP
        r := everturn.ranges_v1(s, p.head, p_low, p_high, want);
        seqs := ARRAY(
            SELECT e.seq FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last AND n.kind = 'message'
                                  ORDER BY n.seq DESC LIMIT p_limit + 1) AS e
             ORDER BY e.seq DESC LIMIT p_limit + 1);
        EXIT WHEN cardinality(seqs) > p_limit OR r.at < p_low;
        want := want * 2;  -- many of them are no messages
    END LOOP;
    IF cardinality(seqs) <= p_limit AND cardinality(p.kept) > 0 THEN
        seqs := seqs || ARRAY(SELECT k FROM unnest(p.kept) AS k
                               WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, p_high) ORDER BY k DESC);
    END IF;
    RETURN CASE WHEN cardinality(seqs) > p_limit THEN seqs[p_limit] END;
END
$$;

-- The first of these seqs that has no entry, or one that is not where it was written; 0 if all have one.
CREATE FUNCTION everturn.first_missing_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    IF r.size = (
        SELECT count(*) FILTER (WHERE everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum))
          FROM unnest(r.firsts, r.lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                              WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last OFFSET 0) AS e) THEN
        RETURN 0;
    END IF;
    RETURN (SELECT min(k.seq) FROM unnest(r.firsts, r.lasts) AS part (first, last)
             CROSS JOIN LATERAL generate_series(part.first, part.last) AS k (seq)
             WHERE NOT EXISTS (SELECT FROM everturn.entries e
                                WHERE e.session = p_session AND e.seq = k.seq
                                  AND everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)));
END
$$;

-- Raise unless every entry that is no message is there. (Compact may have removed entries that a trim hid, but for
-- summaries: that one of these is lost shows in their number alone.)
CREATE FUNCTION everturn.check_others_v1(s everturn.sessions) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    IF (s.others, true) <> (
        SELECT count(*), coalesce(bool_and(
                   everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum)), true)
          FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message') THEN
        PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
    END IF;
END
$$;

-- The latest changes, newest first. Raises if one is lost or damaged.
CREATE FUNCTION everturn.changes_v1(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
RETURNS TABLE (version bigint, kind text, first_seq bigint, count bigint, created_at double precision,
               snapshot_id text, label text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s    everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    g    everturn.changes;
    next bigint := s.version;
BEGIN
    IF s.no IS NULL THEN
        RETURN;
    END IF;
    FOR g IN SELECT * FROM everturn.changes c
              WHERE c.session = s.no AND c.version > s.forgotten ORDER BY c.version DESC LIMIT p_limit
    LOOP
        IF g.version <> next OR g.seal IS DISTINCT FROM everturn.change_seal_v1(
            g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept, g.kind,
            g.call, g.key, g.content, g.snapshot_id, g.label) THEN
            PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost or damaged', next));
        END IF;
        next := next - 1;
        RETURN QUERY SELECT g.version, g.kind, g.first_seq, g.count, g.created_at, g.snapshot_id, g.label;
    END LOOP;
    IF next > s.forgotten AND s.version - next < p_limit THEN
        PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost', next));
    END IF;
END
$$;
