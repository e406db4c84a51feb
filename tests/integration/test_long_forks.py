"""A fork of a long session in SQLite: copied in portions, so that memory does not grow with the session."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

import everturn
from everturn import ChatMessage, Summary
from everturn.backends.sqlite import fork_session

MIB = 2**20


def test_a_fork_holds_only_a_part_of_the_session_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_session, "PORTION", 256)
    with everturn.open(f"sqlite:///{tmp_path}/memory.db", synchronous="OFF") as store:
        for _ in range(16):
            store.add_messages("a", [ChatMessage("user", "x" * 1000)] * 500)
        store.info("a")
        apsw.memory_high_water(True)  # the peak begins anew
        before = apsw.memory_used()
        store.fork("a", "b")
        assert apsw.memory_high_water() - before < 4 * MIB  # the session has 8
        assert store.get_history("b") == store.get_history("a")


@pytest.mark.parametrize("portion", [1, 3, 7])
def test_a_fork_is_the_same_in_portions_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    monkeypatch.setattr(fork_session, "PORTION", portion)
    with everturn.open(f"sqlite:///{tmp_path}/memory.db", synchronous="OFF") as store:
        store.add_messages("a", [ChatMessage("system", "be brief")])
        for number in range(6):
            store.add_messages("a", [ChatMessage("user", f"{number}.{part}") for part in range(5)])
            store.add_summary("a", Summary(f"so far {number}", [1.0, 0.0], (1, number + 1)))
            store.replace("a", [ChatMessage("user", f"{number} again")], after=store.get_history("a")[-3].seq or 0)
        store.trim("a", max_messages=8)
        store.fork("a", "b")
        assert store.get_history("b") == store.get_history("a")
        assert store.get_summaries("b") == store.get_summaries("a")
        assert store.verify("b").problems == ()
