-- Reads of the latest messages, with less work where other entries lie between them (tool calls, summaries, records) and where
-- turns are folded. docs/decisions/052-postgres-costs.md has the figures.

-- The ranges of the path that ends at p_head, cut to the seqs from p_low (at least 1) to p_high, and to the p_want newest of these
-- (NULL: all). `at` is where the path goes on below them. A jump is looked at where the path takes it. Every jump names the one
-- before it in the log, and the session the last: one that is lost is noticed.
CREATE OR REPLACE FUNCTION everturn.ranges_v2(
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
    ELSIF p_last_jump <= p_low AND p_high <= p_head THEN  -- one range: no jump was ever made above its beginning
        lowest := greatest(p_low, p_high - p_want + 1);
        RETURN (ARRAY[lowest], ARRAY[p_high], p_high - lowest + 1, lowest - 1)::everturn.ranges_v1;
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

-- The seq of the latest message that a limit leaves out, of a path that is one range; NULL if it leaves out none. (A function of its
-- own: the body of view_v3 would hold on to the table, which then could not be replaced by a partitioned one.)
CREATE FUNCTION everturn.left_out_v4(p_session bigint, p_low bigint, p_high bigint, p_limit bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (SELECT n.seq FROM everturn.entries n
             WHERE n.session = p_session AND n.seq BETWEEN p_low AND p_high AND n.kind = 'message'
             ORDER BY n.seq DESC OFFSET p_limit LIMIT 1);
END
$$;

-- A session that is there, the state that is asked for (p_head and so on; NULL: now), and its window. No row if there is no
-- session, or if its row is not as it was written.
-- Most reads need no walk along the path for their window: it takes no jump there. Where all entries are messages, or all are
-- wanted, `low` follows from the seqs. Where others lie between the messages, left_out_v4 finds the latest message that the limit
-- leaves out. Every other read asks window_v3. (OFFSET 0: `low`, and then the window, are worked out once. One
-- SELECT without settings of its own: the planner makes this a part of the query that calls it.)
CREATE OR REPLACE FUNCTION everturn.view_v3(
    p_namespace text, p_session_id text, p_kind text, p_head bigint, p_cleared bigint, p_floor bigint, p_kept bigint[],
    p_messages bigint, p_after bigint, p_before bigint, p_limit bigint, p_now double precision
) RETURNS TABLE (no bigint, others bigint, state json, facts json, shown everturn.window_v3) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.no, s.others, json_build_array(s.head, s.cleared, s.floor, s.kept, s.messages), s.facts,
           CASE WHEN p_limit = 0 THEN ROW('{}', '{}', 0, NULL, NULL, false)::everturn.window_v3
                WHEN s.last_jump <= s.low AND s.last_jump <= s.head
                     AND (cardinality(s.kept) = 0 OR s.low > greatest(p_after, s.floor) + 1)
                     AND (p_kind = 'message' OR (s.cleared = s.floor AND (p_limit IS NULL OR s.others = 0)))
                THEN ROW(ARRAY[s.low], ARRAY[s.high], greatest(s.high - s.low + 1, 0), NULL, NULL,
                         s.low > greatest(p_after, s.floor) + 1)::everturn.window_v3
                ELSE everturn.window_v3(s.no, s.last_jump, s.others, s.head, s.cleared, s.floor, s.kept, s.messages, p_kind,
                                        p_after, s.high, p_limit) END
      FROM (SELECT t.*, least(p_before - 1, t.head) AS high,
                   CASE WHEN t.others = 0 OR p_limit IS NULL
                        THEN greatest(least(p_before - 1, t.head) - p_limit, p_after, t.floor)
                        WHEN p_kind = 'message' AND t.last_jump <= greatest(p_after, t.floor) + 1
                             AND t.messages - cardinality(t.kept) > p_limit
                        THEN everturn.left_out_v4(
                                 t.no, greatest(p_after, t.floor) + 1, least(p_before - 1, t.head), p_limit) END + 1 AS low
              FROM (SELECT n.no, n.others, n.last_jump, coalesce(p_head, n.head) AS head,
                           coalesce(p_cleared, n.cleared) AS cleared, coalesce(p_floor, n.floor) AS floor,
                           coalesce(p_kept, n.kept) AS kept, coalesce(p_messages, n.messages) AS messages,
                           everturn.facts_v1(n) AS facts
                      FROM everturn.sessions n
                     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now)) AND everturn.is_whole_v1(n)) AS t
            OFFSET 0) AS s
    OFFSET 0;
