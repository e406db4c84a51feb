"""Erase, in the bytes of a SQLite file: pages that split leave copies behind, and none of those may stay."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import Record, Summary
from everturn.backends.sqlite import maintenance
from tests.store.places import Servers
from tests.store.places.sqlite import FileEditor
from tests.store.speech import say, user, words
from tests.tiers import first

MARKER = "PLANTED"


@pytest.fixture
def store(path: Path) -> Iterator[Any]:
    with everturn.open(f"sqlite:///{path}", synchronous="OFF") as store:
        yield store


@pytest.fixture
def editor(path: Path, servers: Servers) -> FileEditor:
    return FileEditor(path, servers.beside_sqlite)


def test_eight_messages_that_split_a_page_leave_nothing_behind(store: Any, editor: FileEditor) -> None:
    """The smallest case found: a page split copies rows to a sibling, and the old copies are never overwritten."""
    for name, size in (
        ("a", 200),
        ("a", 900),
        ("b", 1500),
        ("a", 900),
        ("a", 200),
        ("b", 1500),
        ("a", 200),
        ("b", 900),
    ):
        text = MARKER if name == "a" else "harmless"
        say(store, name, (text * size)[:size])
    assert store.erase("a").complete
    assert editor.remnants(MARKER) == {}


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_nothing_is_left_after_thousands_of_interleaved_entries(store: Any, editor: FileEditor, seed: int) -> None:
    chance = random.Random(seed)
    sessions = chance.choice([2, 5])
    sizes = [10, 50, 200, 900] + ([2000, 5000, 20000] if seed % 2 else [])
    for _ in range(2000):
        name = chance.randrange(sessions)
        text = MARKER if name == 0 else "harmless"
        size = chance.choice(sizes)
        say(store, f"session-{name}", (text * (size // 7 + 1))[:size])
        if chance.random() < 0.01:
            store.compact(f"session-{name}")
    others = {name: words(store, f"session-{name}") for name in range(1, sessions)}
    assert store.erase("session-0").complete
    assert editor.remnants(MARKER) == {}
    assert {name: words(store, f"session-{name}") for name in others} == others
    assert store.verify().ok


def test_nothing_is_left_of_a_session_that_was_trimmed_and_compacted(store: Any, editor: FileEditor) -> None:
    for number in range(600):
        say(store, "a", MARKER * (number % 300))
        say(store, "b", "harmless" * (number % 200))
    store.trim("a", max_messages=1)
    for _ in range(11):
        store.replace("a", [user("x")])
    store.compact()
    store.erase("a")
    assert editor.remnants(MARKER) == {}


def test_nothing_is_left_of_many_summaries_and_labels(store: Any, editor: FileEditor) -> None:
    for number in range(400):
        for name, text in (("a", MARKER), ("b", "harmless")):
            store.append(name, [Summary(text * (number % 40), [1.0] * 64, (0, 0)), Record(text[:60], text)])
            store.save_snapshot(name, text * 20)
    assert store.erase("a").complete
    assert editor.remnants(MARKER) == {}


def test_nothing_is_left_of_the_names_of_many_sessions(store: Any, editor: FileEditor) -> None:
    names = [f"{number:04}-{'harmless' if number % 2 else MARKER}{'-' * (number % 200)}" for number in range(400)]
    random.Random(1).shuffle(names)
    for name in names:
        say(store, name, "x")
    for name in names:
        if MARKER in name:
            store.erase(name)
    assert editor.remnants(MARKER) == {}


def test_what_a_reader_needs_stays_in_the_log_until_it_has_gone(store: Any, editor: FileEditor) -> None:
    say(store, "a", MARKER)
    with editor.reader():
        assert not store.erase("a").complete
    assert editor.remnants(MARKER) != {}
    assert store.erase("a").complete
    assert editor.remnants(MARKER) == {}


def test_a_file_that_cannot_be_written_anew_in_time_is_not_begun_with(
    store: Any, editor: FileEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vacuum that cannot end in time would keep every writer waiting for nothing."""
    say(store, "a", MARKER)
    say(store, "b", "harmless")
    with monkeypatch.context() as slow:
        slow.setattr(maintenance, "FASTEST_VACUUM", 1)
        assert not store.erase("a").complete
    assert words(store, "a") == []
    assert store.erase("a").complete
    assert editor.remnants(MARKER) == {}
