-- Settings that every function runs under, whoever calls it. statements.py puts them into each CREATE FUNCTION, so that none is
-- forgotten. (Bodies after RETURN and BEGIN ATOMIC are parsed when they are created, under the search_path of the migration, and
-- inlined: they need none.)
--
-- search_path: names in a function are looked up in pg_catalog alone (ours are qualified). Else a role that may create in
-- `public` has its own functions and operators called, as us.
-- enable_*: each table is read by an index, whatever the planner takes it for: before the first ANALYZE it takes a table of
-- 300,000 rows for a small one, and reads and sorts it whole for the latest 20. jit: what costs much by such a guess.
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