END;

-- The p_limit latest messages of a state, newest first. In front of them, the p_summaries latest summaries behind `cleared`, newest first, if a
-- trim or fold hides anything. Behind them, if there are earlier messages, those among the first p_front entries behind the floor, and all
-- that a trim kept. The last row is that of read_v3, with all entries counted.
-- A summary that is lost is missed while a session has no more than a thousand entries that are no messages; above, verify finds it.
CREATE OR REPLACE FUNCTION everturn.front_v3(
    p_namespace text, p_session_id text, p_snapshot text, p_version bigint, p_limit bigint, p_front bigint, p_summaries bigint,
    p_now double precision
) RETURNS SETOF everturn.row_v1 LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    s       record;
    p       record;             -- the state
    shown   everturn.ranges_v1; -- visible whatever their kind
    kept    bigint[];           -- messages that it left in view
    front   everturn.ranges_v1; -- what a prompt begins with
    counted bigint;             -- messages in `shown`, at most one more than p_limit
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
        last.body := convert_to('["no_session"]', 'UTF8');
        RETURN NEXT last;
        RETURN;
    END IF;
    p := s;
    IF p_snapshot IS NOT NULL OR p_version IS NOT NULL THEN
        p := everturn.state_v1(everturn.session_v1(p_namespace, p_session_id, p_now), p_snapshot, p_version);
    END IF;
    IF p.refusal IS NULL THEN
        IF s.others = 0 THEN  -- where all entries are messages, the latest are those of the highest seqs
            shown := everturn.ranges_v2(s.no, s.last_jump, p.head, p.floor + 1, p.head, p_limit);
            counted := shown.size;
            cut := shown.at > p.floor;
        ELSE
            SELECT (l.ranges).*, l.counted INTO shown.firsts, shown.lasts, shown.size, shown.at, counted
              FROM everturn.latest_v2(
                       s.no, s.last_jump, p.head, p.floor + 1, p.head, p_limit,
                       p.messages - cardinality(p.kept)) AS l;
            cut := counted > p_limit;
        END IF;
        IF p.floor > 0 THEN
            kept := ARRAY(SELECT k FROM unnest(p.kept) AS k WHERE k > p.cleared ORDER BY k DESC);
            cut := cut OR cardinality(kept) > p_limit - counted;
        END IF;
        IF cut AND counted > 0 THEN
            front := everturn.first_entries_v3(
                s.no, s.last_jump, p.head, p.floor + 1, shown.firsts[cardinality(shown.firsts)] - 1, p_front);
            shown := (shown.firsts || front.firsts, shown.lasts || front.lasts, shown.size + front.size, 0);
        END IF;
        IF p.cleared < p.floor AND s.others > 0 THEN
            RETURN QUERY SELECT * FROM everturn.summaries_v3(s.no, s.last_jump, p.head, p.cleared + 1, p_summaries);
            -- As check_others_v1 does, without another look at the session.
            IF s.others <= 1000 AND s.others <> (
                SELECT count(*) FILTER (WHERE everturn.is_placed_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum))
                  FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message') THEN
                PERFORM everturn.damaged_v1(s.no, 'summaries or other entries are lost or damaged');
            END IF;
        END IF;
        IF cardinality(kept) > 0 THEN
            shown := (shown.firsts || kept, shown.lasts || kept, shown.size + cardinality(kept), 0);
        END IF;
        -- The newest range first, and each from its end: the rows come in order, and none is sorted.
        RETURN QUERY
            SELECT e.seq, e.created_at, everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum),
                   convert_to(e.body, 'UTF8'), e.kind, e.turn
              FROM unnest(shown.firsts, shown.lasts) AS part (first, last)
             CROSS JOIN LATERAL (SELECT * FROM everturn.entries n
                                  WHERE n.session = s.no AND n.seq BETWEEN part.first AND part.last
                                    AND n.kind = 'message' ORDER BY n.seq DESC OFFSET 0) AS e;
        GET DIAGNOSTICS handed = ROW_COUNT;
        IF handed IS DISTINCT FROM shown.size THEN  -- else counting was enough to see that none is missing
            missing := everturn.first_missing_v1(s.no, shown);
        END IF;
    END IF;
    last.body := convert_to(json_build_array(
        coalesce(p.refusal, 'found'), s.facts,
        CASE WHEN p.refusal IS NULL THEN json_build_array(p.head, p.cleared, p.floor, p.kept, p.messages) END,
        NULL, missing, NULL, cut)::text, 'UTF8');
    RETURN NEXT last;
