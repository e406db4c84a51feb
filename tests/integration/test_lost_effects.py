"""SQLite: an effect that was lost, altered or swapped does not begin again, and a begin costs no more among many.

The table `effect_keys` shows of a new effect that it was never begun (docs/decisions/121).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import CorruptEntry, MemoryStore
from everturn.backends.sqlite import page_checksums
from everturn.backends.sqlite.connections import Connection
from everturn.backends.sqlite.database import Database

KEYS = ("b", "d", "f", "h")
BEGUN = {
    "no row": "DELETE FROM effects WHERE key = 'd'",
    "no first row": "DELETE FROM effects WHERE key = 'b'",
    "no last row": "DELETE FROM effects WHERE key = 'h'",
    "no rows": "DELETE FROM effects",
    "neither row nor link": "DELETE FROM effects WHERE key = 'd'; DELETE FROM effect_keys WHERE key = 'd'",
    "neither first row nor link": "DELETE FROM effects WHERE key = 'b'; DELETE FROM effect_keys WHERE key = 'b'",
    "neither last row nor link": "DELETE FROM effects WHERE key = 'h'; DELETE FROM effect_keys WHERE key = 'h'",
    "neither rows nor links": "DELETE FROM effects; DELETE FROM effect_keys",
    "another name": "UPDATE effects SET key = 'e' WHERE key = 'd'",
    "of another session": "UPDATE effects SET session = 2 WHERE session = 1 AND key = 'd'",
    "names changed": "UPDATE effects SET key = CASE key WHEN 'd' THEN 'x' ELSE 'd' END WHERE key IN ('d', 'f');"
    "UPDATE effects SET key = 'f' WHERE key = 'x'",
    "another status": "UPDATE effects SET status = 'failed'",
    "a link past it": "DELETE FROM effects WHERE key = 'd'; UPDATE effect_keys SET next_key = 'f' WHERE key = 'b'",
    "a link of another session": "DELETE FROM effects WHERE session = 1;"
    "DELETE FROM effect_keys WHERE session = 1; UPDATE effect_keys SET session = 1",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("effects") / "sound.db"
    with everturn.open(f"sqlite:///{path}", synchronous="OFF") as store:
        for key in ("f", "b", "h", "d"):
            store.begin_effect("a", key)
        store.begin_effect("other", "c")
    return path


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(sound, tmp_path / "copy.db"))


@pytest.fixture
def store(copy: Path) -> Iterator[MemoryStore]:
    with everturn.open(f"sqlite:///{copy}", synchronous="OFF") as store:
        yield store


def planted(path: Path, script: str) -> None:
    """Change what is stored behind the store's back."""
    db = page_checksums.connect(str(path))
    for statement in script.split(";"):
        db.execute(statement)
    db.close()


@pytest.mark.parametrize("damage", BEGUN)
def test_an_effect_that_cannot_be_read_any_more_does_not_begin_again(
    copy: Path, store: MemoryStore, damage: str
) -> None:
    planted(copy, BEGUN[damage])
    refused = 0
    for key in KEYS:
        try:
            assert store.begin_effect("a", key).status != "new", f"{key} begins again"
        except CorruptEntry:
            refused += 1
    assert refused
    assert {problem.session_id for problem in store.verify("a").problems} == {"a"}


def test_effects_begin_before_between_and_behind_those_that_are_there(store: MemoryStore) -> None:
    for key in ("\t", "a", "c", "e", "é", "i", "\U0010ffff"):
        assert store.begin_effect("a", key).status == "new"
        assert store.begin_effect("a", key).status == "started"
    assert len(store.get_effects("a")) == 11
    assert store.verify().ok


def test_links_go_with_their_session(copy: Path, store: MemoryStore) -> None:
    store.erase("a")
    store.compact()
    db = page_checksums.connect(str(copy))
    assert db.execute("SELECT key FROM effect_keys").fetchall() == [("c",)]
    db.close()


def test_links_come_with_a_copy(store: MemoryStore, tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'copy of copy.db'}", synchronous="OFF") as target:
        everturn.copy(store, target)
        assert target.begin_effect("a", "c").status == "new"
        everturn.copy(target, store)
        assert store.begin_effect("a", "e").status == "new"
        assert target.verify().ok
        assert store.verify().ok


def test_verify_names_a_link_that_is_lost_or_damaged(copy: Path, store: MemoryStore) -> None:
    for damage in ("UPDATE effect_keys SET checksum = 1 WHERE key = 'f'", "DELETE FROM effect_keys WHERE key = 'f'"):
        planted(copy, damage)
        assert any("link" in problem.what for problem in store.verify("a").problems)
    assert store.begin_effect("a", "f").status == "started"  # it has its row


@pytest.mark.parametrize(
    "damage", ["", "DELETE FROM effects WHERE key = 'd'", "UPDATE effects SET key = 'e' WHERE key = 'd'"]
)
def test_an_effect_that_was_lost_before_there_were_links_does_not_begin_after_the_migration(
    copy: Path, damage: str
) -> None:
    planted(copy, f"DROP TABLE effect_keys; DELETE FROM schema_versions WHERE version = 6; {damage}")
    with everturn.open(f"sqlite:///{copy}", synchronous="OFF") as store:
        assert store.begin_effect("other", "d").status == "new"
        if damage:
            for key in ("d", "new"):
                with pytest.raises(CorruptEntry):
                    store.begin_effect("a", key)
        else:
            assert store.begin_effect("a", "new").status == "new"
            assert store.verify().ok


def test_a_begin_reads_as_much_among_many_effects_as_among_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in steps of SQLite's machine, which do not depend on how busy ours is."""
    counted = [0]
    connect = Database._connect

    def connected(database: Database, deadline: float) -> Connection:
        db = connect(database, deadline)
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
        return db

    def count(event: dict[str, Any]) -> None:
        counted[0] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    monkeypatch.setattr(Database, "_connect", connected)
    costs = []
    with everturn.open(f"sqlite:///{tmp_path}/many.db", synchronous="OFF") as store:
        for number in range(600):
            before = counted[0]
            store.begin_effect("a", f"pay {number * 7919 % 100_000}")
            costs.append(counted[0] - before)
    assert max(costs[580:]) <= max(costs[5:25])
