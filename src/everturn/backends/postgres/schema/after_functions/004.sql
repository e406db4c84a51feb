-- The index of facts; and effects that were stored before they were counted.

-- Three triggers, because each WHEN spares the sessions without facts, which nearly all changes are about.
CREATE TRIGGER index_facts AFTER UPDATE OF facts ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS DISTINCT FROM NEW.facts) EXECUTE FUNCTION everturn.index_facts_v4();

CREATE TRIGGER index_new_facts AFTER INSERT ON everturn.sessions FOR EACH ROW
WHEN (NEW.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

CREATE TRIGGER forget_facts AFTER DELETE ON everturn.sessions FOR EACH ROW
WHEN (OLD.facts IS NOT NULL) EXECUTE FUNCTION everturn.index_facts_v4();

-- (A session that is damaged stays as it is: the trigger that seals would refuse it, and the migration with it.)
UPDATE everturn.sessions n
   SET effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no), seal = NULL
 WHERE EXISTS (SELECT FROM everturn.effects e WHERE e.session = n.no) AND everturn.is_whole_v1(n);
