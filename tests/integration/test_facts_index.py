"""The index of facts: how little of a file it reads, that triggers keep it, and that damage to it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import CorruptEntry
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.database import Database


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """A function that counts the steps of SQLite's machine during a call."""
    counted = [0]
    connect = Database._connect

    def connected(database: Database, deadline: float) -> Connection:
        db = connect(database, deadline)
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        return db

    def count(event: dict[str, Any]) -> None:
        counted[0] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    def during(call: Callable[[], Any]) -> int:
        before = counted[0]
        call()
        return counted[0] - before

    monkeypatch.setattr(Database, "_connect", connected)
    return during


def test_a_search_reads_the_sessions_with_the_rarest_fact_alone(tmp_path: Path, steps: Any) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/a.db", synchronous="OFF") as store:
        costs = []
        for number in range(400):
            user = "42" if number in (3, 7) else f"other {number}"
            store.set_facts(f"s{number:03}", {"plan": "free", "user": user})
            if number in (19, 399):
                costs.append(
                    [
                        steps(lambda: store.sessions(where={"user": "42"})),
                        steps(lambda: store.sessions(where={"user": "42"}, order="recent")),
                    ]
                )
                both = steps(lambda: store.sessions(where={"plan": "free", "user": "42"}))
        assert costs[0] == costs[1]
        assert both < 10 * costs[1][0]  # and what it takes to count how rare they are
        assert steps(lambda: store.sessions(order="recent")) > 10 * costs[1][1]


def test_an_append_writes_nothing_to_it(tmp_path: Path, steps: Any) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/a.db", synchronous="OFF") as store:
        costs = {}
        for name in ("without", "with"):
            store.add_messages(name, [{"role": "user", "content": "1"}])
        store.set_facts("with", {"user": "42", "title": "x"})
        for name in ("without", "with"):
            store.add_messages(name, [{"role": "user", "content": "2"}])
            costs[name] = steps(lambda name=name: store.add_messages(name, [{"role": "user", "content": "3"}]))
        assert costs["with"] == costs["without"]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE facts SET value = '43' WHERE session = 1",
        "UPDATE facts SET session = 2 WHERE session = 1",
        "UPDATE facts SET session_id = 'z' WHERE session = 1",
        "UPDATE facts SET session = 99 WHERE session = 1",
    ],
)
def test_an_index_that_leads_astray_is_told(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.db"
    with everturn.open(f"sqlite:///{path}") as store:
        store.set_facts("a", {"user": "42"})
        store.add_messages("b", [{"role": "user", "content": "1"}])
    db = apsw.Connection(str(path))
    db.execute(damage)
    db.close()
    with everturn.open(f"sqlite:///{path}") as store:
        assert not store.verify().ok
        with pytest.raises(CorruptEntry):
            store.sessions(where={"user": "43" if "43" in damage else "42"})


def test_a_row_that_the_index_lost_is_found_by_verify(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with everturn.open(f"sqlite:///{path}") as store:
        store.set_facts("a", {"user": "42"})
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM facts WHERE session = 1")
    db.close()
    with everturn.open(f"sqlite:///{path}") as store:
        assert "the index of facts" in "\n".join(p.what for p in store.verify().problems if p.session_id == "a")


def test_facts_that_were_changed_by_hand_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with everturn.open(f"sqlite:///{path}") as store:
        store.set_facts("a", {"user": "42"})
    db = apsw.Connection(str(path))
    db.execute("""UPDATE sessions SET facts = '{"user":"43"}'""")
    db.close()
    with everturn.open(f"sqlite:///{path}") as store, pytest.raises(CorruptEntry):
        store.info("a")


def test_an_erasure_leaves_nothing_of_them_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with everturn.open(f"sqlite:///{path}") as store:
        store.set_facts("a", {"user": "a very private name"})
        store.set_facts("a", {"user": "another very private name"})
        assert store.erase("a").complete
    assert b"very private" not in path.read_bytes()