END
$$;

-- Facts: names and texts that a session is found by. The rules are those of core/plan_change.py.

ALTER TABLE everturn.sessions ADD COLUMN facts jsonb;      -- they belong to the life; NULL for none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE facts jsonb;  -- to set; null removes one. NULL: the request is about no facts

-- The same facts once more, a row each, so that sessions are found by them: kept by the triggers below.
CREATE TABLE everturn.facts (
    session    bigint NOT NULL,
    namespace  text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE INDEX facts_by_value ON everturn.facts (namespace, name, value, session_id);

CREATE FUNCTION everturn.index_facts_v4() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM everturn.facts f WHERE f.session = OLD.no;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO everturn.facts (session, namespace, session_id, name, value)
        SELECT NEW.no, NEW.namespace, NEW.session_id, f.key, f.value FROM jsonb_each_text(NEW.facts) AS f;
    END IF;
    RETURN NULL;
END
$$;

-- Three triggers, because each WHEN spares the sessions without facts, which nearly all changes are about.
CREATE TRIGGER index_facts AFTER UPDATE OF facts ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS DISTINCT FROM NEW.facts) EXECUTE FUNCTION everturn.index_facts_v4();
CREATE TRIGGER index_new_facts AFTER INSERT ON everturn.sessions FOR EACH ROW
WHEN (NEW.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();
CREATE TRIGGER forget_facts AFTER DELETE ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

-- The seal of a session, as before; and over its facts, if it has any.
CREATE OR REPLACE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])
    || CASE WHEN (s).facts IS NULL THEN '' ELSE convert_to((s).facts::text, 'UTF8') END) FROM 1 FOR 8);

-- The facts that a session has after a request; NULL for none.
CREATE FUNCTION everturn.merged_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(jsonb_strip_nulls(coalesce((s).facts, '{}') || (r).facts), '{}');

-- The plan for a request that sets facts, or the reason of its refusal. The state stays.
CREATE FUNCTION everturn.plan_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p     everturn.plan_v1;
    facts jsonb := everturn.merged_facts_v4(s, r);
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF facts IS NOT DISTINCT FROM s.facts THEN
        p.refusal := 'unchanged';
    ELSIF (SELECT count(*) FROM jsonb_object_keys(facts)) > 16 THEN  -- MOST_FACTS in core/facts.py
        p.refusal := 'too_many_facts';
    END IF;
    RETURN p;
END
$$;
-- Changes that set facts.

