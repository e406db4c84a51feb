-- look: whether there is such a schema, and whether it is everturn's (by name: pg_tables would take four times as long)
SELECT pg_catalog.to_regnamespace(pg_catalog.quote_ident(%s)) IS NOT NULL,
       pg_catalog.to_regclass(pg_catalog.concat(pg_catalog.quote_ident(%s), '.schema_versions')) IS NOT NULL

-- any_table: whether a schema that is not everturn's has tables
SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname OPERATOR(pg_catalog.=) %s)

-- version: the version of the schema; NULL if none is recorded
SELECT pg_catalog.max(version) FROM everturn.schema_versions

-- is_known: whether a schema has the tables that its version has had since it was fixed
SELECT pg_catalog.to_regclass(pg_catalog.concat(pg_catalog.quote_ident(%s), '.tombstones')) IS NOT NULL

-- search_path: until the transaction ends, names that are not qualified are PostgreSQL's own
SET LOCAL search_path = pg_catalog, pg_temp

-- unchecked: bodies of functions are compiled by their first call, not when they are created, which takes twice as long
SET LOCAL check_function_bodies = off

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

-- insert_records: those that are made now
INSERT INTO everturn.schema_versions (everturn, version) SELECT %s, n FROM generate_series(%s::int4, %s::int4) AS n
