-- Keeping house: reclaiming what nothing can reach, reaping what expired, erasing. Each call is one bounded transaction.

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

CREATE TYPE everturn.removed_v1 AS (
    entries   bigint,
    bytes     bigint,
    snapshots bigint,
    is_gone   boolean  -- with its last row
);

-- One step of removing a session that ended: at most so many of its rows, and its own when no other is left. Entries and
-- changes go from the newest on; `last_seq` and `version` say where the next step begins, so that none looks at what is gone.
CREATE FUNCTION everturn.remove_v1(s everturn.sessions, p_limit bigint) RETURNS everturn.removed_v1 LANGUAGE plpgsql AS $$
DECLARE
    removed everturn.removed_v1;
    went    bigint;
    quota   bigint := p_limit;  -- of rows that may still go
BEGIN
    WITH deleted AS (
        DELETE FROM everturn.entries e
         WHERE e.session = s.no AND e.seq = ANY (ARRAY(
            SELECT n.seq FROM everturn.entries n WHERE n.session = s.no AND n.seq <= s.last_seq ORDER BY n.seq DESC LIMIT quota))
        RETURNING e.seq, octet_length(e.body) AS size
    )
    SELECT count(*), coalesce(sum(size), 0), 0, false, coalesce(min(seq) - 1, 0)
      INTO removed.entries, removed.bytes, removed.snapshots, removed.is_gone, s.last_seq FROM deleted;
    quota := quota - removed.entries;
    IF quota > 0 THEN
        WITH deleted AS (
            DELETE FROM everturn.changes g
             WHERE g.session = s.no AND g.version = ANY (ARRAY(
                SELECT c.version FROM everturn.changes c
                 WHERE c.session = s.no AND c.version <= s.version ORDER BY c.version DESC LIMIT quota))
            RETURNING g.version
        )
        SELECT count(*), coalesce(min(version) - 1, 0) INTO went, s.version FROM deleted;
        quota := quota - went;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.jumps j
         WHERE j.session = s.no AND j.seq = ANY (ARRAY(SELECT k.seq FROM everturn.jumps k WHERE k.session = s.no LIMIT quota));
        GET DIAGNOSTICS went = ROW_COUNT;
        quota := quota - went;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.snapshots n
         WHERE n.session = s.no AND n.snapshot_id = ANY (ARRAY(
            SELECT k.snapshot_id FROM everturn.snapshots k WHERE k.session = s.no LIMIT quota));
        GET DIAGNOSTICS removed.snapshots = ROW_COUNT;
        quota := quota - removed.snapshots;
    END IF;
    IF quota > 0 THEN
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no;
        DELETE FROM everturn.forks f WHERE f.no = s.no;
        DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
        DELETE FROM everturn.sessions n WHERE n.no = s.no;
        removed.is_gone := true;
    ELSE
        UPDATE everturn.sessions n SET last_seq = s.last_seq, version = s.version, seal = NULL WHERE n.no = s.no;
    END IF;
    RETURN removed;
END
$$;