-- Apply one change, or return the reason of its refusal. The session's row is locked from the first look to the end of the
-- transaction. `p_bodies`, of p_size bytes, and `p_checksums` are of its entries.
CREATE OR REPLACE FUNCTION everturn.apply_v2(
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
            ELSIF r.lease_token IS NOT NULL AND NOT everturn.is_claimed_v3(p_namespace, s, r, now_) THEN
                p.refusal := 'lease_lost';
            ELSIF r.effect_attempt IS NOT NULL THEN
                p := everturn.plan_effect_v3(s, r);
            ELSIF r.facts IS NOT NULL THEN
                p := everturn.plan_facts_v4(s, r);
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
                    coalesce(o.count, 0), coalesce(s.dimension, 0), NULL, CASE WHEN r.effect_attempt IS NOT NULL THEN
                        everturn.effect_text_v3(p_namespace, s, r.label, now_) END, NULL, NULL, now_)::everturn.outcome_v1;
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
            UPDATE everturn.leases l SET life = s.life, seal = everturn.lease_seal_v3(
                       l.namespace, l.session_id, s.life, l.token, l.holder, l.until)
             WHERE l.namespace = p_namespace AND l.session_id = r.session_id AND l.life = '';
            EXIT;
        END IF;
        over := NULL;  -- another worker began it meanwhile: look again
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
    IF r.facts IS NOT NULL THEN
        UPDATE everturn.sessions t SET facts = everturn.merged_facts_v4(s, r), seal = NULL WHERE t.no = s.no;
    END IF;
    IF r.effect_attempt IS NOT NULL THEN
        PERFORM everturn.write_effect_v3(s, r, at);
        r.label := everturn.effect_text_v3(p_namespace, s, r.label, now_);
    END IF;
    RETURN ('applied', s.life, s.version + 1, first, r.entries, 0, r.snapshot_id, r.label, p.messages, at, now_)
           ::everturn.outcome_v1;
END
$$;
-- Sessions found by their facts, and facts in answers about sessions.

-- A session (model.SessionInfo), as a JSON array.
CREATE OR REPLACE FUNCTION everturn.facts_v1(s everturn.sessions) RETURNS json
LANGUAGE sql STABLE PARALLEL SAFE
RETURN json_build_array(
    (s).session_id, (s).life, (s).version, (s).messages, (s).last_seq, (s).bytes, (s).snapshots, (s).undo_steps,
    (s).created_at, (s).changed_at, (s).ttl, (s).expires_at, (s).forked_from, coalesce((s).facts, '{}'));

CREATE TYPE everturn.listed_v4 AS (
    session_id  text,
    life        text,
    version     bigint,
    messages    bigint,
    last_seq    bigint,
    bytes       bigint,
    snapshots   bigint,
    undo_steps  bigint,
    created_at  double precision,
    changed_at  double precision,
    ttl         double precision,
    expires_at  double precision,
    forked_from text,
    facts       text
);

-- A page in byte order of the names. Sessions whose row is lost or hidden are on it as well, with zeros: a read of
-- one of these raises, and `verify` and copies do not pass it over.
CREATE FUNCTION everturn.sessions_by_name_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_since double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE AS $$
    WITH page AS MATERIALIZED (
        SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
               s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text
          FROM everturn.sessions s
         WHERE s.namespace = p_namespace AND NOT s.ended AND s.session_id > p_past AND s.session_id >= p_prefix
           AND (p_beyond IS NULL OR s.session_id < p_beyond)
           AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now)) AND s.changed_at >= p_since
         ORDER BY s.session_id LIMIT p_limit)
    SELECT * FROM page
    UNION ALL
    SELECT DISTINCT k.session_id, '', 0, 0, 0, 0, 0, 0, 0.0::float8, 0.0::float8, NULL::float8, NULL::float8, NULL, NULL
      FROM everturn.names k LEFT JOIN everturn.sessions s ON s.no = k.no
     WHERE p_since = 0 AND k.namespace = p_namespace AND k.session_id > p_past AND k.session_id >= p_prefix
       AND (p_beyond IS NULL OR k.session_id < p_beyond)
       AND ((SELECT count(*) FROM page) < p_limit OR k.session_id <= (SELECT max(page.session_id) FROM page))
       AND (s.session_id IS DISTINCT FROM k.session_id OR s.namespace IS DISTINCT FROM k.namespace
            OR ((s.ended OR everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))) AND NOT everturn.is_whole_v1(s)))
     ORDER BY session_id
