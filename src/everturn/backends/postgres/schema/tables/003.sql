-- Version 3: leases and effects; and tombstones as version 1 has had them since they remember receipts. A schema that was made before
-- that has a version 1 without it, and is made like the others here; in a schema that was made since, this changes nothing.

-- A tombstone from before has no receipts: retries of changes that were erased until now are refused as late, as they were then.
ALTER TABLE everturn.tombstones ADD COLUMN IF NOT EXISTS calls jsonb NOT NULL DEFAULT '{}';
ALTER TABLE everturn.tombstones ALTER COLUMN calls DROP DEFAULT;

-- The part of a log that a read shows.
CREATE TYPE everturn.window_v3 AS (
    firsts       bigint[],  -- ranges that are visible whatever their kind, the newest first
    lasts        bigint[],
    size         bigint,    -- how many seqs they hold
    below_firsts bigint[],  -- ranges that a trim hid: there, summaries alone are visible
    below_lasts  bigint[],
    cut          boolean    -- whether the limit left out earlier messages
);

-- The latest lease of a session, by its name: there may be no session yet. Its token grows with every holder.
CREATE TABLE everturn.leases (
    namespace  text             COLLATE "C" NOT NULL,
    session_id text             COLLATE "C" NOT NULL,
    life       text             COLLATE "C" NOT NULL,  -- of the session when it was taken; '' if there was none
    token      bigint           NOT NULL,
    holder     text             COLLATE "C" NOT NULL,  -- random, made for each lease
    until      double precision NOT NULL,              -- 0 once it was released
    seal       bytea            NOT NULL,              -- lease_seal_v3
    PRIMARY KEY (namespace, session_id)
) WITH (fillfactor = 50);

CREATE INDEX leases_without_session ON everturn.leases (until) WHERE life = '';

-- A change: the lease that it names, and the effect that it begins or ends. (The effect's key is its label.)
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE lease_token bigint;     -- NULL: it names none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE lease_holder text;      -- NULL: whoever holds it
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_attempt bigint;  -- the attempt that may be repeated, or that ends; 0: none, or any
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_body text;       -- JSON: request, result or error
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_by text;
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE effect_note text;

CREATE TYPE everturn.lease_outcome_v3 AS (
    status text,
    token  bigint,
    until  double precision,
    left_  double precision,
    told   double precision
);

-- Effects of a session, by key. They belong to the life: no rollback, undo, trim, fold or clear touches them.
CREATE TABLE everturn.effects (
    session  bigint           NOT NULL,
    key      text             COLLATE "C" NOT NULL,
    status   text             COLLATE "C" NOT NULL,  -- started, finished, failed
    attempt  bigint           NOT NULL,
    began    bigint           NOT NULL,              -- version of the change that began it
    ended    bigint           NOT NULL,              -- version of the change that ended it; 0 while it is started
    token    bigint           NOT NULL,              -- of the lease it was begun under; 0 for none
    by       text             COLLATE "C" NOT NULL,
    at       double precision NOT NULL,
    ended_at double precision,
    request  text             COLLATE "C",           -- JSON, like the next two; text, as the bodies of entries
    result   text             COLLATE "C",
    error    text             COLLATE "C",
    note     text             COLLATE "C",           -- reason of a person who ended it
    seal     bytea,                                  -- effect_seal_v3
    PRIMARY KEY (session, key)
);
