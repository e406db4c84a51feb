-- look: whether there is such a schema, how many tables it has, and whether one of them is everturn's
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %s), count(*), coalesce(bool_or(tablename = 'schema_versions'), false)
  FROM pg_tables WHERE schemaname = %s

-- version: the version of the schema
SELECT coalesce(max(version), 0) FROM everturn.schema_versions

-- lock: until the transaction ends, nobody else migrates this schema
SELECT pg_advisory_xact_lock(%s, hashtext(%s))

-- create_schema: where everything lives
CREATE SCHEMA everturn

-- create_record: the migrations that were made
CREATE TABLE everturn.schema_versions (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now(),
    everturn   text        NOT NULL
)

-- insert_record: one of them
INSERT INTO everturn.schema_versions (version, everturn) VALUES (%s, %s)
