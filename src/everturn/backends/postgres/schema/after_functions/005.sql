-- Links between the effects that were stored before there were any. A session that has lost an effect, or has a damaged one, gets none:
-- it begins nothing any more, and says why.
SELECT everturn.link_effects_v5(n.no) FROM everturn.sessions n
 WHERE n.effects > 0 AND NOT n.ended
   AND n.effects = (SELECT count(*) FROM everturn.effects e WHERE e.session = n.no AND e.seal = everturn.effect_seal_v3(e));

-- Functions that no everturn calls any more: those of versions 1 to 3 that later ones replaced.

DROP FUNCTION IF EXISTS
    everturn.effect_of_v3(bigint, text),
    everturn.effect_text_v3(text, everturn.sessions, text, double precision),
    everturn.plan_effect_v3(everturn.sessions, everturn.request_v1),
    everturn.write_effect_v3(everturn.sessions, everturn.request_v1, double precision),
    everturn.leave_tombstone_v1(text, text, double precision),
    everturn.append_v1(text, text[], bytea[], text, text, double precision, text[], text, integer, double precision, text,
                       double precision),
    everturn.change_v1(text, json, text[], integer, double precision),
    everturn.apply_v1(text, everturn.request_v1, text[], double precision),
    everturn.read_v1(text, text, text, text, bigint, bigint, bigint, bigint, boolean, double precision),
    everturn.read_v2(text, text, text, text, bigint, bigint, bigint, bigint, boolean, double precision),
    everturn.window_start_v1(everturn.sessions, everturn.plan_v1, bigint, bigint, bigint, bigint),
    everturn.changes_v1(text, text, bigint, double precision),
    everturn.sessions_by_name_v1(text, text, text, text, double precision, bigint, double precision),
    everturn.sessions_by_change_v1(text, text, text, text, double precision, bigint, double precision),
    everturn.first_entries_v3(bigint, bigint, bigint, bigint, bigint, bigint),
    everturn.summaries_v3(bigint, bigint, bigint, bigint, bigint);

DROP TYPE IF EXISTS everturn.facts_v1;
