-- Version 2: the same tables, and functions that do less. Changes go one way (03-changes.sql), and the latest k messages are
-- found without a look at the rest (02-reads.sql). Version 1's functions of the same names stay, for workers that are still open.
--
--   01-paths     ranges of a path, many jumps at a time        03-changes   every change
--   02-reads     entries of one state, newest first            04-folds     folds, rollbacks to a version, keys of changes
--   05-settings  the settings that every function runs under

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, and to the p_want newest of these
-- (NULL: all). `at` is where the path goes on below them. A jump is looked at where the path takes it. Every jump names the one
-- before it in the log, and the session the last: one that is lost is noticed.
CREATE FUNCTION everturn.ranges_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    firsts bigint[] := '{}';
    lasts  bigint[] := '{}';
    size   bigint   := 0;
    at     bigint   := p_head;
    link   bigint   := p_last_jump;  -- no jump lies between this one and the seqs above
    batch  bigint   := coalesce(p_want, 1000);
    top    bigint;
    lowest bigint;
    jump   record;
    part   record;
BEGIN
    IF p_high < p_low THEN
        at := 0;
    END IF;
    WHILE at >= p_low AND (p_want IS NULL OR size < p_want) LOOP
        IF link > at THEN  -- others lie between, of branches that this path does not take
            SELECT j.seq, j.after, j.prior, j.seal INTO jump
              FROM everturn.jumps j WHERE j.session = p_session AND j.seq > at ORDER BY j.seq LIMIT 1;
            IF jump.seq IS NULL OR jump.prior > at
               OR jump.seal <> everturn.jump_seal_v1(p_session, jump.seq, jump.after, jump.prior) THEN
                PERFORM everturn.damaged_v1(p_session, format('a jump after seq %s is lost or damaged', at));
            END IF;
            link := jump.prior;
        END IF;
        top := least(at, p_high);
        lowest := greatest(p_low, top - (p_want - size) + 1);
        IF link < lowest OR link <= p_low THEN  -- the last range: it begins above the jump
            firsts := firsts || lowest;
            lasts := lasts || top;
            size := size + top - lowest + 1;
            at := lowest - 1;
            EXIT;
        END IF;
        -- Many jumps in one query, as long as each range is followed by the one before it in the log.
        SELECT array_agg(greatest(k.seq, p_low) ORDER BY k.seq DESC) FILTER (WHERE k.held > 0) AS firsts,
               array_agg(least(k.last, p_high) ORDER BY k.seq DESC) FILTER (WHERE k.held > 0) AS lasts,
               coalesce(sum(k.held), 0) AS size, min(k.after) AS after, min(k.prior) AS prior,
               coalesce(max(k.named) FILTER (WHERE NOT k.is_whole), CASE count(*) WHEN 0 THEN link END) AS damaged
          INTO part
          FROM (SELECT w.*, sum(w.held) OVER (ORDER BY w.seq DESC) - w.held AS held_above
                  FROM (SELECT j.seq, j.after, j.prior, lag(j.after, 1, at) OVER newest AS last,
                               lag(j.prior, 1, link) OVER newest AS named,
                               greatest(least(lag(j.after, 1, at) OVER newest, p_high) - greatest(j.seq, p_low) + 1, 0) AS held,
                               j.seq = lag(j.prior, 1, link) OVER newest AND j.after < j.seq
                               AND j.seal = everturn.jump_seal_v1(p_session, j.seq, j.after, j.prior) AS is_whole,
                               bool_or(j.prior > j.after OR j.after < p_low) OVER (
                                   ORDER BY j.seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS is_beyond
                          FROM (SELECT * FROM everturn.jumps n
                                 WHERE n.session = p_session AND n.seq <= link ORDER BY n.seq DESC LIMIT batch) AS j
                        WINDOW newest AS (ORDER BY j.seq DESC)) AS w
                 WHERE w.is_beyond IS NOT TRUE) AS k
         WHERE p_want IS NULL OR k.held_above < p_want - size;
        IF part.damaged IS NOT NULL THEN
            PERFORM everturn.damaged_v1(p_session, format('the jump at seq %s is lost or damaged', part.damaged));
        END IF;
        firsts := firsts || part.firsts;
        lasts := lasts || part.lasts;
        size := size + part.size;
        at := part.after;
        link := part.prior;
        batch := batch * 2;
        IF size > p_want THEN  -- of the last range, the upper part
            lowest := firsts[cardinality(firsts)] + size - p_want;
            firsts[cardinality(firsts)] := lowest;
            size := p_want;
            at := lowest - 1;
        END IF;
    END LOOP;
    RETURN (firsts, lasts, size, at)::everturn.ranges_v1;
END
$$;

-- The same for a session's row, as functions of version 1 ask for it.
CREATE OR REPLACE FUNCTION everturn.ranges_v1(
    s everturn.sessions, p_head bigint, p_low bigint, p_high bigint, p_want bigint
) RETURNS everturn.ranges_v1 LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN everturn.ranges_v2(s.no, s.last_jump, p_head, p_low, p_high, p_want);
END
$$;
-- Reads of the entries of one state. STABLE: everything inside sees the one snapshot of the calling statement.

-- The entries a query names, newest first (but for summaries that a trim hid, which follow), and behind them one row without a seq whose body is a JSON object: their session
-- and state, the first seq that is missing, and whether p_limit left out earlier messages. With a limit, entries older than
-- the latest p_limit messages are not looked at.
-- Few expressions, and single columns of the session: plpgsql makes each expression ready anew in every transaction, for a
-- microsecond each. force_generic_plan, for all that it calls: else queries over ranges are planned anew each time, which takes
-- three times as long as running them for the latest 20. There is one good plan for them, whatever the ranges are.
CREATE FUNCTION everturn.read_v2(
    p_namespace text, p_session_id text, p_kind text, p_snapshot text, p_version bigint, p_after bigint, p_before bigint,
    p_limit bigint, p_snapshots boolean, p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       record;
    p       record;             -- the state
    high    bigint;
    shown   everturn.ranges_v1; -- visible whatever their kind
    hidden  everturn.ranges_v1; -- what a trim hid: there, summaries alone are visible
    kept    bigint[];           -- messages that it left in view
    counted   bigint;             -- messages in `shown`, at most one more than p_limit
    cut     boolean := false;
    handed  bigint;
    missing bigint  := 0;
    last    everturn.row_v1;
BEGIN
    SELECT n.no, n.last_jump, n.others, n.head, n.cleared, n.floor, n.kept, n.messages, NULL AS refusal,
           everturn.facts_v1(n) AS facts
      INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n);
    IF NOT FOUND THEN
        PERFORM everturn.session_v1(p_namespace, p_session_id, p_now);  -- raises, if there should be one
        last.body := convert_to('{"status":"no_session"}', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := s;
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        p := everturn.state_v1(everturn.session_v1(p_namespace, p_session_id, p_now), p_snapshot, p_version);
    END IF;
    IF p.refusal IS NULL AND p_limit IS DISTINCT FROM 0 THEN
        high := least(p_before - 1, p.head);
        IF p_limit IS NULL OR s.others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
            shown := everturn.ranges_v2(s.no, s.last_jump, p.head, greatest(p_after, p.floor) + 1, high, p_limit);
            counted := shown.size;
            cut := shown.at > greatest(p_after, p.floor);
        ELSE
            SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
              FROM everturn.latest_v2(
                       s.no, s.last_jump, p.head, greatest(p_after, p.floor) + 1, high, p_limit,
                       p.messages - cardinality(p.kept)) AS l;
            cut := counted > p_limit;
        END IF;
        IF p.floor > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k
                           WHERE k > p_after AND k > p.cleared AND k <= least(p.floor, high) ORDER BY k DESC);
            IF cardinality(kept) > p_limit - least(counted, p_limit) THEN
                kept := kept[1 : p_limit - least(counted, p_limit)];
                cut := true;
            END IF;
            IF p.cleared < p.floor AND (p_kind IS NULL OR p_kind = 'summary') THEN
                hidden := everturn.ranges_v2(
                    s.no, s.last_jump, p.head,
                    CASE WHEN cut THEN coalesce(kept[cardinality(kept)], p.floor + 1)
                         ELSE greatest(p_after, p.cleared) + 1 END, least(p.floor, high), NULL);
            END IF;
            shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        IF p_kind IS NULL OR p_kind = 'message' THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                        AND (p_kind IS NULL OR n.kind = 'message') ORDER BY n.seq DESC OFFSET 0) AS e;
            GET DIAGNOSTICS handed = ROW_COUNT;
        ELSE
            hidden.firsts := shown.firsts || hidden.firsts;
            hidden.lasts := shown.lasts || hidden.lasts;
        END IF;
        IF hidden.firsts IS NOT NULL THEN
            RETURN QUERY
                SELECT e.seq, e.created_at,
                       everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                       convert_to(e.body, 'UTF8'), e.kind, e.turn
                  FROM unnest(hidden.firsts, hidden.lasts) AS part (first, last)
                 CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                      WHERE n.session = s.no AND n.kind = coalesce(p_kind, 'summary') AND n.kind <> 'message'
                                        AND n.seq BETWEEN part.first AND part.last ORDER BY n.seq DESC OFFSET 0) AS e;
        END IF;
        IF handed IS DISTINCT FROM shown.size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
        IF hidden.size > 0 AND missing = 0 THEN
            PERFORM everturn.check_others_v1(everturn.session_v1(p_namespace, p_session_id, p_now));
        END IF;
    END IF;
    last.body := convert_to(json_build_object(
        'status', coalesce(p.refusal, 'found'), 'facts', s.facts,
        'state', CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        'snapshots', CASE WHEN p_snapshots THEN
            everturn.snapshots_v1(everturn.session_v1(p_namespace, p_session_id, p_now)) END,
        'first_missing', missing, 'cut', cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- The ranges of a path from the latest p_limit messages on, and how many messages are in them: one more, where there are more.
-- For sessions with other entries between the messages. p_most: messages that there can be at all.
CREATE FUNCTION everturn.latest_v2(
    p_session bigint, p_last_jump bigint, p_head bigint, p_low bigint, p_high bigint, p_limit bigint, p_most bigint,
    OUT ranges everturn.ranges_v1, OUT counted bigint
) LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    want bigint := 4 * (p_limit + 1);  -- seqs; the query ends where it has found enough
    seqs bigint[];
BEGIN
    LOOP
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, p_low, p_high, want);
        seqs := ARRAY(SELECT e.seq FROM unnest(ranges.firsts, ranges.lasts) AS part (first, last)
                       CROSS JOIN LATERAL (SELECT n.seq FROM everturn.entries n
                                            WHERE n.session = p_session AND n.seq BETWEEN part.first AND part.last
                                              AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e
                       LIMIT p_limit + 1);
        counted := cardinality(seqs);
        EXIT WHEN counted > p_limit OR counted >= p_most OR ranges.at < p_low;
        want := want * 4;
    END LOOP;
    IF counted >= p_limit THEN
        ranges := everturn.ranges_v2(p_session, p_last_jump, p_head, seqs[p_limit], p_high, NULL);
    END IF;
END
$$;
-- Changes: find an earlier attempt, plan (plan_v1), write. The rows written are those of `Plan` in core/plan_change.py.
-- Every change goes this way: lock the session's row, look, write. Turns of messages, which nearly all are, need no look where
-- the head is the last entry of the log (docs/decisions/007-postgres-functions.md).

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction. `p_bodies`, of p_size bytes, and `p_checksums` are of its entries.
CREATE FUNCTION everturn.apply_v2(
    p_namespace text, r everturn.request_v1, p_bodies text[], p_checksums bigint[], p_size bigint, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    s     everturn.sessions;
    over  everturn.sessions;  -- a life that has expired
    p     everturn.plan_v1;
    o     everturn.outcome_v1;
    now_  double precision;
    at    double precision;
    first bigint := 0;
BEGIN
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        now_ := everturn.now_v1(p_now);  -- after the lock: however long it was waited for
        IF everturn.is_over_v1(s.expires_at, now_) THEN
            over := s;
            s := NULL;
        END IF;
        at := greatest(now_, s.changed_at);  -- a clock that was set back does not make a session younger
        IF s.no IS NULL THEN
            s.fence := everturn.fence_v1(p_namespace, r.session_id, over);
        END IF;
        IF everturn.is_late_v1(r.issued, r.not_after, s.fence, now_) THEN
            p.refusal := 'late';
        ELSE
            IF s.no IS NOT NULL AND (r.retry OR r.key IS NOT NULL OR s.changed_at >= r.issued) THEN
                o := everturn.recall_v1(s, r, now_);
            END IF;
            IF r.retry AND o.status IS NULL THEN
                o := everturn.recall_erased_v1(p_namespace, r, now_);
            END IF;
            IF o.status = 'replayed' THEN
                RETURN o;
            END IF;
            IF o.status IS NOT NULL THEN
                p.refusal := o.status;
            ELSIF coalesce(s.version, 0) <> r.expected_version OR coalesce(s.life, '') <> r.expected_life THEN
                p.refusal := 'conflict';
            ELSE
                p := everturn.plan_v1(s, r);
            END IF;
        END IF;
        IF p.refusal IS NOT NULL THEN
            IF r.retry AND p.refusal <> 'late' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, s.no, now_);
            END IF;
            -- A key that was used before is refused with the first receipt, any other request with the present version.
            RETURN (p.refusal, coalesce(s.life, ''), coalesce(o.version, s.version, 0), coalesce(o.first_seq, 0),
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, NULL, NULL, NULL, now_)::everturn.outcome_v1;
        END IF;
        EXIT WHEN s.no IS NOT NULL;
        IF over.no IS NOT NULL THEN
            UPDATE everturn.sessions SET ended = true, seal = NULL WHERE no = over.no;
        END IF;
        INSERT INTO everturn.sessions (namespace, session_id, life, version, last_seq, head, messages, bytes, ttl,
                                       created_at, changed_at, changed_in, fence)
        VALUES (p_namespace, r.session_id, everturn.life_v1(r.call), 0, 0, 0, 0, 0, r.ttl, at, at, everturn.step_v1(at),
                s.fence)
            ON CONFLICT (namespace, session_id) WHERE NOT ended DO NOTHING
        RETURNING * INTO s;
        EXIT WHEN s.no IS NOT NULL;  -- else another worker began it meanwhile: look again
        over := NULL;
    END LOOP;
    IF r.entries > 0 THEN
        first := s.last_seq + 1;
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT s.no, first + e.place - 1, first, at, e.checksum + everturn.place_v1(
                   s.no, first + e.place - 1, first, at, coalesce(e.kind, 'message')),
               coalesce(e.kind, 'message'), e.body
          FROM unnest(p_bodies, p_checksums, r.kinds) WITH ORDINALITY AS e (body, checksum, kind, place);
    END IF;
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept,
                                  kind, call, key, content, snapshot_id, label, seal)
    VALUES (s.no, s.version + 1, first, r.entries, p.head, p.cleared, p.floor, p.messages, at, p.kept,
            r.kind, r.call, r.key, r.content, r.snapshot_id, r.label, everturn.change_seal_v1(
                s.no, s.version + 1, first, r.entries, p.head, p.cleared, p.floor, p.messages, at, p.kept,
                r.kind, r.call, r.key, r.content, r.snapshot_id, r.label));
    IF r.kind = 'append' AND r.messages = r.entries AND p.follows IS NULL THEN
        -- The log grows by messages, and that is all: the seal covers nothing of it, and the tally grows with it.
        UPDATE everturn.sessions t
           SET version = t.version + 1, last_seq = p.head, head = p.head, messages = p.messages, bytes = t.bytes + p_size,
               changed_at = at, expires_at = at + t.ttl,
               changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
               tally = everturn.grown_v1(t.tally, r.entries, p_size, t.changed_at, at, t.expires_at, at + t.ttl)
         WHERE t.no = s.no;
    ELSE
        PERFORM everturn.write_state_v2(s, r, p, first, p_size, at, now_);
    END IF;
    RETURN ('applied', s.life, s.version + 1, first, r.entries, 0, r.snapshot_id, r.label, p.messages, at, now_)
           ::everturn.outcome_v1;
END
$$;

-- Write what a change does to a session's row, and to its jumps, undo steps and snapshots. `s` is the row before it.
CREATE FUNCTION everturn.write_state_v2(
    s everturn.sessions, r everturn.request_v1, p everturn.plan_v1, p_first bigint, p_size bigint, p_at double precision,
    p_now double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    seconds double precision := CASE WHEN r.kind = 'ttl' THEN r.seconds ELSE s.ttl END;
BEGIN
    UPDATE everturn.sessions t
       SET version = s.version + 1, last_seq = s.last_seq + r.entries, head = p.head, cleared = p.cleared, floor = p.floor,
           kept = p.kept, messages = p.messages, bytes = s.bytes + p_size, dimension = coalesce(s.dimension, r.dimension),
           others = s.others + r.entries - coalesce(r.messages, 0),
           snapshots = s.snapshots + CASE r.kind WHEN 'snapshot' THEN 1 WHEN 'delete_snapshot' THEN -1 ELSE 0 END,
           undo_steps = CASE WHEN p.undoable THEN least(s.undo_steps + 1, 10) WHEN p.undone IS NULL THEN s.undo_steps
                             ELSE s.undo_steps - 1 END,
           last_jump = CASE WHEN p.follows IS NULL THEN s.last_jump ELSE p_first END, seal = NULL,
           ttl = seconds, expires_at = p_at + seconds, changed_at = p_at,
           changed_in = everturn.step_v1(p_at), expires_in = everturn.step_v1(p_at + seconds),
           fence = CASE WHEN r.kind IN ('rollback', 'undo') OR r.after <> s.head THEN p_now ELSE s.fence END
     WHERE t.no = s.no;
    IF p.follows IS NOT NULL THEN
        INSERT INTO everturn.jumps (session, seq, after, prior, seal)
        VALUES (s.no, p_first, p.follows, s.last_jump, everturn.jump_seal_v1(s.no, p_first, p.follows, s.last_jump));
    END IF;
    IF p.undoable THEN
        INSERT INTO everturn.undo_steps (session, version, kind, moved_to, hidden, head, cleared, floor, kept, messages)
        VALUES (s.no, s.version + 1, r.kind, p.head, s.messages - p.messages, s.head, s.cleared, s.floor, s.kept, s.messages);
        DELETE FROM everturn.undo_steps u
         WHERE u.session = s.no AND u.version <= (
            SELECT k.version FROM everturn.undo_steps k WHERE k.session = s.no ORDER BY k.version DESC OFFSET 10 LIMIT 1);
    ELSIF p.undone IS NOT NULL THEN
        DELETE FROM everturn.undo_steps u WHERE u.session = s.no AND u.version = p.undone;
    ELSIF r.kind = 'snapshot' THEN
        INSERT INTO everturn.snapshots (session, snapshot_id, label, version, head, cleared, floor, kept, messages, created_at)
        VALUES (s.no, r.snapshot_id, r.label, s.version + 1, p.head, p.cleared, p.floor, p.kept, p.messages, p_at);
    ELSIF r.kind = 'delete_snapshot' THEN
        DELETE FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id;
    END IF;
END
$$;

-- Apply changes, each all or nothing, and commit them together. The sessions are named in byte order: so two calls never wait
-- for each other in a ring. `p_calls`, `p_counts` (of entries), `p_sizes` (bytes of their bodies) and `p_not_after` have an element
-- for each change; `p_bodies` and `p_checksums` have one for each entry, in order. `p_rest` has a JSON object for each change:
-- request_v1 without these, empty for a turn of messages that has neither a key nor an expectation. NULL: all are such turns.
-- No lock is waited for longer than `p_patience` milliseconds. An error (there is none by design) undoes them all.
CREATE FUNCTION everturn.change_v2(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_ttl double precision, p_counts bigint[], p_sizes bigint[],
    p_bodies text[], p_checksums bigint[], p_rest json, p_patience integer, p_issued double precision,
    p_not_after double precision[], p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    waits text   := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    taken bigint := 0;  -- bodies of the changes before this one
    at    double precision;
    s     record;
    grown boolean;
    r     everturn.request_v1;
    turns everturn.turn_v1[] := '{}';  -- whose session is updated, and whose rows are still to be written
BEGIN
    FOR i IN 1 .. cardinality(p_session_ids) LOOP
        grown := false;
        IF p_rest IS NULL THEN
            -- Without a look: where these conditions hold, no earlier attempt was made, and nothing forbids the turn.
            at := everturn.now_v1(p_now);
            UPDATE everturn.sessions t
               SET version = t.version + 1, last_seq = t.last_seq + p_counts[i], head = t.last_seq + p_counts[i],
                   messages = t.messages + p_counts[i], bytes = t.bytes + p_sizes[i], changed_at = at, expires_at = at + t.ttl,
                   changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
                   tally = everturn.grown_v1(t.tally, p_counts[i], p_sizes[i], t.changed_at, at, t.expires_at, at + t.ttl)
             WHERE t.namespace = p_namespace AND t.session_id = p_session_ids[i] AND NOT t.ended AND t.head = t.last_seq
               AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at
               AND at <= p_not_after[i] AND NOT everturn.is_over_v1(t.expires_at, at)
            RETURNING (t.no, t.version, t.head - p_counts[i] + 1, p_counts[i], t.head, t.cleared, t.floor, t.messages, at, t.kept,
                       p_calls[i], taken)::everturn.turn_v1 AS turn, t.life, t.version, t.head - p_counts[i] + 1 AS first,
                      everturn.now_v1(p_now) AS told INTO s;
            grown := FOUND;
        END IF;
        IF grown THEN
            IF s.told > p_not_after[i] THEN  -- a lock that was waited for, too long; the conditions above saw an earlier time
                PERFORM everturn.refuse_late_v1(p_issued, p_not_after[i], NULL, s.told);
            END IF;
            turns := turns || s.turn;
            RETURN NEXT ('applied', s.life, s.version, s.first, p_counts[i], 0, NULL, NULL, NULL, NULL, s.told)
                        ::everturn.outcome_v1;
        ELSE
            r := (p_session_ids[i], 'append', p_calls[i], p_ttl, NULL, NULL, NULL, NULL, NULL, p_issued, p_not_after[i],
                  p_counts[i], NULL, NULL, p_counts[i], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                  NULL, NULL, NULL);
            IF p_rest IS NOT NULL THEN
                r := json_populate_record(r, p_rest -> (i - 1));
            END IF;
            RETURN NEXT everturn.apply_v2(
                p_namespace, r, p_bodies[taken + 1 : taken + p_counts[i]], p_checksums[taken + 1 : taken + p_counts[i]],
                p_sizes[i], p_now);
        END IF;
        taken := taken + p_counts[i];
    END LOOP;
    IF cardinality(turns) > 0 THEN  -- the rows of all of them in two statements
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, e.checksum + everturn.place_v1(
                   w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, 'message'), 'message', e.body
          FROM unnest(turns) AS w
         CROSS JOIN LATERAL unnest(p_bodies[w.before + 1 : w.before + w.count], p_checksums[w.before + 1 : w.before + w.count])
               WITH ORDINALITY AS e (body, checksum, place);
        INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept, kind,
                                      call, seal)
        SELECT w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
               'append', w.call, everturn.change_seal_v1(
                   w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
                   'append', w.call, NULL, NULL, NULL, NULL)
          FROM unnest(turns) AS w;
    END IF;
END
$$;
-- Folds, rollbacks to a version, and changes that say which key they were made with.

ALTER TYPE everturn.request_v1 ADD ATTRIBUTE to_version bigint;  -- rollback, where no snapshot is named

-- The plan for a request on a session (s.no IS NULL: there is none), or the reason of its refusal.
CREATE OR REPLACE FUNCTION everturn.plan_v1(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p    everturn.plan_v1;
    step everturn.undo_steps;
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF s.no IS NULL AND r.kind IN ('delete_snapshot', 'rollback', 'undo', 'ttl') THEN
        p.refusal := 'no_session';
        RETURN p;
    END IF;
    CASE r.kind
    WHEN 'append', 'replace' THEN
        IF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSIF r.after <> p.head THEN
            IF s.no IS NULL OR (r.after <> 0 AND NOT everturn.on_path_v1(s, p.head, r.after)) THEN
                p.refusal := 'not_on_path';
                RETURN p;
            END IF;
            p.kept := ARRAY(SELECT seq FROM unnest(s.kept) AS seq WHERE seq <= r.after ORDER BY seq);
            p.messages := s.messages - cardinality(s.kept) + cardinality(p.kept) - everturn.messages_v1(
                s.no, everturn.ranges_v1(s, s.head, greatest(r.after, s.floor) + 1, s.head, NULL));
            -- The floor never lies past the head: else it would hide entries that are appended there in a fork.
            p.head := r.after;
            p.cleared := least(r.after, s.cleared);
            p.floor := least(r.after, s.floor);
        ELSIF r.entries = 0 THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := r.after IS NOT NULL;
        p.messages := p.messages + r.messages;
        IF r.entries > 0 THEN
            IF p.head <> coalesce(s.last_seq, 0) THEN
                p.follows := p.head;
            END IF;
            p.head := coalesce(s.last_seq, 0) + r.entries;
        END IF;
    WHEN 'trim', 'fold' THEN
        IF r.kind = 'trim' AND (s.no IS NULL OR r.floor IS NULL) THEN
            p.refusal := 'unchanged';
        ELSIF s.no IS NULL
              OR (s.life, s.cleared, s.floor, s.kept)
                 IS DISTINCT FROM (r.seen_life, r.seen_cleared, r.seen_floor, r.seen_kept)
              OR (s.head <> r.seen_head AND NOT everturn.on_path_v1(s, s.head, r.seen_head)) THEN
            p.refusal := 'moved';
        ELSIF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSE
            p.floor := r.floor;
            p.kept := r.kept;
            p.messages := s.messages - r.hidden;
            p.undoable := true;
            IF r.kind = 'fold' THEN  -- the summary is appended
                IF s.head <> s.last_seq THEN
                    p.follows := s.head;
                END IF;
                p.head := s.last_seq + 1;
            END IF;
        END IF;
    WHEN 'clear' THEN
        IF s.no IS NULL
           OR NOT (s.floor < s.head OR cardinality(s.kept) > 0 OR everturn.has_hidden_summaries_v1(s)) THEN
            p.refusal := 'unchanged';
        ELSE
            p.cleared := s.head;
            p.floor := s.head;
            p.kept := '{}';
            p.messages := 0;
            p.undoable := true;
        END IF;
    WHEN 'snapshot', 'ttl' THEN
        NULL;  -- the state stays
    WHEN 'delete_snapshot' THEN
        IF NOT EXISTS (SELECT FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id) THEN
            p.refusal := 'no_snapshot';
        END IF;
    WHEN 'rollback' THEN
        p := everturn.state_v1(s, r.snapshot_id, r.to_version);
        IF (p.head, p.cleared, p.floor, p.kept, p.messages) = (s.head, s.cleared, s.floor, s.kept, s.messages) THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := true;
    WHEN 'undo' THEN
        SELECT * INTO step FROM everturn.undo_steps u WHERE u.session = s.no ORDER BY u.version DESC LIMIT 1;
        p.undone := step.version;
        IF (step.seal IS DISTINCT FROM everturn.undo_seal_v1(step) AND step.version IS NOT NULL)
           OR (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no) <> s.undo_steps THEN
            PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
        ELSIF step.version IS NULL THEN
            p.refusal := 'nothing_to_undo';
        ELSIF step.kind IN ('trim', 'clear') OR (step.kind = 'fold' AND s.head <> step.moved_to) THEN
            -- Entries that were hidden are shown again; later ones are not touched.
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := s.messages + step.hidden;
        ELSIF s.head <> step.moved_to AND r.drop_turns IS NOT TRUE THEN
            p.refusal := 'followed';
        ELSE
            p.head := step.head;
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := step.messages;
        END IF;
    END CASE;
    RETURN p;
END
$$;

-- The latest changes, newest first. Raises if one is lost or damaged.
CREATE FUNCTION everturn.changes_v2(p_namespace text, p_session_id text, p_limit bigint, p_now double precision)
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
-- Settings that every function here runs under, whoever calls it: set in one place, so that none is forgotten.
--
-- search_path: names in a function are looked up in pg_catalog alone (ours are qualified). Else a role that may create in
-- `public` has its own functions and operators called, as us. (Bodies after RETURN are parsed when they are created, under
-- the search_path of the migration, and inlined: they need no pin.)
-- enable_*: each table is read by an index, whatever the planner takes it for: before the first ANALYZE it takes a table of
-- 300,000 rows for a small one, and reads and sorts it whole for the latest 20. jit: what costs much by such a guess.
DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p
              WHERE p.pronamespace = (SELECT c.relnamespace FROM pg_class c WHERE c.oid = 'everturn.sessions'::regclass)
                AND p.prosqlbody IS NULL
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', f);
        EXECUTE format('ALTER FUNCTION %s SET enable_seqscan = off', f);
        EXECUTE format('ALTER FUNCTION %s SET enable_bitmapscan = off', f);
        EXECUTE format('ALTER FUNCTION %s SET jit = off', f);
    END LOOP;
END
$$;
