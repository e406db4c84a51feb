-- Appends: the change that nearly all are. Turns of messages for different sessions, without a key or an expectation.
-- It repeats the case `Append` of core/plan_change.py, where the head is the last entry of the log: nothing is looked up first.

-- A turn whose session is updated, and whose rows are still to be written.
CREATE TYPE everturn.turn_v1 AS (
    session    bigint,
    version    bigint,
    first_seq  bigint,
    count      bigint,
    head       bigint,
    cleared    bigint,
    floor      bigint,
    messages   bigint,
    created_at double precision,
    kept       bigint[],
    call       bytea,
    before     bigint  -- bodies of the turns before it
);

-- Append a turn to each of these sessions, which are named in byte order: so two calls never wait for each other in a ring.
-- The arrays `p_calls`, `p_counts` (of entries), `p_sizes` (bytes of their bodies) and `p_not_after` have an element for each
-- session; `p_bodies` and `p_checksums` have one for each entry, in order. Returns the outcomes in the order of the sessions.
-- Each turn is all or nothing, and all commit together. No lock is waited for longer than `p_patience` milliseconds.
--
-- A session that is not there, has expired, whose head was moved, or that was changed or fenced since the request was issued,
-- takes the general way (apply_v1). `at` is the time of the change: where the conditions hold, the session was changed before.
CREATE FUNCTION everturn.append_v1(
    p_namespace text, p_session_ids text[], p_calls bytea[], p_counts text, p_sizes text, p_ttl double precision,
    p_bodies text[], p_checksums text, p_patience integer, p_issued double precision, p_not_after text,
    p_now double precision
) RETURNS SETOF everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    counts    bigint[]           := p_counts;
    sizes     bigint[]           := p_sizes;
    checksums bigint[]           := p_checksums;
    not_after double precision[] := p_not_after;
    waits     text               := set_config('lock_timeout', p_patience::text, true);  -- PERFORM would make a query of it
    taken     bigint             := 0;  -- bodies of the turns before this one
    at        double precision;
    s         record;
    r         everturn.request_v1;
    turns     everturn.turn_v1[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(p_session_ids) LOOP
        at := everturn.now_v1(p_now);
        UPDATE everturn.sessions t
           SET version = t.version + 1, last_seq = t.last_seq + counts[i], head = t.last_seq + counts[i],
               messages = t.messages + counts[i], bytes = t.bytes + sizes[i], changed_at = at, expires_at = at + t.ttl,
               changed_in = everturn.step_v1(at), expires_in = everturn.step_v1(at + t.ttl),
               tally = everturn.grown_v1(t.tally, counts[i], sizes[i], t.changed_at, at, t.expires_at, at + t.ttl)
         WHERE t.namespace = p_namespace AND t.session_id = p_session_ids[i] AND NOT t.ended AND t.head = t.last_seq
           AND t.changed_at < p_issued AND (t.fence IS NULL OR t.fence <= p_issued) AND p_issued <= at AND at <= not_after[i]
           AND NOT everturn.is_over_v1(t.expires_at, at)
        RETURNING (t.no, t.version, t.head - counts[i] + 1, counts[i], t.head, t.cleared, t.floor, t.messages, at, t.kept,
                   p_calls[i], taken)::everturn.turn_v1 AS turn, t.life, t.version, t.head - counts[i] + 1 AS first,
                  everturn.now_v1(p_now) AS told INTO s;
        IF FOUND THEN
            IF s.told > not_after[i] THEN  -- a lock that was waited for, too long; the conditions above saw an earlier time
                PERFORM everturn.refuse_late_v1(p_issued, not_after[i], NULL, s.told);
            END IF;
            turns := turns || s.turn;
            RETURN NEXT ('applied', s.life, s.version, s.first, counts[i], 0, NULL, NULL, NULL, NULL, s.told)
                        ::everturn.outcome_v1;
        ELSE
            r.session_id := p_session_ids[i];
            r.kind := 'append';
            r.call := p_calls[i];
            r.ttl := p_ttl;
            r.issued := p_issued;
            r.not_after := not_after[i];
            r.entries := counts[i];
            r.messages := counts[i];
            r.checksums := checksums[taken + 1 : taken + counts[i]];
            RETURN NEXT everturn.apply_v1(p_namespace, r, p_bodies[taken + 1 : taken + counts[i]], p_now);
        END IF;
        taken := taken + counts[i];
    END LOOP;
    -- The rows of all turns in two statements, whatever their number.
    INSERT INTO everturn.entries (session, seq, turn, created_at, checksum, kind, body)
    SELECT w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, e.checksum + everturn.place_v1(
               w.session, w.first_seq + e.place - 1, w.first_seq, w.created_at, 'message'), 'message', e.body
      FROM unnest(turns) AS w
     CROSS JOIN LATERAL unnest(p_bodies[w.before + 1 : w.before + w.count], checksums[w.before + 1 : w.before + w.count])
           WITH ORDINALITY AS e (body, checksum, place);
    INSERT INTO everturn.changes (session, version, first_seq, count, head, cleared, floor, messages, created_at, kept, kind,
                                  call, seal)
    SELECT w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept, 'append',
           w.call, everturn.change_seal_v1(
               w.session, w.version, w.first_seq, w.count, w.head, w.cleared, w.floor, w.messages, w.created_at, w.kept,
               'append', w.call, NULL, NULL, NULL, NULL)
      FROM unnest(turns) AS w;
END
$$;