$$;

-- A page with the latest changed first: five minutes from the index at a time, sorted.
CREATE FUNCTION everturn.sessions_by_change_v4(
    p_namespace text, p_prefix text, p_beyond text, p_past text, p_before double precision, p_limit bigint,
    p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE sql STABLE AS $$
    SELECT s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps,
           s.created_at, s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text
      FROM everturn.sessions s
     WHERE s.namespace = p_namespace AND NOT s.ended AND (s.changed_at, s.session_id) < (p_before, p_past)
       AND s.session_id >= p_prefix AND (p_beyond IS NULL OR s.session_id < p_beyond)
       AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(p_now))
       AND s.changed_in <= everturn.step_v1(least(p_before, 1e15))
     ORDER BY s.changed_in DESC, s.changed_at DESC, s.session_id DESC LIMIT p_limit
$$;

-- A page of the sessions that have all these facts: in byte order of the names, or with the latest changed first (p_recent: before
-- p_bound and p_past; else past p_past, and changed since p_bound). The index of facts is read for the rarest of them.
CREATE FUNCTION everturn.sessions_by_fact_v4(
    p_namespace text, p_where jsonb, p_recent boolean, p_prefix text, p_beyond text, p_past text, p_bound double precision,
    p_limit bigint, p_now double precision
) RETURNS SETOF everturn.listed_v4 LANGUAGE plpgsql STABLE AS $$
DECLARE
    at     double precision := everturn.now_v1(p_now);
    rarest record;
    s      everturn.sessions;
    listed bigint := 0;
BEGIN
    SELECT w.key AS name, w.value INTO rarest FROM jsonb_each_text(p_where) AS w
     ORDER BY (SELECT count(*) FROM (SELECT FROM everturn.facts f
                                      WHERE f.namespace = p_namespace AND f.name = w.key AND f.value = w.value LIMIT 100) k)
     LIMIT 1;
    IF p_recent THEN
        RETURN QUERY
            SELECT n.session_id, n.life, n.version, n.messages, n.last_seq, n.bytes, n.snapshots, n.undo_steps,
                   n.created_at, n.changed_at, n.ttl, n.expires_at, n.forked_from, n.facts::text
              FROM everturn.facts f JOIN everturn.sessions n ON n.no = f.session
             WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value
               AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
               AND (n.changed_at, n.session_id) < (p_bound, p_past) AND NOT n.ended AND n.facts @> p_where
               AND NOT everturn.is_over_v1(n.expires_at, at)
             ORDER BY n.changed_at DESC, n.session_id DESC LIMIT p_limit;
        RETURN;
    END IF;
    FOR s IN
        SELECT n.* FROM everturn.facts f JOIN everturn.sessions n ON n.no = f.session
         WHERE f.namespace = p_namespace AND f.name = rarest.name AND f.value = rarest.value AND f.session_id > p_past
           AND f.session_id >= p_prefix AND (p_beyond IS NULL OR f.session_id < p_beyond)
         ORDER BY f.session_id
    LOOP
        CONTINUE WHEN s.ended OR everturn.is_over_v1(s.expires_at, at) OR s.changed_at < p_bound;
        PERFORM everturn.check_session_v1(s);
        IF s.facts ->> rarest.name IS DISTINCT FROM rarest.value THEN
            PERFORM everturn.damaged_v1(s.no, format('the index of facts has not the fact %s of its row', rarest.name));
        END IF;
        CONTINUE WHEN NOT s.facts @> p_where;
        RETURN NEXT (s.session_id, s.life, s.version, s.messages, s.last_seq, s.bytes, s.snapshots, s.undo_steps, s.created_at,
                     s.changed_at, s.ttl, s.expires_at, s.forked_from, s.facts::text)::everturn.listed_v4;
        listed := listed + 1;
        EXIT WHEN listed = p_limit;
    END LOOP;
