"""set_messages that writes one batch of a hundred: of a backup that is put back, the rest is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-replace",)


class Broken(Core):
    def replace(self, session: str, messages: Sequence[Any]) -> None:
        super().replace(session, messages[:100])


factory = made(Broken)
