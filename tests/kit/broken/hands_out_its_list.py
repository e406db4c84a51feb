"""The list that is returned is the store's own: who shortens a prompt shortens the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.memory import LockedLists

CAUGHT_BY = ("returned-is-a-copy",)


class Broken(LockedLists):
    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.lock:
            self.sessions.setdefault(session_id, []).extend(messages)

    def get_history(self, session_id: str) -> list[Any]:
        return self.sessions.setdefault(session_id, [])


def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
