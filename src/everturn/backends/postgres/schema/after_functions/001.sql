-- Triggers that seal rows, and the view.

-- OF seal: an append, which leaves it, is spared the look at WHEN, which costs as much as a checksum.
CREATE TRIGGER seal BEFORE INSERT OR UPDATE OF seal ON everturn.sessions FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_session_v1();

CREATE TRIGGER note_name AFTER INSERT ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.note_name_v1();

CREATE TRIGGER seal BEFORE INSERT ON everturn.snapshots FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_snapshot_v1();

CREATE TRIGGER seal BEFORE INSERT ON everturn.undo_steps FOR EACH ROW WHEN (NEW.seal IS NULL)
EXECUTE FUNCTION everturn.seal_undo_step_v1();

-- The history that a store would read, for people with a SQL prompt:
-- SELECT * FROM everturn.history WHERE session_id = 'a' ORDER BY seq;
CREATE VIEW everturn.history AS
SELECT s.namespace, s.session_id, e.seq, e.turn, e.kind, to_timestamp(e.created_at) AS created_at, e.body
  FROM everturn.sessions s
 CROSS JOIN LATERAL everturn.path_v1(s.no) AS path
  JOIN everturn.entries e ON e.session = s.no AND e.seq BETWEEN path.first AND path.last
 WHERE NOT s.ended AND NOT everturn.is_over_v1(s.expires_at, everturn.now_v1(NULL))
   AND (e.seq > s.floor OR e.seq = ANY (s.kept) OR (e.kind = 'summary' AND e.seq > s.cleared));