-- One step of reaping: rows of a session that expired, and the session when nothing else is left of it. Workers that reap
-- at the same time take different sessions. One that is arriving (91-moves.sql), or that somebody is erasing, is left alone
-- until it expires.
CREATE FUNCTION everturn.reap_v1(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1
LANGUAGE plpgsql AS $$
DECLARE
    s    everturn.sessions;
    gone everturn.removed_v1;
    at   double precision := everturn.now_v1(p_now);
BEGIN
    DELETE FROM everturn.tombstones t
     WHERE (t.namespace, t.digest) IN (SELECT k.namespace, k.digest FROM everturn.tombstones k WHERE k.until <= at
                                        ORDER BY k.until LIMIT p_step FOR UPDATE SKIP LOCKED);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.ended AND n.life <> '' AND coalesce(n.expires_at <= at, true) AND everturn.is_whole_v1(n)
     LIMIT 1 FOR UPDATE SKIP LOCKED;
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
    gone := everturn.remove_v1(s, p_step);
    RETURN (1, gone.entries, gone.bytes, 0, 0, 0)::everturn.reclaimed_v1;
END
$$;

CREATE TYPE everturn.erased_v1 AS (
    entries   bigint,
    snapshots bigint,
    bytes     bigint,
    xid       xid,              -- of the transaction that did it
    spared    boolean,          -- another life than the one named lives there
    told      double precision, -- the server's clock
    left_over boolean           -- rows are left, which nobody can read; erase_more_v1 removes them
);

-- End a session that is to be erased, whatever it is like: from here on nobody finds it. All its rows can be removed, though
-- it may not know how many they are; others leave them for a minute to whoever erases it, and counts them.
CREATE FUNCTION everturn.end_erased_v1(s everturn.sessions, p_at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.sessions n WHERE n.no = s.no;
    DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
    s.ended := true;
    s.life := '-';
    s.version := 9223372036854775807;
    s.last_seq := 9223372036854775807;
    s.changed_at := p_at;
    s.changed_in := everturn.step_v1(p_at);
    s.expires_at := p_at + 60;
    s.expires_in := everturn.step_v1(p_at + 60);
    s.seal := everturn.session_seal_v1(s);
    s.tally := everturn.tally_v1(s.version, s.last_seq, s.head, s.messages, s.bytes, s.changed_at, s.expires_at) % 1099511627689;
    INSERT INTO everturn.sessions OVERRIDING SYSTEM VALUE VALUES (s.*);
END
$$;

-- Erase every life of a session, but for a living one that is not the one named (NULL: that one too), and remove at most so
-- many of their rows.
CREATE FUNCTION everturn.erase_v1(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
)
RETURNS everturn.erased_v1 LANGUAGE plpgsql AS $$
DECLARE
    s      everturn.sessions;
    lost   bigint;
    erased everturn.erased_v1;
    at     double precision;
    fence  double precision;
    spared boolean;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id ORDER BY n.no FOR UPDATE
    LOOP
        fence := greatest(fence, s.fence);
    END LOOP;
    at := everturn.now_v1(p_now);  -- after the locks
    fence := greatest(fence, everturn.fence_v1(p_namespace, p_session_id, NULL));
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, fence, at);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id
           AND (p_life IS NULL OR n.life = p_life OR n.ended OR everturn.is_over_v1(n.expires_at, at))
         ORDER BY n.no FOR UPDATE
    LOOP
        PERFORM everturn.end_erased_v1(s, at);
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
            s := json_populate_record(NULL::everturn.sessions, json_build_object(
                'no', lost, 'namespace', p_namespace, 'session_id', p_session_id, 'head', 0, 'cleared', 0, 'floor', 0,
                'kept', '{}'::bigint[], 'messages', 0, 'bytes', 0, 'created_at', at, 'snapshots', 0, 'undo_steps', 0,
                'others', 0, 'forgotten', 0, 'last_jump', 0));
            PERFORM everturn.end_erased_v1(s, at);
        END IF;
    END LOOP;
    spared := EXISTS (
        SELECT FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
    );
    IF NOT spared THEN
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, at);
    END IF;
    erased := everturn.erase_more_v1(p_namespace, p_session_id, p_limit);
    erased.spared := spared;
    erased.told := at;
    RETURN erased;
END
$$;

-- The next step: remove rows of lives of a session that were erased, or expired, at most so many.
CREATE FUNCTION everturn.erase_more_v1(p_namespace text, p_session_id text, p_limit bigint) RETURNS everturn.erased_v1
LANGUAGE plpgsql AS $$
DECLARE
    s      everturn.sessions;
    gone   everturn.removed_v1;
    quota  bigint              := p_limit;
    erased everturn.erased_v1 := (0, 0, 0, pg_current_xact_id()::xid, false, NULL, false);
BEGIN
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND n.ended AND n.life <> '' ORDER BY n.no FOR UPDATE
    LOOP
        IF quota <= 0 THEN
            erased.left_over := true;
            RETURN erased;
        END IF;
        gone := everturn.remove_v1(s, quota);
        erased.entries := erased.entries + gone.entries;
        erased.bytes := erased.bytes + gone.bytes;
        erased.snapshots := erased.snapshots + gone.snapshots;
        erased.left_over := NOT gone.is_gone;
        quota := CASE WHEN gone.is_gone THEN quota - gone.entries - gone.snapshots - 1 ELSE 0 END;
    END LOOP;
    RETURN erased;
END
$$;

-- Whether some transaction in this database may still see what an erasing transaction deleted.
CREATE FUNCTION everturn.is_still_seen_v1(p_xid xid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                      AND a.backend_type = 'client backend' AND age(a.backend_xmin) >= age(p_xid))
$$;
