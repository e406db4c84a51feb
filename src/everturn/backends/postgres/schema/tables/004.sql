-- Version 4: facts, and a count of the effects of a session.

ALTER TABLE everturn.sessions ADD COLUMN facts jsonb;      -- they belong to the life; NULL for none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE facts jsonb;  -- to set; null removes one. NULL: the request is about no facts

-- The same facts once more, a row each, so that sessions are found by them: kept by triggers.
CREATE TABLE everturn.facts (
    session    bigint NOT NULL,
    namespace  text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE INDEX facts_by_value ON everturn.facts (namespace, name, value, session_id);

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

ALTER TABLE everturn.sessions ADD COLUMN effects bigint NOT NULL DEFAULT 0;
