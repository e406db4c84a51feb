"""Reads of a damaged SQLite file that fail midway: they leave nothing behind that later calls would meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStore
from everturn.backends.sqlite import pages


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[MemoryStore]:
    with everturn.open(f"sqlite:///{path}", synchronous="OFF") as store:
        yield store


def say(store: MemoryStore, session_id: str, text: str) -> None:
    store.add_messages(session_id, [ChatMessage("user", text)])


def words(store: MemoryStore, session_id: str) -> list[str | None]:
    return [message.text for message in store.get_history(session_id)]


def test_a_read_that_fails_midway_leaves_no_reader_in_the_past(store: MemoryStore, path: Path) -> None:
    """Its error holds on to the frames that read, and these to a statement: so long, it was still that moment."""
    for number in range(200):
        say(store, "damaged", str(number))
    db = pages.connect(str(path))
    db.execute("UPDATE entries SET body = 'x' WHERE session = 1 AND seq = 5")
    db.close()
    say(store, "sound", "before")
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("damaged")
    say(store, "sound", "behind")
    assert words(store, "sound") == ["before", "behind"]
    assert caught.value.seq == 5  # and so it is still held on to