END
$$;
-- Effects are counted in the row of their session, so that none is missed: one that vanishes would begin again.

ALTER TABLE everturn.sessions ADD COLUMN effects bigint NOT NULL DEFAULT 0;

-- The seal of a session, as before; and over the number of its effects, if it has any.
CREATE OR REPLACE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])
    || CASE WHEN (s).facts IS NULL THEN '' ELSE convert_to((s).facts::text, 'UTF8') END
    || CASE WHEN (s).effects <> 0 THEN int8send((s).effects) ELSE '' END) FROM 1 FOR 8);

-- (A session that is damaged stays as it is: the trigger that seals would refuse it, and the migration with it.)
UPDATE everturn.sessions n
   SET effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no), seal = NULL
 WHERE EXISTS (SELECT FROM everturn.effects e WHERE e.session = n.no) AND everturn.is_whole_v1(n);

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

-- Raise if a session has not as many effects as it should. By one statement: all that it sees is of one moment.
CREATE FUNCTION everturn.check_effects_v4(p_session bigint) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM FROM everturn.sessions n
      WHERE n.no = p_session AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    IF FOUND THEN
        PERFORM everturn.damaged_v1(p_session, 'some of its effects are lost');
    END IF;
END
$$;

-- An effect of a session; NULL if it was never begun. Raises if it is not as it was written, or if one is lost.
CREATE OR REPLACE FUNCTION everturn.effect_of_v3(p_session bigint, p_key text) RETURNS everturn.effects
LANGUAGE plpgsql STABLE AS $$
DECLARE
    e everturn.effects;
BEGIN
    SELECT * INTO e FROM everturn.effects k WHERE k.session = p_session AND k.key = p_key;
    IF NOT FOUND THEN
        PERFORM everturn.check_effects_v4(p_session);
    ELSIF e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) THEN
        PERFORM everturn.damaged_v1(p_session, format('the effect %s is not as it was written', p_key));
    END IF;
    RETURN e;
END
$$;

-- Write the effect that a change begins or ends. `s` is the session before it.
CREATE OR REPLACE FUNCTION everturn.write_effect_v3(s everturn.sessions, r everturn.request_v1, p_at double precision)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    e      everturn.effects := everturn.effect_of_v3(s.no, r.label);
    is_new boolean          := e.key IS NULL;
BEGIN
    IF r.kind = 'begin_effect' THEN
        e := (s.no, r.label, 'started', coalesce(e.attempt, 0) + 1, s.version + 1, 0, coalesce(r.lease_token, 0), r.effect_by, p_at,
              NULL, coalesce(r.effect_body, e.request), NULL, NULL, NULL, NULL)::everturn.effects;
    ELSE
        e.ended := s.version + 1;
        e.ended_at := p_at;
        e.note := r.effect_note;
        IF r.kind = 'finish_effect' THEN
            e.status := 'finished';
            e.result := r.effect_body;
        ELSE
            e.status := 'failed';
            e.error := r.effect_body;
        END IF;
    END IF;
    e.seal := everturn.effect_seal_v3(e);
    INSERT INTO everturn.effects VALUES (e.*)
        ON CONFLICT (session, key) DO UPDATE
       SET status = EXCLUDED.status, attempt = EXCLUDED.attempt, began = EXCLUDED.began, ended = EXCLUDED.ended,
           token = EXCLUDED.token, by = EXCLUDED.by, at = EXCLUDED.at, ended_at = EXCLUDED.ended_at, request = EXCLUDED.request,
           result = EXCLUDED.result, error = EXCLUDED.error, note = EXCLUDED.note, seal = EXCLUDED.seal;
    IF is_new THEN
        UPDATE everturn.sessions t SET effects = t.effects + 1, seal = NULL WHERE t.no = s.no;
    END IF;
