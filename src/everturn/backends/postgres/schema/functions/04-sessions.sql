-- Reads of one session: its facts, its states, its changes. STABLE, which here means: everything inside sees the one snapshot of
-- the calling statement, so all rows of an answer are of one moment.

-- A session (model.SessionInfo), as a JSON array.
CREATE OR REPLACE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from, coalesce((s).facts, '{}'));

-- The facts of a session and the state it is in, as JSON; NULL if there is none. It takes half the
-- time of a read_v1 without entries.
CREATE OR REPLACE FUNCTION everturn.glance_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
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
CREATE OR REPLACE FUNCTION everturn.session_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS everturn.sessions
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
CREATE OR REPLACE FUNCTION everturn.snapshots_v1(s everturn.sessions) RETURNS json
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
CREATE OR REPLACE FUNCTION everturn.state_v1(s everturn.sessions, p_snapshot text, p_version bigint) RETURNS everturn.plan_v1
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
            PERFORM everturn.lost_change_v5(s.no, p_version);
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

-- The first of these seqs that has no entry, or one that is not where it was written; 0 if all have one.
CREATE OR REPLACE FUNCTION everturn.first_missing_v1(p_session bigint, r everturn.ranges_v1) RETURNS bigint
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
CREATE OR REPLACE FUNCTION everturn.check_others_v1(s everturn.sessions) RETURNS void
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
CREATE OR REPLACE FUNCTION everturn.changes_v2(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
RETURNS TABLE (version bigint, kind text, first_seq bigint, count bigint, created_at double precision,
               snapshot_id text, label text, key bytea)
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
        RETURN QUERY SELECT g.version, g.kind, g.first_seq, g.count, g.created_at, g.snapshot_id, g.label, g.key;
    END LOOP;
    IF next > s.forgotten AND s.version - next < p_limit THEN
        PERFORM everturn.damaged_v1(s.no, format('the change that made version %s is lost', next));
    END IF;
END
$$;
