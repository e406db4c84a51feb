-- Everything stored of one session, for `verify` to look at, seen at one moment.

CREATE TYPE everturn.part_v1 AS (
    part       text,              -- session, entry, jump, root, remembered, version
    seq        bigint,            -- or version; of a session: its version
    after      bigint,            -- of a jump; of a session: its last seq
    checksum   bigint,
    created_at double precision,
    body       bytea,
    name       text,              -- kind of an entry, or what to call a state
    state      json
);

CREATE FUNCTION everturn.verify_v1(p_namespace text, p_session_id text, p_now double precision)
RETURNS SETOF everturn.part_v1 LANGUAGE plpgsql STABLE AS $$
DECLARE
    s everturn.sessions;
BEGIN
    SELECT * INTO s FROM everturn.sessions n
     WHERE n.namespace = p_namespace AND n.session_id = p_session_id AND NOT n.ended
       AND NOT everturn.is_over_v1(n.expires_at, everturn.now_v1(p_now));
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'session', s.version, s.last_seq, NULL::bigint, NULL::float8, NULL::bytea, NULL, NULL::json;
    RETURN QUERY
        SELECT 'entry', e.seq, NULL::bigint, e.checksum, e.created_at, convert_to(e.body, 'UTF8'), e.kind, NULL::json
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
          FROM everturn.changes g WHERE g.session = s.no ORDER BY g.version;
END
$$;

-- Numbers of sessions that have entries and do not exist.
CREATE FUNCTION everturn.orphans_v1() RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
    SELECT DISTINCT e.session FROM everturn.entries e
     WHERE NOT EXISTS (SELECT FROM everturn.sessions s WHERE s.no = e.session)
$$;

-- What a store would read, for people with a SQL prompt: SELECT * FROM everturn.history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW everturn.history AS
SELECT s.namespace, s.session_id, e.seq, e.turn, e.kind, to_timestamp(e.created_at) AS created_at, e.body
  FROM everturn.sessions s
 CROSS JOIN LATERAL everturn.path_v1(s.no, s.head) AS path
  JOIN everturn.entries e ON e.session = s.no AND path @> e.seq
 WHERE NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(NULL))
   AND (e.seq > s.floor OR e.seq = ANY (s.kept) OR (e.kind = 'summary' AND e.seq > s.cleared));
