-- Facts: names and texts that a session is found by. The rules are those of core/plan_change.py.

CREATE OR REPLACE FUNCTION everturn.index_facts_v4() RETURNS trigger LANGUAGE plpgsql AS $$
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

-- The facts that a session has after a request; NULL for none.
CREATE OR REPLACE FUNCTION everturn.merged_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(jsonb_strip_nulls(coalesce((s).facts, '{}') || (r).facts), '{}');

-- The plan for a request that sets facts, or the reason of its refusal. The state stays.
CREATE OR REPLACE FUNCTION everturn.plan_facts_v4(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
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
