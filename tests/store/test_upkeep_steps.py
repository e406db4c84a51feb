"""Upkeep of a SQLite file goes in short transactions: others write in between, and nothing is lost or left."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import MemoryStoreBackendError
from everturn.backends.sqlite import compaction, maintenance
from everturn.backends.sqlite.backend import SqliteBackend
from tests.store.places import Servers
from tests.store.places.sqlite import FileEditor
from tests.store.speech import say, say_each, user, words
from tests.store.test_compact import _act, _reachable
from tests.tiers import first

MARKER = "PLANTED"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def open_store(path: Path) -> Iterator[Callable[[], Any]]:
    opened: list[Any] = []

    def open_one() -> Any:
        opened.append(everturn.open(f"sqlite:///{path}", synchronous="OFF"))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def editor(path: Path, servers: Servers) -> FileEditor:
    return FileEditor(path, servers.beside_sqlite)


@pytest.fixture
def tiny_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One statement a transaction, of three rows."""
    monkeypatch.setattr(maintenance, "LONGEST", 0.0)
    monkeypatch.setattr(maintenance, "STEP", 3)
    monkeypatch.setattr(compaction, "CHUNK", 2)


@pytest.fixture
def in_between(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """Called behind every transaction of one store: what is put in here runs between two steps of its upkeep."""
    calls: list[Callable[[], Any]] = []
    write = SqliteBackend._write

    async def writing(backend: SqliteBackend, work: Any, deadline: float) -> Any:
        result = await write(backend, work, deadline)
        for call in calls:
            calls.remove(call)  # what it writes itself has nothing in between
            call()
            calls.append(call)
        return result

    monkeypatch.setattr(SqliteBackend, "_write", writing)
    return calls


@pytest.mark.usefixtures("tiny_steps")
@pytest.mark.parametrize("seed", first(2, range(6)))
def test_changes_between_the_steps_of_compact_find_all_that_they_could_reach(
    open_store: Callable[[], Any], in_between: list[Callable[[], Any]], seed: int
) -> None:
    compacted, other = open_store(), open_store()
    chances = random.Random(seed), random.Random(seed)
    acts = 0

    def act() -> None:
        nonlocal acts
        acts += 1
        _act(other, chances[0])

    say(other, "a", "start")
    for _ in range(150):
        act()
    before, reclaimed = acts, 0
    in_between.append(act)
    for _ in range(3):
        reclaimed += compacted.compact("a").entries
    in_between.clear()
    assert acts > before + 4  # it did go in steps
    assert reclaimed > 0
    assert compacted.verify().ok
    with everturn.open("sqlite://") as plain:
        say(plain, "a", "start")
        for _ in range(acts):
            _act(plain, chances[1])
        assert other.state("a") == plain.state("a")
        for found, expected in zip(_reachable(other), _reachable(plain), strict=True):
            assert found == expected or (isinstance(found, tuple) and found[1:] == (everturn.InvalidInput,))


@pytest.mark.usefixtures("tiny_steps")
def test_versions_are_marked_before_the_first_entry_goes(
    open_store: Callable[[], Any], in_between: list[Callable[[], Any]]
) -> None:
    store, other = open_store(), open_store()
    for number in range(30):
        store.replace("a", [user(str(number)), user("b")])
    expected = {version: [str(version - 1), "b"] for version in range(1, 31)}
    refused: set[int] = set()

    def read_all() -> None:
        for version, texts in expected.items():
            try:
                assert words(other, "a", at=version) == texts
            except everturn.InvalidInput:
                refused.add(version)
            else:
                assert version not in refused

    in_between.append(read_all)
    assert store.compact("a").entries == 2 * 19
    assert refused == set(range(1, 20))


@pytest.mark.usefixtures("tiny_steps")
def test_an_erased_session_is_gone_with_the_first_step_and_its_name_is_free(
    open_store: Callable[[], Any], in_between: list[Callable[[], Any]], editor: FileEditor
) -> None:
    store, other = open_store(), open_store()
    for _ in range(20):
        say(store, "a", MARKER, key=None)
        store.save_snapshot("a", MARKER)
        store.replace("a", [user(MARKER)])
    steps: list[list[Any]] = []

    def look() -> None:
        steps.append(words(other, "a"))
        other.compact()  # what others reap is in no receipt: so they leave it
        if len(steps) == 3:
            say(other, "a", "another life")

    in_between.append(look)
    receipt = store.erase("a")
    in_between.clear()
    assert receipt.complete
    assert (receipt.entries, receipt.snapshots) == (40, 20)
    assert steps[:3] == [[], [], []]
    assert len(steps) > 10
    assert words(store, "a") == ["another life"]
    assert editor.remnants(MARKER) == {}
    assert store.verify().ok


@pytest.mark.usefixtures("tiny_steps")
def test_an_erasure_that_cannot_finish_says_so_and_the_next_one_goes_on(
    open_store: Callable[[], Any], editor: FileEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    say_each(store, "a", *([MARKER] * 20))
    remove, calls = maintenance.remove, 0

    def removes_a_little(db: Any, lives: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise MemoryStoreBackendError("no more time", outcome="not_written")
        return remove(db, lives)

    with monkeypatch.context() as patch:
        patch.setattr(maintenance, "remove", removes_a_little)
        first = store.erase("a")
    assert not first.complete
    assert 0 < first.entries < 20
    assert words(store, "a") == []
    assert editor.entries() == 20 - first.entries
    second = store.erase("a")
    assert second.complete
    assert first.entries + second.entries == 20
    assert editor.remnants(MARKER) == {}


def test_rows_are_deleted_by_bytes_too(open_store: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred messages of a megabyte are not one step."""
    store = open_store()
    for _ in range(6):
        store.replace("a", [user("x" * 500_000)])
    sizes: list[int] = []
    delete_some = maintenance.delete_some

    def deletes(*args: Any, **options: Any) -> Any:
        gone, has_more = delete_some(*args, **options)
        sizes.append(sum(size for size, _ in gone))
        return gone, has_more

    monkeypatch.setattr(maintenance, "delete_some", deletes)
    assert store.erase("a").entries == 6
    assert max(sizes) < 2 * maintenance.BYTES
    assert len([size for size in sizes if size]) > 1
