"""SQLite: a process whose clock was wrong for a moment ends no session's life."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStore
from everturn.backends._shared.steady_clock import Clock


class Wall:
    """A wall clock that steps, while no time passes."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def install(self, store: MemoryStore) -> MemoryStore:
        backend: Any = store._operations.backend
        backend._time = Clock(lambda: self.now, lambda: 0.0)
        return store


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def stepped(tmp_path: Path, wall: Wall) -> Any:
    """A store with a session that lives for a minute; its clock has been an hour ahead, and is right again."""
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}", ttl=60) as store:
        wall.install(store)
        store.add_messages("a", [ChatMessage("user", "1")])
        wall.now += 3600
        store.get_history("a")
        yield store


def test_a_step_forward_hides_no_session(stepped: MemoryStore, wall: Wall) -> None:
    assert [message.text for message in stepped.get_history("a")] == ["1"]
    wall.now -= 3600
    assert [message.text for message in stepped.get_history("a")] == ["1"]


def test_an_append_after_a_step_goes_on_with_the_life(stepped: MemoryStore, wall: Wall) -> None:
    life = stepped.info("a").life
    wall.now -= 3600
    assert stepped.add_messages("a", [ChatMessage("user", "2")]).life == life


def test_reaping_after_a_step_removes_nothing(stepped: MemoryStore) -> None:
    stepped.compact()
    assert [session.session_id for session in stepped.sessions().sessions] == ["a"]


def test_a_change_during_a_step_back_writes_no_shorter_life(stepped: MemoryStore, wall: Wall) -> None:
    wall.now -= 7200
    stepped.add_messages("a", [ChatMessage("user", "2")])
    assert stepped.info("a").expires_at == pytest.approx(1_000_000 + 60, abs=0.1)


def test_a_life_is_counted_from_the_wall_clock_if_that_is_ahead(
    stepped: MemoryStore, wall: Wall, tmp_path: Path
) -> None:
    stepped.add_messages("a", [ChatMessage("user", "2")])
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as other:  # it began later, when the clock was right
        wall.install(other)
        wall.now += 59
        assert len(other.get_history("a")) == 2


def test_a_process_that_starts_while_the_clock_is_behind_makes_no_life_shorter(tmp_path: Path) -> None:
    """Found by the simulator (seed 20303): another process, which knew better, ended the session too early."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url, ttl=60) as store:
        store.add_messages("a", [ChatMessage("user", "1")])
        ends = store.info("a").expires_at
        with everturn.open(url) as behind:
            backend = behind._operations.backend
            backend._time = Clock(lambda: time.time() - 3600)
            behind.add_messages("a", [ChatMessage("user", "2")])
        assert ends is not None
        assert (store.info("a").expires_at or 0) >= ends
