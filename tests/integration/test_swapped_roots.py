"""SQLite: an index whose root page lies where another of its pages should hides what the rest of it has.

Every page is whole then, and has its right checksum; and the neighbours of what is not found are sound (decision 030).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStore, MemoryStoreBackendError, Summary, ToolCall

PAGE = 4096
NAMES = ("first", "second", "third")
LEAF = 10  # the type of an index page that has no children


def build(path: Path, *, page_checksums: bool) -> None:
    """Write enough keys and summaries that each of their indexes has a root and several leaves."""
    with everturn.open(f"sqlite:///{path}", synchronous="OFF", page_checksums=page_checksums) as store:
        for number in range(300):
            store.add_messages("keys", [ChatMessage("user", f"{number}")], key=f"key {number}")
        calls = [ToolCall("f", {}) for _ in range(3)]
        for name in NAMES:
            for number in range(100):
                summary = Summary(f"summary {number}", [1.0, 2.0], (1, 1))
                store.append(name, [*calls, summary, ChatMessage("user", "hidden")])
            store.trim(name, max_messages=1)


def pages_of(path: Path, index: str) -> list[int]:
    """Find the pages of an index of two levels: its root, and the leaves."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).get
    db.close()
    page = path.read_bytes()[(root - 1) * PAGE : root * PAGE]
    assert page[0] == 2, "the root has children"
    cells = [int.from_bytes(page[at : at + 2], "big") for at in range(12, 12 + 2 * int.from_bytes(page[3:5], "big"), 2)]
    children = [int.from_bytes(page[at : at + 4], "big") for at in (*cells, 8)]
    content = path.read_bytes()
    assert {content[(child - 1) * PAGE] for child in children} == {LEAF}
    return [root, *children]


def swap(path: Path, one: int, other: int) -> None:
    content = bytearray(path.read_bytes())
    first, second = slice((one - 1) * PAGE, one * PAGE), slice((other - 1) * PAGE, other * PAGE)
    content[first], content[second] = content[second], content[first]
    path.write_bytes(content)


@pytest.fixture(scope="module", params=[True, False], ids=["checked", "unchecked"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("roots") / "sound.db"
    build(path, page_checksums=request.param)
    return path


def test_a_key_that_cannot_be_found_any_more_does_not_write_again(sound: Path, tmp_path: Path) -> None:
    root, *leaves = pages_of(sound, "changes_by_key")
    assert len(leaves) > 2
    for leaf in leaves:
        damaged = tmp_path / f"{leaf}.db"
        damaged.write_bytes(sound.read_bytes())
        swap(damaged, root, leaf)
        refused = 0
        with everturn.open(f"sqlite:///{damaged}", synchronous="OFF") as store:
            for number in range(0, 300, 7):
                try:
                    receipt = store.add_messages("keys", [ChatMessage("user", f"{number}")], key=f"key {number}")
                except CorruptEntry:
                    refused += 1
                else:
                    assert receipt.replayed, f"key {number} wrote again"
        assert refused > 10


READS: dict[str, Callable[[MemoryStore, str], int]] = {
    "get_summaries": lambda store, name: len(store.get_summaries(name)),
    "search_summaries": lambda store, name: len(store.search_summaries(name, [1.0, 1.0], k=1000)),
    "state": lambda store, name: len(store.state(name).entries),
    "get_context": lambda store, name: len(store.get_context(name).summaries),
    "find": lambda store, name: len(store.find("summary", session_id=name)),
    "fork": lambda store, name: store.fork(name, f"fork of {name}") and len(store.get_summaries(f"fork of {name}")),
}


def counted(path: Path) -> dict[tuple[str, str], int | None]:
    """Count what each read shows of each session; None where it raises CorruptEntry."""
    found: dict[tuple[str, str], int | None] = {}
    with everturn.open(f"sqlite:///{path}", synchronous="OFF") as store:
        for read, count in READS.items():
            for name in NAMES:
                try:
                    found[read, name] = count(store, name)
                except CorruptEntry:
                    found[read, name] = None
    return found


def test_summaries_that_cannot_be_found_any_more_are_not_passed_over(sound: Path, tmp_path: Path) -> None:
    root, *leaves = pages_of(sound, "entries_not_messages")
    assert len(leaves) > 2
    copy = tmp_path / "sound.db"
    copy.write_bytes(sound.read_bytes())
    expected = counted(copy)
    assert expected["get_summaries", "first"] == 100
    for leaf in leaves:
        damaged = tmp_path / f"{leaf}.db"
        damaged.write_bytes(sound.read_bytes())
        swap(damaged, root, leaf)
        found = counted(damaged)
        assert {read: count for read, count in found.items() if count not in (None, expected[read])} == {}
        assert None in found.values()


def test_an_effect_that_cannot_be_found_any_more_does_not_begin_again(tmp_path: Path) -> None:
    """Any two pages of the effects and of their keys change places, also one of each: both searches go wrong then."""
    sound, damaged = tmp_path / "sound.db", tmp_path / "damaged.db"
    keys = [f"pay {number}" for number in range(500)]
    with everturn.open(f"sqlite:///{sound}", synchronous="OFF", page_checksums=False) as store:
        for key in keys:
            store.begin_effect("a", key)
    pages = [*pages_of(sound, "effects"), *pages_of(sound, "effect_keys")]
    assert len(pages) > 10
    refused = 0
    for one, other in itertools.combinations(pages, 2):
        damaged.write_bytes(sound.read_bytes())
        swap(damaged, one, other)
        with everturn.open(f"sqlite:///{damaged}", synchronous="OFF") as store:
            for key in keys[::13]:
                try:
                    assert store.begin_effect("a", key).status == "started", f"{key} begins again: {one} {other}"
                except (CorruptEntry, MemoryStoreBackendError):
                    refused += 1
    assert refused > 100
