"""A HistoryProvider that stores the messages of a turn one by one: turns of two workers interleave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import History, made

CAUGHT_BY = ("append-append",)


class Broken(History):
    async def save_messages(self, session_id: str, messages: Sequence[Any], *, state: Any = None) -> None:
        for message in messages:
            await super().save_messages(session_id, [message], state=state)


factory = made(Core, Broken)
