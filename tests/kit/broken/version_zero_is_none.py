"""`expected_version or None`: who expects an empty session, at version 0, is let into a full one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("version-exactly",)


class Broken(Core):
    def append(
        self, session: str, messages: Sequence[Any], *, key: str | None = None, expected_version: int | None = None
    ) -> Receipt:
        return super().append(session, messages, key=key, expected_version=expected_version or None)


factory = made(Broken)
