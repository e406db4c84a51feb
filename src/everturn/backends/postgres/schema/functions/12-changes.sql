-- Changes: find an earlier attempt, plan (plan_v1), write. The rows written are those of `Plan` in core/plan_change.py.
-- Every change goes this way: lock the session's row, look, write. Turns of messages, which nearly all are, need no look where
-- the head is the last entry of the log (docs/decisions/007-postgres-functions.md).

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction. `p_bodies`, of p_size bytes, and `p_checksums` are of its entries.
CREATE OR REPLACE FUNCTION everturn.apply_v2(
    p_namespace text, r everturn.request_v1, p_bodies text[], p_checksums bigint[], p_size bigint, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    s       everturn.sessions;
    over    everturn.sessions;  -- a life that has expired
    p       everturn.plan_v1;
    o       everturn.outcome_v1;
    effect  everturn.effects;
    link    everturn.effect_keys;  -- shows that there is no such effect
    now_    double precision;
    at      double precision;
    first   bigint := 0;
    start   bigint;  -- of the copies of summaries, which stand before the turn
    carried bigint := greatest(r.carried, 0);
BEGIN
    LOOP
        SELECT * INTO s FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = r.session_id AND NOT n.ended FOR UPDATE;
        IF NOT FOUND AND NOT everturn.is_absent_v5(p_namespace, r.session_id) THEN
            CONTINUE;
        END IF;
        now_ := everturn.now_v1(p_now);  -- after the locks: however long they were waited for
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
            ELSIF r.lease_token IS NOT NULL AND NOT everturn.is_claimed_v3(p_namespace, s, r, now_) THEN
                p.refusal := 'lease_lost';
            ELSIF r.effect_attempt IS NOT NULL THEN
                effect := everturn.effect_of_v5(s.no, r.label);
                IF effect.key IS NULL THEN
                    link := everturn.spanning_link_v5(s.no, s.effects, r.label);
                END IF;
                p := everturn.plan_effect_v5(s, r, effect);
            ELSIF r.facts IS NOT NULL THEN
                p := everturn.plan_facts_v4(s, r);
            ELSE
                p := everturn.plan_v1(s, r);
            END IF;
        END IF;
        IF p.refusal IS NOT NULL THEN
            IF s.no IS NOT NULL THEN  -- what is told of a session must be true
                PERFORM everturn.check_session_v1(s);
            ELSE
                PERFORM everturn.check_absent_v1(p_namespace, r.session_id);
            END IF;
            IF r.retry AND p.refusal <> 'late' THEN
                PERFORM everturn.fence_off_v1(p_namespace, r.session_id, s.no, now_);
            END IF;
            -- A key that was used before is refused with the first receipt, any other request with the present version.
            RETURN (p.refusal, coalesce(s.life, ''), coalesce(o.version, s.version, 0), coalesce(o.first_seq, 0),
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, CASE WHEN r.effect_attempt IS NOT NULL THEN
                        everturn.effect_text_v5(p_namespace, s, everturn.effect_of_v5(s.no, r.label), now_) END, NULL, NULL, now_)::everturn.outcome_v1;
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
        IF s.no IS NOT NULL THEN
            PERFORM everturn.bind_lease_v5(p_namespace, r.session_id, s.life);
            EXIT;
        END IF;
        over := NULL;  -- another worker began it meanwhile: look again
    END LOOP;
    IF r.entries > 0 THEN
        first := s.last_seq + carried + 1;
    END IF;
    IF r.entries + carried > 0 THEN
        start := s.last_seq + 1;
        INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
        SELECT s.no, start + e.place - 1, e.turn, at, e.checksum + everturn.place_v1(
                   s.no, start + e.place - 1, e.turn, at, coalesce(e.kind, 'message')),
               coalesce(e.kind, 'message'), e.body
          FROM (SELECT b.*, CASE WHEN b.place <= carried THEN start ELSE first END AS turn
                  FROM unnest(p_bodies, p_checksums, r.kinds) WITH ORDINALITY AS b (body, checksum, kind, place)) AS e;
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
               tally = everturn.grown_v1(t.tally, r.entries, p_size, t.changed_at, at, t.expires_at, at + t.ttl),
               lease = coalesce(r.lease_token, t.lease)
         WHERE t.no = s.no;
    ELSE
        PERFORM everturn.write_state_v2(s, r, p, s.last_seq + 1, p_size, at, now_);
    END IF;
    IF r.facts IS NOT NULL THEN
        UPDATE everturn.sessions t SET facts = everturn.merged_facts_v4(s, r), seal = NULL WHERE t.no = s.no;
    END IF;
    IF r.effect_attempt IS NOT NULL THEN
        r.label := everturn.effect_text_v5(p_namespace, s, everturn.write_effect_v5(s, r, effect, link, at), now_);
    END IF;
    RETURN ('applied', s.life, s.version + 1, first, r.entries, 0, r.snapshot_id, r.label, p.messages, at, now_)
           ::everturn.outcome_v1;
END
$$;

-- Write what a change does to a session's row, and to its jumps, undo steps and snapshots. `s` is the row before it.
CREATE OR REPLACE FUNCTION everturn.write_state_v2(
    s everturn.sessions, r everturn.request_v1, p everturn.plan_v1, p_first bigint, p_size bigint, p_at double precision,
    p_now double precision
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    seconds double precision := CASE WHEN r.kind = 'ttl' THEN r.seconds ELSE s.ttl END;
    carried bigint := greatest(r.carried, 0);
BEGIN
    UPDATE everturn.sessions t
       SET version = s.version + 1, last_seq = s.last_seq + r.entries + carried, head = p.head, cleared = p.cleared, floor = p.floor,
           kept = p.kept, messages = p.messages, bytes = s.bytes + p_size, dimension = coalesce(s.dimension, r.dimension),
           others = s.others + r.entries + carried - coalesce(r.messages, 0),
           effects = s.effects + CASE WHEN r.kind = 'begin_effect' AND NOT EXISTS (
               SELECT FROM everturn.effects e WHERE e.session = s.no AND e.key = r.label) THEN 1 ELSE 0 END,
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
-- request_v1 without these. NULL: all are turns of messages without a key, and may name what they expect and a lease in `p_versions`,
-- `p_lives`, `p_tokens` and `p_holders`, an element for each change, where NULL or an empty text is none (NULL: none of them does).
-- No lock is waited for longer than `p_patience` milliseconds. An error (there is none by design) undoes them all.
CREATE OR REPLACE FUNCTION everturn.change_v5(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_ttl double precision, p_counts bigint[], p_sizes bigint[],
    p_bodies text[], p_checksums bigint[], p_versions bigint[], p_lives text[], p_tokens bigint[], p_holders text[], p_rest json,
    p_patience integer, p_issued double precision, p_not_after double precision[], p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    waits  text   := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    taken  bigint := 0;  -- bodies of the changes before this one
    at     double precision;
    leased text;              -- the life that a lease is of, if it is in force and the one that is named
    ends   double precision;  -- when that lease ends; NULL where none is named
    s      record;
    grown  boolean;
    r      everturn.request_v1;
    turns  everturn.turn_v1[] := '{}';  -- whose session is updated, and whose rows are still to be written
BEGIN
    FOR i IN 1 .. cardinality(p_session_ids) LOOP
        grown := false;
        IF p_rest IS NULL THEN
            -- Without a look: where these conditions hold, no earlier attempt was made, and nothing forbids the turn. All that a
            -- change could alter meanwhile is in the session's row, which is looked at again if its lock was waited for. (The row of the
            -- lease is not: whoever takes or releases it writes `t.lease`. A key would have to be looked for in other rows.)
            at := everturn.now_v1(p_now);
            ends := NULL;
            IF p_tokens[i] IS NOT NULL THEN
                SELECT l.life, l.until INTO leased, ends FROM everturn.leases l
                 WHERE l.namespace = p_namespace AND l.session_id = p_session_ids[i]
                   AND everturn.is_named_v5(l, l.life, p_tokens[i], p_holders[i], at);
            END IF;
            UPDATE everturn.sessions t
               SET version = t.version + 1, last_seq = t.last_seq + p_counts[i], head = t.last_seq + p_counts[i],
                   messages = t.messages + p_counts[i], bytes = t.bytes + p_sizes[i], changed_at = at, expires_at = at + t.ttl,
                   changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
                   tally = everturn.grown_v1(t.tally, p_counts[i], p_sizes[i], t.changed_at, at, t.expires_at, at + t.ttl)
             WHERE t.namespace = p_namespace AND t.session_id = p_session_ids[i] AND NOT t.ended AND t.head = t.last_seq
               AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at
               AND at <= p_not_after[i] AND NOT everturn.is_over_v1(t.expires_at, at)
               AND (p_versions[i] IS NULL OR t.version = p_versions[i]) AND (p_lives[i] <> '' AND t.life <> p_lives[i]) IS NOT TRUE
               AND (p_tokens[i] IS NULL OR t.lease = p_tokens[i] AND t.life = leased)
            RETURNING (t.no, t.version, t.head - p_counts[i] + 1, p_counts[i], t.head, t.cleared, t.floor, t.messages, at, t.kept,
                       p_calls[i], taken)::everturn.turn_v1 AS turn, t.life, t.version, t.head - p_counts[i] + 1 AS first,
                      everturn.now_v1(p_now) AS told INTO s;
            grown := FOUND;
        END IF;
        IF grown THEN
            IF s.told > least(p_not_after[i], ends) THEN  -- a lock was waited for: the conditions saw an earlier time
                PERFORM everturn.refuse_late_v1(p_issued, least(p_not_after[i], ends), NULL, s.told);
            END IF;
            turns := turns || s.turn;
            RETURN NEXT ('applied', s.life, s.version, s.first, p_counts[i], 0, NULL, NULL, NULL, NULL, s.told)
                        ::everturn.outcome_v1;
        ELSE
            r := (p_session_ids[i], 'append', p_calls[i], p_ttl, NULL, NULL, p_versions[i], nullif(p_lives[i], ''), NULL,
                  p_issued, p_not_after[i], p_counts[i], NULL, NULL, p_counts[i], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, p_tokens[i], nullif(p_holders[i], ''), NULL, NULL, NULL, NULL, NULL,
                  NULL);
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

-- The same for workers of version 4 that are still open. For those, `p_rest` says what a turn expects and which lease it names.
CREATE OR REPLACE FUNCTION everturn.change_v2(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_ttl double precision, p_counts bigint[], p_sizes bigint[],
    p_bodies text[], p_checksums bigint[], p_rest json, p_patience integer, p_issued double precision,
    p_not_after double precision[], p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.change_v5(
        p_namespace, p_session_ids, p_calls, p_ttl, p_counts, p_sizes, p_bodies, p_checksums, NULL, NULL, NULL, NULL, p_rest,
        p_patience, p_issued, p_not_after, p_now);
END
$$;
