"""An id from a URL, cut to the width of the column: it is somebody else's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("strange-session-ids", "isolation-of-long-ids")


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        return super().append(session[:64], messages, **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(session[:64], limit)


factory = made(Broken)
