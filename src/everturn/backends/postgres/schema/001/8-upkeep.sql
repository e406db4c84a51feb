-- Keeping house: reclaiming what nothing can reach, reaping what expired, erasing. Each call is one bounded transaction
-- (but for erase, which is whole or not at all).

CREATE TYPE everturn.reclaimed_v1 AS (
    sessions bigint,
    entries  bigint,
    bytes    bigint,
    others   bigint,  -- of the entries, those that are no messages
    looked   bigint,  -- at so many rows: as many as were allowed means that more may be left
    last     bigint   -- of changes: the last version that was looked at
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

-- Delete some entries: at most p_limit (NULL: all) of those in these ranges, summaries only if told so.
CREATE FUNCTION everturn.reclaim_v1(p_session bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    chosen bigint[] := ARRAY(
        SELECT e.seq FROM unnest(p_firsts, p_lasts) AS part (first, last)
         CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                              WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last
                                AND (p_summaries OR n.kind <> 'summary') OFFSET 0) AS e
         LIMIT p_limit);
    gone everturn.reclaimed_v1;
BEGIN
    WITH deleted AS (
        DELETE FROM everturn.entries e WHERE e.session = p_session AND e.seq = ANY (chosen)
        RETURNING octet_length(e.body) AS size, e.kind
    )
    SELECT 1, count(*), coalesce(sum(size), 0), count(*) FILTER (WHERE kind <> 'message'), count(*), 0 INTO gone FROM deleted;
    RETURN gone;
END
$$;

-- Delete changes beyond a version and up to another: look at no more than p_limit (NULL: at all). A key is remembered while
-- entries of its turn are stored.
CREATE FUNCTION everturn.forget_changes_v1(p_session bigint, p_beyond bigint, p_to bigint, p_limit bigint)
RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    looked bigint[] := ARRAY(
        SELECT g.version FROM everturn.changes g
         WHERE g.session = p_session AND g.version > p_beyond AND g.version <= p_to ORDER BY g.version LIMIT p_limit);
BEGIN
    DELETE FROM everturn.changes g
     WHERE g.session = p_session AND g.version = ANY (looked)
       AND (g.key IS NULL OR g.count > 0 AND NOT EXISTS (
            SELECT FROM everturn.entries e
             WHERE e.session = p_session AND e.seq >= g.first_seq AND e.seq < g.first_seq + g.count));
    RETURN (1, 0, 0, 0, cardinality(looked), coalesce(looked[cardinality(looked)], p_to))::everturn.reclaimed_v1;
END
$$;

-- All that a plan for compacting a session needs, seen at one moment, as JSON; NULL if there is no session. What nothing can
-- reach now, nothing will: a head moves to a snapshot, an undo step, or on. So the plan is made without a lock.
CREATE FUNCTION everturn.survey_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM everturn.snapshots_v1(s);  -- where one is lost, what it shows must not be
    IF s.undo_steps <> (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no)
       OR EXISTS (SELECT FROM everturn.undo_steps u
                   WHERE u.session = s.no AND u.seal IS DISTINCT FROM everturn.undo_seal_v1(u)) THEN
        PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
    END IF;
    RETURN json_build_object(
        'no', s.no, 'version', s.version, 'last_seq', s.last_seq, 'last_jump', s.last_jump,
        'roots', (SELECT json_agg(json_build_array(r.head, r.cleared, r.floor, r.kept, r.messages))
                    FROM everturn.roots_v1(s.no) AS r),
        'jumps', (SELECT json_agg(json_build_array(j.seq, j.after, j.prior) ORDER BY j.seq)
                    FROM everturn.jumps j WHERE j.session = s.no),
        'remembered', (SELECT json_agg(json_build_array(g.version, g.head, g.cleared, g.floor, g.kept, g.messages))
                         FROM everturn.changes g
                        WHERE g.session = s.no AND g.version > s.version - 1024 AND g.head IS NOT NULL),
        'forgets', EXISTS (SELECT FROM everturn.changes g WHERE g.session = s.no AND g.version <= s.version - 1024))::text;
END
$$;

CREATE TYPE everturn.work_v1 AS (
    unreadable    bigint[],  -- versions whose states show what will be reclaimed
    firsts        bigint[],  -- ranges of entries that no root shows
    lasts         bigint[],
    summaries     boolean,   -- whether summaries go as well
    jumps         bigint[],  -- on the way to nothing, in order
    forget_to     bigint,    -- the version up to which changes can no longer be read
    forget_beyond bigint     -- and beyond which they are deleted (NULL: not yet)
);

-- One step of compacting a session, of at most p_limit rows: what it names is still of no use, see survey_v1.
CREATE FUNCTION everturn.compact_v1(
    p_namespace text, p_session_id text, p_no bigint, p_step json, p_limit bigint, p_patience integer, p_now double precision
) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
DECLARE
    s    everturn.sessions;
    d    everturn.work_v1 := json_populate_record(NULL::everturn.work_v1, p_step);
    jump everturn.jumps;
    next everturn.jumps;
    last bigint;  -- jump that was deleted, and the one before it
    before bigint;
    gone everturn.reclaimed_v1 := (1, 0, 0, 0, 0, 0);
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.no = p_no AND n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
    IF NOT FOUND OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) THEN
        RETURN (0, 0, 0, 0, 0, 0)::everturn.reclaimed_v1;
    END IF;
    IF d.unreadable IS NOT NULL THEN
        -- Before the first entry goes: a remembered version that shows it can no longer be read.
        UPDATE everturn.changes g
           SET head = NULL, seal = everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, NULL, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label)
         WHERE g.session = s.no AND g.version = ANY (d.unreadable) AND g.head IS NOT NULL
           AND g.seal = everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label);
    ELSIF d.firsts IS NOT NULL THEN
        gone := everturn.reclaim_v1(s.no, d.firsts, d.lasts, d.summaries, p_limit);
    ELSIF d.jumps IS NOT NULL THEN
        FOR jump IN SELECT j.* FROM unnest(d.jumps) WITH ORDINALITY AS k (seq, place)
                      CROSS JOIN LATERAL (SELECT * FROM everturn.jumps n
                                           WHERE n.session = s.no AND n.seq = k.seq OFFSET 0) AS j ORDER BY k.place
        LOOP
            IF jump.prior = last THEN  -- which has just gone
                jump.prior := before;
            END IF;
            last := jump.seq;
            before := jump.prior;
            DELETE FROM everturn.jumps j WHERE j.session = s.no AND j.seq = jump.seq;
            -- The jump behind it, or the session, names the one before it from now on.
            SELECT * INTO next FROM everturn.jumps j
             WHERE j.session = s.no AND j.seq > jump.seq ORDER BY j.seq LIMIT 1;
            IF next.seq IS NULL THEN
                s.last_jump := before;
            ELSIF next.seq <> ALL (d.jumps) THEN
                UPDATE everturn.jumps j
                   SET prior = before, seal = everturn.jump_seal_v1(j.session, j.seq, j.after, before)
                 WHERE j.session = s.no AND j.seq = next.seq;
            END IF;
        END LOOP;
    ELSE
        s.forgotten := greatest(s.forgotten, d.forget_to);
        IF d.forget_beyond IS NOT NULL THEN
            gone := everturn.forget_changes_v1(s.no, d.forget_beyond, d.forget_to, p_limit);
        END IF;
    END IF;
    UPDATE everturn.sessions n
       SET bytes = n.bytes - gone.bytes, others = n.others - gone.others, last_jump = s.last_jump, forgotten = s.forgotten,
           seal = NULL
     WHERE n.no = s.no;
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
    DELETE FROM everturn.names k USING everturn.sessions n
     WHERE n.no = p_session AND k.namespace = n.namespace AND k.session_id = n.session_id AND k.no = n.no;
    DELETE FROM everturn.sessions n WHERE n.no = p_session;
    RETURN snapshots;
