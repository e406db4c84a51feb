-- Verification: everything stored of one session, seen at one moment. _shared/verification.py judges it.

CREATE OR REPLACE FUNCTION everturn.verify_v1(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions;
BEGIN
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
    IF NOT FOUND THEN
        PERFORM everturn.check_absent_v1(p_namespace, p_session_id);
        RETURN;
    END IF;
    RETURN QUERY SELECT 'session', s.version, s.last_seq, NULL::bigint, NULL::float8, NULL::bytea, NULL, NULL::json;
    RETURN QUERY
        SELECT 'entry', e.seq, NULL::bigint,
               everturn.checksum_v1(e.session, e.seq, e.turn, e.created_at, e.kind, e.checksum), e.created_at,
               convert_to(e.body, 'UTF8'), e.kind, NULL::json
          FROM everturn.entries e WHERE e.session = s.no ORDER BY e.seq;
    RETURN QUERY
        SELECT 'jump', j.seq, j.after, NULL::bigint, NULL::float8, NULL::bytea, NULL, NULL::json
          FROM everturn.jumps j WHERE j.session = s.no AND j.seq <= s.last_seq ORDER BY j.seq DESC;
    RETURN QUERY
        SELECT 'root', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, r.name,
               json_build_array(r.head, r.cleared, r.floor, r.kept, r.messages)
          FROM everturn.roots_v1(s.no) r;
    RETURN QUERY
        SELECT 'version', g.version, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, 'version ' || g.version,
               CASE WHEN g.head IS NOT NULL
                    THEN json_build_array(g.head, g.cleared, g.floor, g.kept, g.messages) END
          FROM everturn.changes g WHERE g.session = s.no AND g.version > s.forgotten ORDER BY g.version;
    RETURN QUERY
        SELECT 'wrong', w.seq, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea, w.what, NULL::json
          FROM everturn.wrong_v1(s) AS w;
END
$$;

-- Everything stored of a session, and damaged effects and facts, and its lease.
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
               'its lease is lost, or not as it was written', NULL::json
          FROM everturn.sessions n
          LEFT JOIN everturn.leases l ON l.namespace = n.namespace AND l.session_id = n.session_id
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND (n.lease IS NOT NULL AND l.token IS NULL OR NOT everturn.is_sealed_v5(l));
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               'some of its effects are lost', NULL::json
          FROM everturn.sessions n
         WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
           AND n.effects <> (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no);
    RETURN QUERY
        SELECT 'wrong', NULL::bigint, NULL::bigint, NULL::bigint, NULL::float8, NULL::bytea,
               format('the link of its effect %s is lost, or not as it was written', coalesce(l.key, k.key)), NULL::json
          FROM (SELECT n.no, e.key, coalesce(lead(e.key) OVER in_order, first_value(e.key) OVER in_order) AS next_key
                  FROM everturn.sessions n JOIN everturn.effects e ON e.session = n.no
                 WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
                WINDOW in_order AS (ORDER BY e.key)) l
          FULL JOIN (SELECT i.* FROM everturn.sessions n JOIN everturn.effect_keys i ON i.session = n.no
                      WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended) k
            ON k.session = l.no AND k.key = l.key
         WHERE k.next_key IS DISTINCT FROM l.next_key
            OR k.seal IS DISTINCT FROM everturn.effect_key_seal_v5(k.session, k.key, k.next_key);
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

-- Rows of a session that are lost, or not as they were written; and the seq, where one is known.
CREATE OR REPLACE FUNCTION everturn.wrong_v1(s everturn.sessions) RETURNS TABLE (seq bigint, what text)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF NOT everturn.is_whole_v1(s) THEN
        RETURN QUERY SELECT NULL::bigint, 'its row in the table sessions is not as it was written';
    END IF;
    IF NOT EXISTS (SELECT FROM everturn.names k
                    WHERE k.namespace = s.namespace AND k.session_id = s.session_id AND k.no = s.no) THEN
        RETURN QUERY SELECT NULL::bigint, 'its row in the table names is lost';
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, format('%s: %s are counted, and %s are there', f.what, f.counted, f.there)
          FROM (VALUES ('snapshots', s.snapshots, (SELECT count(*) FROM everturn.snapshots n WHERE n.session = s.no)),
                       ('undo steps', s.undo_steps, (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no)),
                       ('changes', s.version - s.forgotten,
                        (SELECT count(*) FROM everturn.changes g WHERE g.session = s.no AND g.version > s.forgotten)),
                       ('entries that are no messages', s.others,
                        (SELECT count(*) FROM everturn.entries e WHERE e.session = s.no AND e.kind <> 'message')),
                       ('bytes', s.bytes, (SELECT coalesce(sum(octet_length(e.body)), 0)::bigint FROM everturn.entries e
                                            WHERE e.session = s.no))) AS f (what, counted, there)
         WHERE f.counted <> f.there;
    RETURN QUERY
        SELECT NULL::bigint, format('snapshot %s is not as it was written', n.snapshot_id) FROM everturn.snapshots n
         WHERE n.session = s.no AND n.seal IS DISTINCT FROM everturn.snapshot_seal_v1(n);
    RETURN QUERY
        SELECT NULL::bigint, format('the undo step of version %s is not as it was written', u.version)
          FROM everturn.undo_steps u WHERE u.session = s.no AND u.seal IS DISTINCT FROM everturn.undo_seal_v1(u);
    RETURN QUERY
        SELECT NULL::bigint, format('the change that made version %s is not as it was written', g.version)
          FROM everturn.changes g
         WHERE g.session = s.no AND g.seal IS DISTINCT FROM everturn.change_seal_v1(
                   g.session, g.version, g.first_seq, g.count, g.head, g.cleared, g.floor, g.messages, g.created_at, g.kept,
                   g.kind, g.call, g.key, g.content, g.snapshot_id, g.label);
    RETURN QUERY
        SELECT j.seq, 'its jump is not as it was written' FROM everturn.jumps j
         WHERE j.session = s.no AND j.seal <> everturn.jump_seal_v1(j.session, j.seq, j.after, j.prior);
    RETURN QUERY
        SELECT j.next, format('the jump before seq %s is lost', j.next)
          FROM (SELECT coalesce(lead(k.seq) OVER way, s.last_seq + 1) AS next, k.seq,
                       coalesce(lead(k.prior) OVER way, s.last_jump) AS prior
                  FROM (SELECT 0 AS seq, 0 AS prior
                        UNION ALL SELECT i.seq, i.prior FROM everturn.jumps i WHERE i.session = s.no) k
                WINDOW way AS (ORDER BY k.seq)) j
         WHERE j.prior <> j.seq;
END
$$;

-- Numbers of sessions that do not exist, though there are rows of them; and damaged leases of names without a session. (Those that
-- still have a name are verified by it.)
CREATE OR REPLACE FUNCTION everturn.orphans_v1() RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    name  text;
    next  bigint;
    names text[]   := '{}';
    nos   bigint[] := '{}';
BEGIN
    FOREACH name IN ARRAY ARRAY['changes', 'entries', 'jumps', 'snapshots', 'undo_steps'] LOOP
        next := -9223372036854775808;
        LOOP  -- from number to number through the primary key: a DISTINCT would read every row
            EXECUTE format('SELECT t.session FROM everturn.%I t WHERE t.session > $1 ORDER BY t.session LIMIT 1', name)
               INTO next USING next;
            EXIT WHEN next IS NULL;
            IF NOT EXISTS (SELECT FROM everturn.sessions s WHERE s.no = next) THEN
                names := names || name;
                nos := nos || next;
            END IF;
        END LOOP;
    END LOOP;
    RETURN QUERY
        SELECT format('there are %s of session number %s, which does not exist', string_agg(o.name, ', '), o.no)
          FROM unnest(nos, names) AS o (no, name)
         WHERE NOT EXISTS (SELECT FROM everturn.names k WHERE k.no = o.no) GROUP BY o.no;
    RETURN QUERY
        SELECT format('the lease of %s, which does not exist, is not as it was written', quote_literal(l.session_id))
          FROM everturn.leases l
         WHERE NOT everturn.is_sealed_v5(l)
           AND NOT EXISTS (SELECT FROM everturn.sessions s
                            WHERE s.namespace = l.namespace AND s.session_id = l.session_id AND NOT s.ended);
END
$$;
