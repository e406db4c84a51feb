-- time: the server's clock
SELECT everturn.now_v1(NULL)

-- change: apply changes to sessions, each all or nothing
SELECT * FROM everturn.change_v5(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- lease: take, renew or release the lease of a session
SELECT * FROM everturn.lease_v3(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- held_lease: the lease of a session that is in force
SELECT l.token, l.holder, l.until, l.until OPERATOR(pg_catalog.-) n.at
  FROM (SELECT %s::pg_catalog.text, %s::pg_catalog.text, %s::pg_catalog.float8) AS asked (namespace, id, now),
       everturn.now_v1(asked.now) AS n (at), everturn.session_v1(asked.namespace, asked.id, asked.now) AS s,
       everturn.lease_of_v5(asked.namespace, asked.id, s.lease) AS l
 WHERE everturn.in_force_v3(l, coalesce(s.life, ''), n.at)

-- open_work: the holders of leases in force, and how many effects are in doubt; NULL where there are too many rows to look at
SELECT CASE WHEN n.leases OPERATOR(pg_catalog.<=) n.most THEN ARRAY(
           SELECT l.holder FROM everturn.leases l
             LEFT JOIN everturn.sessions s
                    ON s.namespace OPERATOR(pg_catalog.=) l.namespace AND s.session_id OPERATOR(pg_catalog.=) l.session_id
                   AND NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, n.at)
            WHERE l.namespace OPERATOR(pg_catalog.=) n.name AND l.until OPERATOR(pg_catalog.>) n.at
              AND everturn.in_force_v3(l, coalesce(s.life, ''), n.at)) END,
       CASE WHEN n.effects OPERATOR(pg_catalog.<=) n.most THEN (
        SELECT pg_catalog.count(*) FROM everturn.effects e
          JOIN everturn.sessions s ON s.no OPERATOR(pg_catalog.=) e.session
         WHERE e.status OPERATOR(pg_catalog.=) 'started' AND s.namespace OPERATOR(pg_catalog.=) n.name
           AND NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, n.at)
           AND NOT EXISTS (
               SELECT FROM everturn.leases l
                WHERE l.namespace OPERATOR(pg_catalog.=) s.namespace
                  AND l.session_id OPERATOR(pg_catalog.=) s.session_id AND l.token OPERATOR(pg_catalog.=) e.token
                  AND e.token OPERATOR(pg_catalog.>) 0 AND everturn.in_force_v3(l, s.life, n.at))) END
  FROM (SELECT everturn.now_v1(%s), %s::pg_catalog.text, %s::pg_catalog.float4,
               (SELECT c.reltuples FROM pg_catalog.pg_class c
                 WHERE c.oid OPERATOR(pg_catalog.=) 'everturn.leases'::pg_catalog.regclass),
               (SELECT c.reltuples FROM pg_catalog.pg_class c
                 WHERE c.oid OPERATOR(pg_catalog.=) 'everturn.effects'::pg_catalog.regclass)
       ) AS n (at, name, most, leases, effects)

-- effects: the effects of a session, in the order in which they were begun
SELECT everturn.effects_v3(%s, %s, %s)::pg_catalog.text

-- read: entries of one state, and then what session and state they are of
SELECT * FROM everturn.read_v3(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- read_one_kind: entries of one kind, without the columns that these need not have
SELECT seq, created_at, checksum, body FROM everturn.read_v3(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- front: the latest messages and what a prompt begins with, and then what session and state they are of
SELECT * FROM everturn.front_v3(%s, %s, %s, %s, %s, %s, %s, %s)

-- glance: the facts of a session, and the state it is in
SELECT everturn.glance_v1(%s, %s, %s)

-- changes: the latest, newest first
SELECT * FROM everturn.changes_v2(%s, %s, %s, %s)

-- sessions_by_name: a page
SELECT * FROM everturn.sessions_by_name_v4(%s, %s, %s, %s, %s, %s, %s)

-- sessions_by_change: a page
SELECT * FROM everturn.sessions_by_change_v4(%s, %s, %s, %s, %s, %s, %s)

-- sessions_by_fact: a page of those that have certain facts
SELECT * FROM everturn.sessions_by_fact_v4(%s, %s::pg_catalog.text::pg_catalog.jsonb, %s, %s, %s, %s, %s, %s, %s)

-- began: the time from which on to look for sessions that changed while one pages
SELECT everturn.began_v1(%s)

-- find: some of the entries like a pattern
SELECT * FROM everturn.find_v1(%s, %s, %s, %s, %s, %s, %s)

-- fork: one step of copying a state into a new session
SELECT * FROM everturn.fork_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- erase: remove every life of a session, but for a living one that is not the one named
SELECT entries, snapshots, bytes, xid::pg_catalog.text, spared, told, left_over
  FROM everturn.erase_v3(%s, %s, %s, %s, %s, %s, %s, %s)

-- erase_at_version: the same, if the life named is at this version; its row is locked before it is looked at
SELECT entries, snapshots, bytes, xid::pg_catalog.text, spared, told, left_over
  FROM everturn.erase_v3(%s, %s, coalesce((
           SELECT CASE WHEN n.version OPERATOR(pg_catalog.=) %s::pg_catalog.int8 THEN n.life ELSE '' END
             FROM everturn.sessions n
            WHERE n.namespace OPERATOR(pg_catalog.=) %s AND n.session_id OPERATOR(pg_catalog.=) %s
              AND n.life OPERATOR(pg_catalog.=) %s AND NOT n.ended FOR UPDATE), ''), %s, %s, %s, %s, %s)

-- erase_more: remove rows that it left
SELECT entries, snapshots, bytes, xid::pg_catalog.text, left_over FROM everturn.erase_more_v1(%s, %s, %s)

-- is_still_seen: whether a transaction that began before an erasure goes on
SELECT everturn.is_still_seen_v1(%s::pg_catalog.text::pg_catalog.xid)

-- drop_undo: forget the undo steps of a session, and say the time
SELECT everturn.drop_undo_v1(%s, %s, %s, %s, %s, %s)

-- survey: all that a plan for compacting needs
SELECT everturn.survey_v1(%s, %s, %s)

-- compact: one step of the plan
SELECT * FROM everturn.compact_v1(%s, %s, %s, %s, %s, %s, %s)

-- reap: one step
SELECT * FROM everturn.reap_v3(%s, %s)

-- verify: everything stored of a session
SELECT * FROM everturn.verify_v3(%s, %s, %s)

-- orphans: rows of no session
SELECT * FROM everturn.orphans_v1()

-- outline: all of a session but its log and its changes, as JSON
SELECT everturn.outline_v3(%s, %s, %s)::pg_catalog.text

-- portion: the next rows of its log, and of its changes
SELECT * FROM everturn.portion_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- stage: put rows where nobody sees them
SELECT everturn.stage_v1(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- restore: make a session visible that arrives
SELECT * FROM everturn.restore_v3(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
