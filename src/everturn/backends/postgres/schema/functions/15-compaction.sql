-- Compaction: reclaim entries that nothing can reach, and old changes. Each call is one bounded transaction.
-- compaction.py plans the steps, by `reach` of core/paths.py.

-- Every state a session can return to, with its name for people.
CREATE OR REPLACE FUNCTION everturn.roots_v1(p_session bigint)
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
CREATE OR REPLACE FUNCTION everturn.reclaim_v1(p_session bigint, p_firsts bigint[], p_lasts bigint[], p_summaries boolean, p_limit bigint)
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
CREATE OR REPLACE FUNCTION everturn.forget_changes_v1(p_session bigint, p_beyond bigint, p_to bigint, p_limit bigint)
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

-- Raise if undo steps of a session are lost, or not as they were written.
CREATE OR REPLACE FUNCTION everturn.check_undo_steps_v1(s everturn.sessions) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF s.undo_steps <> (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no)
       OR EXISTS (SELECT FROM everturn.undo_steps u
                   WHERE u.session = s.no AND u.seal IS DISTINCT FROM everturn.undo_seal_v1(u)) THEN
        PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
    END IF;
END
$$;

-- Forget every undo step of a session, before it is compacted: entries that only `undo` could bring back are reclaimed then.
-- The version stays. Returns the server's clock. A request that comes late is refused: it would take steps that are not its own.
CREATE OR REPLACE FUNCTION everturn.drop_undo_v1(
    p_namespace text, p_session_id text, p_patience integer, p_issued double precision, p_not_after double precision,
    p_now double precision
) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    s  everturn.sessions;
    at double precision;
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended FOR UPDATE;
    at := everturn.now_v1(p_now);  -- after the lock
    IF s.no IS NOT NULL AND NOT everturn.is_over_v1(s.expires_at, at) THEN
        PERFORM everturn.refuse_late_v1(p_issued, p_not_after, s.fence, at);
        PERFORM everturn.check_undo_steps_v1(s);
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no;
        UPDATE everturn.sessions n SET undo_steps = 0, seal = NULL WHERE n.no = s.no AND n.undo_steps > 0;
    END IF;
    RETURN at;
END
$$;

-- Everything that a plan for compacting a session needs, seen at one moment, as JSON; NULL if there is no session. An entry
-- that nothing can reach now, nothing will: a head moves to a snapshot, an undo step, or on. So the plan is made without a lock.
CREATE OR REPLACE FUNCTION everturn.survey_v1(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM everturn.snapshots_v1(s);  -- where one is lost, what it shows must not be
    PERFORM everturn.check_undo_steps_v1(s);
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

-- One step of compacting a session, of at most p_limit rows. No state shows the rows that it names, now or later (survey_v1).
CREATE OR REPLACE FUNCTION everturn.compact_v1(
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
