-- look: whether there is such a schema, and whether it is everturn's (by name: pg_tables would take four times as long)
SELECT to_regnamespace(quote_ident(%s)) IS NOT NULL, to_regclass(quote_ident(%s) || '.schema_versions') IS NOT NULL

-- any_table: whether a schema that is not everturn's has tables
SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = %s)

-- version: the version of the schema
SELECT max(version) FROM everturn.schema_versions

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
