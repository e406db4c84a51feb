-- Facts: names and texts that a session is found by. The rules are those of core/plan_change.py.

ALTER TABLE everturn.sessions ADD COLUMN facts jsonb;      -- they belong to the life; NULL for none
ALTER TYPE everturn.request_v1 ADD ATTRIBUTE facts jsonb;  -- to set; null removes one. NULL: the request is about no facts

-- The same facts once more, a row each, so that sessions are found by them: kept by the triggers below.
CREATE TABLE everturn.facts (
    session    bigint NOT NULL,
    namespace  text   COLLATE "C" NOT NULL,
    session_id text   COLLATE "C" NOT NULL,
    name       text   COLLATE "C" NOT NULL,
    value      text   COLLATE "C" NOT NULL,
    PRIMARY KEY (session, name)
);

CREATE INDEX facts_by_value ON everturn.facts (namespace, name, value, session_id);

CREATE FUNCTION everturn.index_facts_v4() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM everturn.facts f WHERE f.session = OLD.no;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO everturn.facts (session, namespace, session_id, name, value)
        SELECT NEW.no, NEW.namespace, NEW.session_id, f.key, f.value FROM jsonb_each_text(NEW.facts) AS f;
    END IF;
    RETURN NULL;
END
$$;

-- Three triggers, because each WHEN spares the sessions without facts, which nearly all changes are about.
CREATE TRIGGER index_facts AFTER UPDATE OF facts ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS DISTINCT FROM NEW.facts) EXECUTE FUNCTION everturn.index_facts_v4();
CREATE TRIGGER index_new_facts AFTER INSERT ON everturn.sessions FOR EACH ROW
WHEN (NEW.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();
CREATE TRIGGER forget_facts AFTER DELETE ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

-- The seal of a session, as before; and over its facts, if it has any.
CREATE OR REPLACE FUNCTION everturn.session_seal_v1(s everturn.sessions) RETURNS bytea LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(sha256(
    array_send(ARRAY[convert_to((s).namespace, 'UTF8'), convert_to((s).session_id, 'UTF8'), convert_to((s).life, 'UTF8'),
                     convert_to((s).forked_from, 'UTF8')])
    || array_send(ARRAY[(s).no, (s).ended::integer, (s).cleared, (s).floor, (s).dimension, (s).snapshots, (s).undo_steps,
                        (s).others, (s).forgotten, (s).last_jump])
    || array_send((s).kept) || array_send(ARRAY[(s).ttl, (s).created_at])
    || CASE WHEN (s).facts IS NULL THEN '' ELSE convert_to((s).facts::text, 'UTF8') END) FROM 1 FOR 8);

-- The facts that a session has after a request; NULL for none.
CREATE FUNCTION everturn.merged_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(jsonb_strip_nulls(coalesce((s).facts, '{}') || (r).facts), '{}');

-- The plan for a request that sets facts, or the reason of its refusal. The state stays.
CREATE FUNCTION everturn.plan_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p     everturn.plan_v1;
    facts jsonb := everturn.merged_facts_v4(s, r);
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF facts IS NOT DISTINCT FROM s.facts THEN
        p.refusal := 'unchanged';
    ELSIF (SELECT count(*) FROM jsonb_object_keys(facts)) > 16 THEN  -- MOST_FACTS in core/facts.py
        p.refusal := 'too_many_facts';
    END IF;
    RETURN p;
END
$$;