END
$$;

-- Delete the changes of a session that is to go, at most so many (NULL: all). Returns how many went.
CREATE FUNCTION everturn.delete_changes_v1(p_session bigint, p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    gone bigint;
BEGIN
    DELETE FROM everturn.changes g
     WHERE g.session = p_session AND g.version = ANY (ARRAY(
        SELECT c.version FROM everturn.changes c WHERE c.session = p_session ORDER BY c.version LIMIT p_limit));
    GET DIAGNOSTICS gone = ROW_COUNT;
    RETURN gone;
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
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.ended AND n.life <> '' AND everturn.is_whole_v1(n) LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.expires_in <= everturn.step_v1(at) AND n.expires_at <= at AND everturn.is_whole_v1(n)
         ORDER BY n.expires_in LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN (0, 0, 0, 0, 0, 0)::everturn.reclaimed_v1;
        END IF;
        -- Before its first row goes: no clock that is set back brings half of it to light again, and none of it arrives.
        UPDATE everturn.sessions n SET ended = true, life = coalesce(nullif(n.life, ''), '-'), seal = NULL
         WHERE n.no = s.no;
    END IF;
    gone := everturn.reclaim_v1(s.no, ARRAY[0], ARRAY[9223372036854775807], true, p_step);
    IF gone.entries < p_step AND everturn.delete_changes_v1(s.no, p_step) < p_step THEN
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
    lost   bigint;
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
        gone := everturn.reclaim_v1(s.no, ARRAY[0], ARRAY[9223372036854775807], true, NULL);
        PERFORM everturn.delete_changes_v1(s.no, NULL);
        erased.entries := erased.entries + gone.entries;
        erased.bytes := erased.bytes + gone.bytes;
        erased.snapshots := erased.snapshots + everturn.delete_session_v1(s.no);
    END LOOP;
    -- A session whose row was lost: what is left under its number.
    FOR lost IN
        DELETE FROM everturn.names k
         WHERE k.namespace = p_namespace AND k.session_id = p_session_id
           AND NOT EXISTS (SELECT FROM everturn.sessions n
                            WHERE n.no = k.no AND n.namespace = k.namespace AND n.session_id = k.session_id)
        RETURNING k.no
    LOOP
        IF NOT EXISTS (SELECT FROM everturn.sessions n WHERE n.no = lost) THEN
            gone := everturn.reclaim_v1(lost, ARRAY[0], ARRAY[9223372036854775807], true, NULL);
            PERFORM everturn.delete_changes_v1(lost, NULL);
            erased.entries := erased.entries + gone.entries;
            erased.bytes := erased.bytes + gone.bytes;
            erased.snapshots := erased.snapshots + everturn.delete_session_v1(lost);
        END IF;
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
