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