END
$$;

-- The effects of a session's present life, in the order in which they were begun, as JSON; NULL if there is no session.
CREATE OR REPLACE FUNCTION everturn.effects_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    s     everturn.sessions := everturn.session_v1(p_namespace, p_session_id, p_now);
    held  bigint;
    wrong text;
BEGIN
    IF s.no IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT e.key INTO wrong FROM everturn.effects e
     WHERE e.session = s.no AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e) LIMIT 1;
    IF FOUND THEN
        PERFORM everturn.damaged_v1(s.no, format('the effect %s is not as it was written', wrong));
    END IF;
    PERFORM everturn.check_effects_v4(s.no);
    held := everturn.held_v3(p_namespace, s, everturn.now_v1(p_now));
    RETURN json_build_object('life', s.life, 'version', s.version, 'effects', coalesce(
        (SELECT json_agg(everturn.effect_json_v3(e, held) ORDER BY e.began, e.key) FROM everturn.effects e
          WHERE e.session = s.no), '[]'));
END
$$;
-- Facts in copies, forks and verification.

-- Begin a fork. The copy has the facts of its source: whoever erases by a fact must find it.
CREATE OR REPLACE FUNCTION everturn.begin_fork_v1(
    s everturn.sessions, p everturn.plan_v1, p_target text, p_until double precision, p_at double precision
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    no_    bigint;
    path   everturn.ranges_v1 := everturn.ranges_v1(s, p.head, 1, p.head, NULL);
    whole  everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.floor + 1, p.head, NULL);
    hidden everturn.ranges_v1 := everturn.ranges_v1(s, p.head, p.cleared + 1, p.floor, NULL);
BEGIN
    INSERT INTO everturn.sessions (namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept, messages,
                                   bytes, dimension, expires_at, created_at, changed_at, forked_from, changed_in, expires_in,
                                   last_jump, facts)
    VALUES (s.namespace, p_target, true, '', 1, p.head, p.head, p.cleared, p.floor, p.kept, p.messages,
            0, s.dimension, p_until, p_at, p_at, s.session_id, everturn.step_v1(p_at), everturn.step_v1(p_until),
            CASE WHEN path.firsts[1] > 1 THEN path.firsts[1] ELSE 0 END, s.facts)
    RETURNING no INTO no_;
    -- The jumps on the way, and no others: each but the first range begins with one.
    INSERT INTO everturn.jumps (session, seq, after, prior, seal)
    SELECT no_, j.seq, j.after, j.prior, everturn.jump_seal_v1(no_, j.seq, j.after, j.prior)
      FROM (SELECT k.first AS seq, coalesce(lead(k.last) OVER way, 0) AS after,
                   CASE WHEN lead(k.first) OVER way > 1 THEN lead(k.first) OVER way ELSE 0 END AS prior
              FROM unnest(path.firsts, path.lasts) WITH ORDINALITY AS k (first, last, place)
            WINDOW way AS (ORDER BY k.place)) j
     WHERE j.seq > 1;
    INSERT INTO everturn.forks (no, source, next, rest) VALUES (no_, s.no, p.head, whole.size);
    PERFORM everturn.copy_entries_v1(s.no, no_, p.kept, p.kept, false),
            everturn.copy_entries_v1(s.no, no_, hidden.firsts, hidden.lasts, true);
    RETURN no_;
END
$$;

