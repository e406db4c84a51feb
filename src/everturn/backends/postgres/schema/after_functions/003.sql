-- Effects and leases go with their session.

CREATE TRIGGER forget_effects AFTER DELETE ON everturn.sessions FOR EACH ROW EXECUTE FUNCTION everturn.forget_effects_v3();
