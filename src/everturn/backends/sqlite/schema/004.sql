-- Version 4: rows at both ends of the indexes of keys and of kinds. docs/storage.md explains it.

-- Where both ends of an index are found, everything between them can be. If the root page of an index lies in the place of
-- another of its pages, one end is out of reach (docs/decisions/030). No session has the number 0.
INSERT INTO changes (id, kind, call, key, first_seq, count, created_at, cleared, floor, messages, checksum)
SELECT id, 'end', x'', key, 0, 0, 0.0, 0, 0, 0, everturn_row(id, 'end', x'', key, NULL, 0, 0, NULL, NULL, 0.0, NULL, 0, 0, NULL, 0)
  FROM (SELECT 0 AS id, x'' AS key UNION ALL SELECT 1, x'ffffffffffffffffffffffffffffffffff');
INSERT INTO entries (id, turn, kind, created_at, checksum, body)
VALUES (0, 0, '', 0.0, 0, ''), (1, 0, char(1114111), 0.0, 0, '');
