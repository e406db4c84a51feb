"""The next numbers of 128 sessions are kept in memory: one that is used again later begins at 0, over what is there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAUGHT_BY = ("isolation-of-many",)


class Broken:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: dict[tuple[str, int], Any] = {}
        self.counters: OrderedDict[str, int] = OrderedDict()

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.lock:
            number = self.counters.pop(session_id, 0)
            for place, message in enumerate(messages):
                self.messages[session_id, number + place] = dict(message)
            self.counters[session_id] = number + len(messages)
            if len(self.counters) > 128:
                self.counters.popitem(last=False)

    def get_history(self, session_id: str) -> list[Any]:
        with self.lock:
            found = []
            while (message := self.messages.get((session_id, len(found)))) is not None:
                found.append(dict(message))
            return found


def factory(where: Path) -> Broken:
    return Broken()


factory.processes = False  # type: ignore[attr-defined]
factory.share_threads = True  # type: ignore[attr-defined]