-- Everything stored of a session, and damaged effects and facts.
CREATE OR REPLACE FUNCTION everturn.verify_v3(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY SELECT * FROM everturn.verify_v1(p_namespace, p_session_id, p_now);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the effect %s is not as it was written', e.key), NULL::json
          FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'some of its effects are lost', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'the index of facts has not the facts of its row', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.facts IS DISTINCT FROM (
               SELECT jsonb_object_agg(f.name, f.value) FROM everturn.facts f
                WHERE f.session = n.no AND f.namespace = n.namespace AND f.session_id = n.session_id);
END
$$;

-- All of a session's present life but its log and its changes, with its effects and its facts.
CREATE OR REPLACE FUNCTION everturn.outline_v3(p_namespace text, p_session_id text, p_now double precision) RETURNS text
LANGUAGE plpgsql STABLE SET extra_float_digits = 1 AS $$
DECLARE
    outline json := everturn.outline_v1(p_namespace, p_session_id, p_now);
    no_     bigint;
    told    json;
    facts_  jsonb;
BEGIN
    IF outline IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT n.no, n.facts INTO no_, facts_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended;
    IF EXISTS (SELECT FROM everturn.effects e
                WHERE e.session = no_ AND e.seal IS DISTINCT FROM everturn.effect_seal_v3(e)) THEN
        PERFORM everturn.damaged_v1(no_, 'an effect is not as it was written');
    END IF;
    PERFORM everturn.check_effects_v4(no_);
    SELECT json_agg(json_build_object(
               'key', e.key, 'status', e.status, 'attempt', e.attempt, 'began', e.began, 'at', e.at, 'by', e.by,
               'ended', e.ended, 'ended_at', e.ended_at, 'token', e.token, 'request', e.request::json,
               'result', e.result::json, 'error', e.error::json, 'note', e.note) ORDER BY e.began, e.key)
      INTO told FROM everturn.effects e WHERE e.session = no_;
    -- As text: jsonb, which could be added to, refuses \u0000.
    RETURN left(outline::text, -1) || coalesce(', "effects": ' || told::text, '')
           || coalesce(', "facts": ' || facts_::text, '') || '}';
END
$$;

-- Make a session visible that arrives, with its effects, as effect_json_v3 has them, and its facts.
CREATE OR REPLACE FUNCTION everturn.restore_v3(
    p_namespace text, p_outline json, p_expires_in double precision, p_onto json, p_no bigint, p_seqs text, p_turns text,
    p_times text, p_checksums text, p_kinds text[], p_bodies text[], p_changes json, p_effects json, p_patience integer,
    p_issued double precision, p_not_after double precision, p_now double precision
) RETURNS everturn.outcome_v1 LANGUAGE plpgsql AS $$
DECLARE
    o everturn.outcome_v1 := everturn.restore_v1(
        p_namespace, p_outline, p_expires_in, p_onto, p_no, p_seqs, p_turns, p_times, p_checksums, p_kinds, p_bodies, p_changes,
        p_patience, p_issued, p_not_after, p_now);
    no_ bigint;
BEGIN
    IF o.status <> 'applied' THEN
        RETURN o;
    END IF;
    SELECT n.no INTO no_ FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_outline ->> 'session_id' AND NOT n.ended;
    DELETE FROM everturn.effects e WHERE e.session = no_;
    INSERT INTO everturn.effects (session, key, status, attempt, began, ended, token, by, at, ended_at, request, result, error, note)
    SELECT no_, e ->> 'key', e ->> 'status', (e ->> 'attempt')::bigint, (e ->> 'began')::bigint,
           (e ->> 'ended')::bigint, (e ->> 'token')::bigint, e ->> 'by', (e ->> 'at')::double precision,
           (e ->> 'ended_at')::double precision, e ->> 'request', e ->> 'result', e ->> 'error', e ->> 'note'
      FROM json_array_elements(p_effects) AS e;
    UPDATE everturn.effects e SET seal = everturn.effect_seal_v3(e) WHERE e.session = no_;
    UPDATE everturn.sessions n
       SET facts = nullif((p_outline ->> 'facts')::jsonb, '{}'), seal = NULL,
           effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = no_)
     WHERE n.no = no_;
    RETURN o;
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
