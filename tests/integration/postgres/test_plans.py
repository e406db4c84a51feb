"""Plans that do not depend on statistics: right after a bulk load, before any ANALYZE, little is read for little."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage

MESSAGES = 30_000
SESSIONS = 3_000
ENOUGH = 250  # pages; one of these questions needs some tens, and a scan of either load some thousands

LATEST = "read_v3('', 'long', 'message', NULL, NULL, 0, NULL, 20, false, false, NULL)"
QUESTIONS = {
    "the latest 20": LATEST,
    "the latest 20 before a seq": "read_v3('', 'long', 'message', NULL, NULL, 0, 15000, 20, false, false, NULL)",
    "a short session": "read_v3('', 's17', 'message', NULL, NULL, 0, NULL, NULL, false, false, NULL)",
    "the latest 20 of all kinds": "read_v3('', 'long', NULL, NULL, NULL, 0, NULL, 20, false, false, NULL)",
    "the latest 20 with a front": "front_v3('', 'long', NULL, NULL, 20, 4, 2, NULL)",
    "facts": "glance_v1('', 's17', NULL)",
    "the latest changes": "changes_v2('', 'edited', 20, NULL)",
    "a page of sessions": "sessions_by_name_v4('', '', NULL, '', 0, 20, NULL)",
    "a page from the middle": "sessions_by_name_v4('', 's2', 's3', 's21', 0, 20, NULL)",
    "a text in one session": "find_v1('', 's17', '%hello%', 4611686018427387904, 4611686018427387904, 1, NULL)",
    "everything of a short session": "verify_v1('', 's17', NULL)",
    "a plan for compacting a short session": "survey_v1('', 's17', NULL)",
    "the outline of a short session": "outline_v1('', 's17', NULL)",
}


@pytest.fixture(scope="module")
def loaded(server: Any) -> Any:
    """A connection to a database that was just filled, and that nobody has analyzed."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        with everturn.open(server.url, timeout=60) as store:
            for table in ("sessions", "names", "entries", "jumps", "snapshots", "undo_steps", "changes"):
                connection.execute(f"ALTER TABLE everturn.{table} SET (autovacuum_enabled = off)")
            for first in range(0, MESSAGES, 10_000):
                store.add_messages("long", [ChatMessage("user", str(n)) for n in range(first, first + 10_000)])
            store.add_messages("s17", [ChatMessage("user", "hello")])
            store.fork("s17", "edited")
            for number in range(100):
                store.add_messages("edited", [ChatMessage("user", str(number))])
            connection.execute(
                f"DO $$ BEGIN FOR n IN 100000..{100_000 + SESSIONS} LOOP"
                " PERFORM everturn.change_v5('', ARRAY['s' || n], ARRAY[sha256(n::text::bytea)], NULL, '{1}', '{33}',"
                ' ARRAY[\'{"role":"user","content":"hello"}\'], \'{1}\', NULL, NULL, NULL, NULL, NULL, 1000,'
                " extract(epoch FROM clock_timestamp()), '{1e12}', NULL); END LOOP; END $$"
            )
        yield connection


@pytest.mark.parametrize("question", list(QUESTIONS))
def test_little_is_read_for_little_before_the_first_analyze(loaded: Any, question: str) -> None:
    explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM everturn.{QUESTIONS[question]}"
    assert loaded.execute(
        "SELECT count(*) FROM pg_statistic WHERE starelid = 'everturn.entries'::regclass"
    ).fetchone() == (0,)
    ((plans,),) = loaded.execute(explain).fetchall()  # the first time it also reads the catalogue
    for _ in range(7):  # from the sixth on a plan may be made for any values
        ((plans,),) = loaded.execute(explain).fetchall()
    plan = plans[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < ENOUGH


def test_a_path_of_many_ranges_is_walked_no_further_than_asked(loaded: Any, server: Any) -> None:
    with everturn.open(server.url, timeout=60) as store:
        after = store.add_messages("ranges", [ChatMessage("user", "x")]).seqs[0]
        pages = {}
        for edits in (20, 400):
            for _ in range(edits):
                after = store.replace("ranges", [ChatMessage("user", "x")] * 2, after=after).seqs[0]
            for limit in (1, 20):
                explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM everturn.{LATEST}"
                explain = explain.replace("'long'", "'ranges'").replace("20,", f"{limit},")
                for _ in range(2):
                    ((plans,),) = loaded.execute(explain).fetchall()
                pages[edits, limit] = plans[0]["Plan"]["Shared Hit Blocks"]
        assert pages[400, 1] <= pages[20, 1] + 20
        assert pages[400, 20] <= pages[20, 20] * 2 + 40
        assert len(store.get_history("ranges")) == 422


def test_what_was_taken_back_is_not_searched(loaded: Any, server: Any) -> None:
    with everturn.open(server.url, timeout=60) as store:
        store.add_messages("undone", [ChatMessage("user", "y" * 200) for _ in range(20_000)])
        store.replace("undone", [ChatMessage("user", "x"), ChatMessage("user", "x")], after=1)
        question = "find_v1('', 'undone', '%nowhere%', 4611686018427387904, 4611686018427387904, 1, NULL)"
        for _ in range(2):
            ((plans,),) = loaded.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM everturn.{question}"
            ).fetchall()
        assert plans[0]["Plan"]["Shared Hit Blocks"] + plans[0]["Plan"]["Shared Read Blocks"] < ENOUGH
        assert [match.entry.seq for match in store.find("x", session_id="undone")] == [20_002, 20_001]
