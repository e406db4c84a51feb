-- Version 2: messages of one turn may share a row, a line each. docs/storage.md explains it.

ALTER TABLE entries ADD COLUMN count INTEGER NOT NULL DEFAULT 1;  -- entries in the row: seq is that of the first
ALTER TABLE entries ADD COLUMN checksums BLOB;                    -- Adler-32 of each line but the last, 4 bytes each; NULL for one line

DROP VIEW history;

-- What a store would read, for people with a SQL prompt: SELECT * FROM history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW history AS
WITH RECURSIVE path (session, first, last, after) AS (
    SELECT s.no, ifnull(j.seq, 1), s.head, ifnull(j.after, 0)
      FROM sessions s
      LEFT JOIN jumps j
        ON j.id = (SELECT max(id) FROM jumps WHERE id BETWEEN s.no << 32 AND (s.no << 32) + s.head)
     WHERE s.ended = 0
    UNION ALL
    SELECT p.session, ifnull(j.seq, 1), p.after, ifnull(j.after, 0)
      FROM path p
      LEFT JOIN jumps j
        ON j.id = (SELECT max(id) FROM jumps WHERE id BETWEEN p.session << 32 AND (p.session << 32) + p.after)
     WHERE p.after > 0
)
SELECT s.namespace, s.session_id, e.seq + line.key AS seq, e.turn, e.kind, e.created_at,
       CASE e.count WHEN 1 THEN e.body ELSE line.value END AS body
  FROM sessions s
  JOIN path p ON p.session = s.no
  JOIN entries e ON e.id BETWEEN (s.no << 32) + max(p.first - 7, 1) AND (s.no << 32) + p.last
  JOIN json_each(CASE e.count WHEN 1 THEN '[0]' ELSE '[' || replace(e.body, char(10), ',') || ']' END) line
 WHERE e.seq + line.key BETWEEN p.first AND p.last
   AND e.seq + line.key > s.cleared
   AND (e.seq + line.key > s.floor OR e.kind = 'summary'
        OR e.seq + line.key IN (SELECT value FROM json_each(ifnull(s.kept, '[]'))))
   AND (s.expires_at IS NULL OR s.expires_at > (julianday('now') - 2440587.5) * 86400.0);
