-- Keeping house: reclaiming what nothing can reach, reaping what expired, erasing. Each call is one bounded transaction
-- (but for erase, which is whole or not at all).

CREATE TYPE everturn.reclaimed_v1 AS (
    sessions bigint,
    entries  bigint,
    bytes    bigint
);

-- Every state a session can return to, with what to call it.
CREATE FUNCTION everturn.roots_v1(p_session bigint)
RETURNS TABLE (head bigint, cleared bigint, floor bigint, kept bigint[], messages bigint, name text)
LANGUAGE sql STABLE AS $$
    SELECT s.head, s.cleared, s.floor, s.kept, s.messages, 'the head' FROM everturn.sessions s WHERE s.no = p_session
    UNION ALL
    SELECT n.head, n.cleared, n.floor, n.kept, n.messages, 'snapshot ' || n.snapshot_id
      FROM everturn.snapshots n WHERE n.session = p_session
    UNION ALL
    SELECT u.head, u.cleared, u.floor, u.kept, u.messages, 'the undo step of version ' || u.version
      FROM everturn.undo_steps u WHERE u.session = p_session
$$;

-- Delete some entries: at most p_limit of these seqs, summaries only if told so. They are chosen first, and once: in a
-- join the planner, who thinks that a session is as long as most are, looks for them again for each entry of a long one.
CREATE FUNCTION everturn.reclaim_v1(p_session bigint, p_seqs int8multirange, p_summaries boolean, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    chosen bigint[] := ARRAY(
        SELECT e.seq FROM unnest(p_seqs) AS part
          JOIN everturn.entries e ON e.session = p_session AND e.seq >= lower(part) AND e.seq < upper(part)
         WHERE p_summaries OR e.kind <> 'summary'
         LIMIT p_limit);
    gone everturn.reclaimed_v1;
BEGIN
    WITH deleted AS (
        DELETE FROM everturn.entries e WHERE e.session = p_session AND e.seq = ANY (chosen)
        RETURNING octet_length(e.body) AS size
    )
    SELECT sign(count(*))::bigint, count(*), coalesce(sum(size), 0) INTO gone FROM deleted;
    RETURN gone;
END
$$;

-- Delete changes up to a version, at most p_limit. Returns how many. A key is remembered while entries of its turn are stored.
CREATE FUNCTION everturn.forget_changes_v1(p_session bigint, p_version bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    forgotten bigint;
BEGIN
    DELETE FROM everturn.changes g
     WHERE g.session = p_session AND g.version IN (
        SELECT k.version FROM everturn.changes k WHERE k.session = p_session AND k.version <= p_version
           AND (k.key IS NULL OR NOT EXISTS (
                SELECT FROM everturn.entries e
                 WHERE e.session = p_session AND e.seq >= k.first_seq AND e.seq < k.first_seq + k.count))
         ORDER BY k.version LIMIT p_limit);
    GET DIAGNOSTICS forgotten = ROW_COUNT;
    RETURN forgotten;
END
$$;

-- One step of compacting a session: forget old changes, then delete entries that no root shows. Never anything else.
CREATE FUNCTION everturn.compact_v1(
    p_namespace text, p_session_id text, p_step bigint, p_patience integer, p_now double precision
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    s           everturn.sessions;
    whole       int8multirange := '{}';
    trimmed     int8multirange := '{}';
    unreachable int8multirange;
    path        int8multirange;
    root        record;
    gone        everturn.reclaimed_v1;
    more        everturn.reclaimed_v1;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
    IF NOT FOUND OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) THEN
        RETURN (0, 0, 0)::everturn.reclaimed_v1;
    END IF;
    IF everturn.forget_changes_v1(s.no, s.version - 1024, p_step) = p_step THEN
        RETURN (1, 0, 0)::everturn.reclaimed_v1;
    END IF;
    FOR root IN SELECT * FROM everturn.roots_v1(s.no) LOOP
        path := everturn.path_v1(s.no, root.head);
        whole := whole + everturn.whole_v1(path, root.head, root.cleared, root.floor, root.kept);
        trimmed := trimmed + everturn.trimmed_v1(path, root.cleared, root.floor);
    END LOOP;
    -- A remembered version that shows what is about to go can no longer be read: say so, in the same transaction.
    FOR root IN SELECT * FROM everturn.changes g WHERE g.session = s.no AND g.head IS NOT NULL LOOP
        path := everturn.path_v1(s.no, root.head);
        IF NOT (everturn.whole_v1(path, root.head, root.cleared, root.floor, root.kept) <@ whole
                AND everturn.trimmed_v1(path, root.cleared, root.floor) <@ (whole + trimmed)) THEN
            UPDATE everturn.changes g SET head = NULL WHERE g.session = s.no AND g.version = root.version;
        END IF;
    END LOOP;
    unreachable := everturn.span_v1(1, s.last_seq) - whole;
    gone := everturn.reclaim_v1(s.no, unreachable - trimmed, true, p_step);
    more := everturn.reclaim_v1(s.no, unreachable * trimmed, false, p_step - gone.entries);
    gone := (greatest(gone.sessions, more.sessions), gone.entries + more.entries, gone.bytes + more.bytes);
    -- Every jump is kept: without it, a path would take what was never on it.
    IF gone.entries > 0 THEN
        UPDATE everturn.sessions n SET bytes = n.bytes - gone.bytes WHERE n.no = s.no;
    END IF;
    RETURN gone;
END
$$;

-- The small rows of a session, and then its own. Returns how many snapshots it had.
CREATE FUNCTION everturn.delete_session_v1(p_session bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    snapshots bigint;
BEGIN
    DELETE FROM everturn.jumps j WHERE j.session = p_session;
    DELETE FROM everturn.undo_steps u WHERE u.session = p_session;
    DELETE FROM everturn.snapshots n WHERE n.session = p_session;
    GET DIAGNOSTICS snapshots = ROW_COUNT;
    DELETE FROM everturn.sessions n WHERE n.no = p_session;
    RETURN snapshots;
END
$$;

-- One step of reaping: rows of a session that expired, and the session when nothing else is left of it. Workers that reap
-- at the same time take different sessions. One that is arriving (91-moves.sql) is left alone until it expires.
CREATE FUNCTION everturn.reap_v1(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1
LANGUAGE plpgsql AS $$
DECLARE
    s    everturn.sessions;
    gone everturn.reclaimed_v1;
    at   double precision := everturn.now_v1(p_now);
BEGIN
    DELETE FROM everturn.tombstones t
     WHERE (t.namespace, t.digest) IN (SELECT k.namespace, k.digest FROM everturn.tombstones k WHERE k.until <= at
                                        ORDER BY k.until LIMIT p_step FOR UPDATE SKIP LOCKED);
    SELECT * INTO s FROM everturn.sessions n WHERE n.ended AND n.life <> '' LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.expires_in <= everturn.step_v1(at) AND n.expires_at <= at
         ORDER BY n.expires_in LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN (0, 0, 0)::everturn.reclaimed_v1;
        END IF;
        -- Before its first row goes: no clock that is set back brings half of it to light again, and none of it arrives.
        UPDATE everturn.sessions n SET ended = true, life = coalesce(nullif(n.life, ''), '-') WHERE n.no = s.no;
    END IF;
    gone := everturn.reclaim_v1(s.no, everturn.span_v1(1, s.last_seq), true, p_step);
    IF gone.entries < p_step AND everturn.forget_changes_v1(s.no, s.version, p_step) < p_step THEN
        PERFORM everturn.delete_session_v1(s.no);
    END IF;
    gone.sessions := 1;
    RETURN gone;
END
$$;

CREATE TYPE everturn.erased_v1 AS (
    entries   bigint,
    snapshots bigint,
    bytes     bigint,
    xid       xid,    -- of the transaction that did it
    spared    boolean, -- another life than the one named lives there
    told      double precision -- the server's clock
);

-- Delete every row of every life of a session, but for a living one that is not the one named (NULL: that one too).
CREATE FUNCTION everturn.erase_v1(
    p_namespace text, p_session_id text, p_life text, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
)
RETURNS everturn.erased_v1 LANGUAGE plpgsql AS $$
DECLARE
    s      everturn.sessions;
    gone   everturn.reclaimed_v1;
    erased everturn.erased_v1 := (0, 0, 0, pg_current_xact_id()::xid, false, NULL);
    fence  double precision;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id ORDER BY n.no FOR UPDATE
    LOOP
        fence := greatest(fence, s.fence);
    END LOOP;
    erased.told := everturn.now_v1(p_now);  -- after the locks
    fence := greatest(fence, everturn.fence_v1(p_namespace, p_session_id, NULL));
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, fence, erased.told);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id
           AND (p_life IS NULL OR n.life = p_life OR n.ended OR everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)))
         ORDER BY n.no FOR UPDATE
    LOOP
        gone := everturn.reclaim_v1(s.no, everturn.span_v1(1, s.last_seq), true, NULL);
        PERFORM everturn.forget_changes_v1(s.no, s.version, NULL);
        erased.entries := erased.entries + gone.entries;
        erased.bytes := erased.bytes + gone.bytes;
        erased.snapshots := erased.snapshots + everturn.delete_session_v1(s.no);
    END LOOP;
    erased.spared := EXISTS (
        SELECT FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
    );
    IF NOT erased.spared THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, erased.told);
    END IF;
    RETURN erased;
END
$$;

-- Whether some transaction in this database may still see what an erasing transaction deleted.
CREATE FUNCTION everturn.is_still_seen_v1(p_xid xid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                      AND a.backend_type = 'client backend' AND age(a.backend_xmin) >= age(p_xid))
$$;
