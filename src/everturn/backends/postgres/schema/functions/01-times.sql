-- Times, and what follows from them.

-- Whether the session has expired by a time.
CREATE OR REPLACE FUNCTION everturn.is_over_v1(expires_at double precision, at_time double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN expires_at IS NOT NULL AND expires_at <= at_time;

-- A time in steps of five minutes, for the indexes of `sessions`: whatever writes a time there writes its step beside it.
CREATE OR REPLACE FUNCTION everturn.step_v1(at_time double precision) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN floor(at_time / 300)::bigint;

-- The server's clock, unless a time is given (tests bring their own).
CREATE OR REPLACE FUNCTION everturn.now_v1(given double precision) RETURNS double precision
LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN coalesce(given, date_part('epoch', clock_timestamp()));  -- extract makes a numeric of it, on the way

-- A life is named after the call that began it.
CREATE OR REPLACE FUNCTION everturn.life_v1(call bytea) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN encode(substring(call FROM 1 FOR 8), 'hex');
