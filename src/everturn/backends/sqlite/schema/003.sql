-- Version 3: the checksum of a row covers all of its columns, those that say whose row it is among them. docs/storage.md.
-- everturn_row and everturn_lines are row_checksums.of_row and schema.py's; no statement that reads a file needs them.

-- Adler-32 of the body, if the row is as it was written.
ALTER TABLE entries ADD COLUMN body_checksum INTEGER AS ((checksum + 2147483648 - (id + (id >> 32) * 1000003 + turn * 65599
    + count * 16777619 + CAST(created_at * 4194304.0 AS INTEGER) % 4294967291)) & 4294967295) VIRTUAL;

UPDATE entries
   SET checksums = everturn_lines(checksum, CAST(body AS BLOB), checksums, id & 4294967295, turn, count, created_at),
       checksum = ((checksum + id + (id >> 32) * 1000003 + turn * 65599 + count * 16777619
                    + CAST(created_at * 4194304.0 AS INTEGER) % 4294967291) & 4294967295) - 2147483648;

-- The index of names a second time, the other way round: a name that is missing in one is found in the other.
CREATE INDEX sessions_by_id ON sessions (session_id, namespace) WHERE ended = 0;

-- How many rows of other tables a session has, or which is the last, so that none is missed.
ALTER TABLE sessions ADD COLUMN snapshots INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN undo_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sessions ADD COLUMN last_jump INTEGER NOT NULL DEFAULT 0;  -- seq of the latest jump; 0 for none
ALTER TABLE sessions ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jumps ADD COLUMN prior INTEGER NOT NULL DEFAULT 0;         -- seq of the jump before it in the session; 0 for none
ALTER TABLE jumps ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE snapshots ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE undo_steps ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE changes ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

UPDATE sessions
   SET snapshots = (SELECT count(*) FROM snapshots WHERE session = no),
       undo_steps = (SELECT count(*) FROM undo_steps WHERE id BETWEEN no << 32 AND (no << 32) + 4294967295),
       last_jump = (SELECT ifnull(max(id), 0) & 4294967295 FROM jumps WHERE id BETWEEN no << 32 AND (no << 32) + 4294967295);
UPDATE sessions
   SET checksum = everturn_row(no, namespace, session_id, ended, life, version, last_seq, head, cleared, floor, kept,
                               messages, bytes, dimension, ttl, expires_at, created_at, changed_at, forked_from,
                               snapshots, undo_steps, last_jump);
UPDATE jumps
   SET prior = (SELECT ifnull(max(p.id), 0) & 4294967295 FROM jumps p
                 WHERE p.id < jumps.id AND p.id >= jumps.id & ~4294967295);
UPDATE jumps SET checksum = everturn_row(id, after, prior);
UPDATE snapshots
   SET checksum = everturn_row(snapshot_id, session, label, version, head, cleared, floor, kept, messages, created_at);
UPDATE undo_steps SET checksum = everturn_row(id, kind, moved_to, hidden, head, cleared, floor, kept, messages);
UPDATE changes
   SET checksum = everturn_row(id, kind, call, key, content, first_seq, count, snapshot_id, label, created_at,
                               head, cleared, floor, kept, messages);
