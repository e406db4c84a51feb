-- Removal of sessions: reaping those that expired, and erasing. Each call is one bounded transaction.

-- One step of removing a session that ended: at most so many of its rows, and its own when no other is left. Entries and
-- changes go from the newest on; `last_seq` and `version` say where the next step begins: none looks at rows that are gone.
CREATE OR REPLACE FUNCTION everturn.remove_v1(s everturn.sessions, p_limit bigint) RETURNS everturn.removed_v1 LANGUAGE plpgsql AS $$
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
-- at the same time take different sessions. One that is arriving (18-transfer.sql), or that somebody is erasing, is left alone
-- until it expires.
CREATE OR REPLACE FUNCTION everturn.reap_v1(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1
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

-- One step of reaping, as reap_v1, and some leases that are over, of names that have no session.
CREATE OR REPLACE FUNCTION everturn.reap_v3(p_step bigint, p_now double precision) RETURNS everturn.reclaimed_v1 LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.leases l
     WHERE (l.namespace, l.session_id) IN (
        SELECT k.namespace, k.session_id FROM everturn.leases k
         WHERE k.life = '' AND k.until <= everturn.now_v1(p_now) - 60 AND NOT EXISTS (
            SELECT FROM everturn.sessions s WHERE s.namespace = k.namespace AND s.session_id = k.session_id AND NOT s.ended)
         LIMIT p_step FOR UPDATE SKIP LOCKED);
    RETURN everturn.reap_v1(p_step, p_now);
END
$$;

-- End a session that is to be erased, as before. One that was put together from what is left of it has no count of effects.
CREATE OR REPLACE FUNCTION everturn.end_erased_v1(s everturn.sessions, p_at double precision) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM everturn.sessions n WHERE n.no = s.no;
    DELETE FROM everturn.names k WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no;
    s.ended := true;
    s.life := '-';
    s.version := 9223372036854775807;
    s.last_seq := 9223372036854775807;
    s.effects := coalesce(s.effects, 0);
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
CREATE OR REPLACE FUNCTION everturn.erase_v1(
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
    calls  jsonb := '{}';
BEGIN
    PERFORM set_config('lock_timeout', p_patience::text, true);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id ORDER BY n.no FOR UPDATE
    LOOP
        fence := greatest(fence, s.fence);
    END LOOP;
    at := everturn.now_v1(p_now);  -- after the locks
    -- Where nothing is left, nothing can be removed too late: this request did it, if it was sent twice, or another.
    fence := CASE WHEN EXISTS (
        SELECT FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
    ) THEN greatest(fence, everturn.fence_v1(p_namespace, p_session_id, NULL)) END;
    PERFORM everturn.refuse_late_v1(p_issued, p_not_after, fence, at);
    FOR s IN
        SELECT * FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id
           AND (p_life IS NULL OR n.life = p_life OR n.ended OR everturn.is_over_v1(n.expires_at, at))
         ORDER BY n.no FOR UPDATE
    LOOP
        calls := calls || everturn.calls_of_v1(s);
        PERFORM everturn.end_erased_v1(s, at);
    END LOOP;
    -- A session whose row was lost: its other rows, by its number.
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
        PERFORM everturn.leave_tombstone_v1(p_namespace, p_session_id, at, calls);
    END IF;
    erased := everturn.erase_more_v1(p_namespace, p_session_id, p_limit);
    erased.spared := spared;
    erased.told := at;
    RETURN erased;
END
$$;

-- Erase a session, and its lease with it.
CREATE OR REPLACE FUNCTION everturn.erase_v3(
    p_namespace text, p_session_id text, p_life text, p_limit bigint, p_patience integer, p_issued double precision,
    p_not_after double precision, p_now double precision
) RETURNS everturn.erased_v1 LANGUAGE plpgsql AS $$
DECLARE
    erased everturn.erased_v1 := everturn.erase_v1(
        p_namespace, p_session_id, p_life, p_limit, p_patience, p_issued, p_not_after, p_now);
BEGIN
    IF NOT erased.spared AND everturn.is_absent_v5(p_namespace, p_session_id) THEN  -- else a life has begun, and has the lease
        DELETE FROM everturn.leases l WHERE l.namespace = p_namespace AND l.session_id = p_session_id;
    END IF;
    RETURN erased;
END
$$;

-- The next step: remove rows of lives of a session that were erased, or expired, at most so many.
CREATE OR REPLACE FUNCTION everturn.erase_more_v1(p_namespace text, p_session_id text, p_limit bigint) RETURNS everturn.erased_v1
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

-- Whether some transaction in this database may still see rows that an erasing transaction deleted.
CREATE OR REPLACE FUNCTION everturn.is_still_seen_v1(p_xid xid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM pg_stat_activity a
                    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
                      AND a.backend_type = 'client backend' AND age(a.backend_xmin) >= age(p_xid))
$$;
