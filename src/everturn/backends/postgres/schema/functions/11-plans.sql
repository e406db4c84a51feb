-- Plans: the rules that a change must pass, and the state it leads to. A plan reads and decides; 12-changes.sql writes.
-- This is core/plan_change.py in SQL, case by case: read it against that text, and change both together.

-- The plan for a request on a session (s.no IS NULL: there is none), or the reason of its refusal.
CREATE OR REPLACE FUNCTION everturn.plan_v1(s everturn.sessions, r everturn.request_v1) RETURNS everturn.plan_v1
LANGUAGE plpgsql AS $$
DECLARE
    p       everturn.plan_v1;
    step    everturn.undo_steps;
    written bigint := r.entries + greatest(r.carried, 0);  -- entries
BEGIN
    p.head := coalesce(s.head, 0);
    p.cleared := coalesce(s.cleared, 0);
    p.floor := coalesce(s.floor, 0);
    p.kept := coalesce(s.kept, '{}');
    p.messages := coalesce(s.messages, 0);
    p.undoable := false;
    IF s.no IS NULL AND r.kind IN ('delete_snapshot', 'rollback', 'undo', 'ttl') THEN
        p.refusal := 'no_session';
        RETURN p;
    END IF;
    CASE r.kind
    WHEN 'append', 'replace' THEN
        IF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSIF r.after <> p.head THEN
            IF s.no IS NULL OR (r.after <> 0 AND NOT everturn.on_path_v1(s, p.head, r.after)) THEN
                p.refusal := 'not_on_path';
                RETURN p;
            END IF;
            IF r.carried < 0 AND s.others > 0 AND s.cleared < least(r.after, s.floor)
               AND everturn.has_summary_after_v5(s, r.after) THEN
                p.refusal := 'summary_dropped';
                RETURN p;
            END IF;
            p.kept := ARRAY(SELECT seq FROM unnest(s.kept) AS seq WHERE seq <= r.after ORDER BY seq);
            p.messages := s.messages - cardinality(s.kept) + cardinality(p.kept) - everturn.messages_v1(
                s.no, everturn.ranges_v1(s, s.head, greatest(r.after, s.floor) + 1, s.head, NULL));
            p.head := r.after;
        ELSIF written = 0 THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := r.after IS NOT NULL;
        p.messages := p.messages + r.messages;
        IF written > 0 THEN
            IF p.head <> coalesce(s.last_seq, 0) THEN
                p.follows := p.head;
            END IF;
            p.head := coalesce(s.last_seq, 0) + written;
        END IF;
        -- The floor never lies past the head: else it would hide entries that are appended there in a fork.
        p.cleared := least(p.head, p.cleared);
        p.floor := least(p.head, p.floor);
    WHEN 'trim', 'fold' THEN
        IF r.kind = 'trim' AND (s.no IS NULL OR r.floor IS NULL) THEN
            p.refusal := 'unchanged';
        ELSIF s.no IS NULL
              OR (s.life, s.cleared, s.floor, s.kept)
                 IS DISTINCT FROM (r.seen_life, r.seen_cleared, r.seen_floor, r.seen_kept)
              OR (s.head <> r.seen_head AND NOT everturn.on_path_v1(s, s.head, r.seen_head)) THEN
            p.refusal := 'moved';
        ELSIF s.dimension <> r.dimension THEN
            p.refusal := 'dimension';
        ELSE
            p.floor := r.floor;
            p.kept := r.kept;
            p.messages := s.messages - r.hidden;
            p.undoable := true;
            IF r.kind = 'fold' THEN  -- the summary is appended
                IF s.head <> s.last_seq THEN
                    p.follows := s.head;
                END IF;
                p.head := s.last_seq + 1;
            END IF;
        END IF;
    WHEN 'clear' THEN
        IF s.no IS NULL
           OR NOT (s.floor < s.head OR cardinality(s.kept) > 0 OR everturn.has_hidden_summaries_v1(s)) THEN
            p.refusal := 'unchanged';
        ELSE
            p.cleared := s.head;
            p.floor := s.head;
            p.kept := '{}';
            p.messages := 0;
            p.undoable := true;
        END IF;
    WHEN 'snapshot', 'ttl' THEN
        NULL;  -- the state stays
    WHEN 'delete_snapshot' THEN
        IF NOT EXISTS (SELECT FROM everturn.snapshots n WHERE n.session = s.no AND n.snapshot_id = r.snapshot_id) THEN
            PERFORM everturn.snapshots_v1(s);  -- was there one?
            p.refusal := 'no_snapshot';
        END IF;
    WHEN 'rollback' THEN
        p := everturn.state_v1(s, r.snapshot_id, r.to_version);
        IF (p.head, p.cleared, p.floor, p.kept, p.messages) = (s.head, s.cleared, s.floor, s.kept, s.messages) THEN
            p.refusal := 'unchanged';
        END IF;
        p.undoable := true;
    WHEN 'undo' THEN
        SELECT * INTO step FROM everturn.undo_steps u WHERE u.session = s.no ORDER BY u.version DESC LIMIT 1;
        p.undone := step.version;
        IF (step.seal IS DISTINCT FROM everturn.undo_seal_v1(step) AND step.version IS NOT NULL)
           OR (SELECT count(*) FROM everturn.undo_steps u WHERE u.session = s.no) <> s.undo_steps THEN
            PERFORM everturn.damaged_v1(s.no, 'undo steps are lost or damaged');
        ELSIF step.version IS NULL THEN
            p.refusal := 'nothing_to_undo';
        ELSIF step.kind IN ('trim', 'clear') OR (step.kind = 'fold' AND s.head <> step.moved_to) THEN
            -- Entries that were hidden are shown again; later ones are not touched.
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := s.messages + step.hidden;
        ELSIF s.head <> step.moved_to AND r.drop_turns IS NOT TRUE THEN
            p.refusal := 'followed';
        ELSE
            p.head := step.head;
            p.cleared := step.cleared;
            p.floor := step.floor;
            p.kept := step.kept;
            p.messages := step.messages;
        END IF;
    END CASE;
    RETURN p;
END
$$;
