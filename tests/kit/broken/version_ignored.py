"""langgraph#8796: an expected version is taken and not compared: whoever writes last wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("expected-version",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], *, key: str | None = None, **_: Any) -> Any:
        return super().append(session, messages, key=key)


factory = made(Broken)
