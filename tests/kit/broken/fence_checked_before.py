"""Compares the token in one transaction, and writes in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Receipt
from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("lease-fence",)


class Broken(ResumingCore):
    def append_with_lease(self, session: str, messages: Sequence[Any], token: int) -> Receipt:
        with self.view() as db:
            self.fence(db, session, token)
        return self.append(session, messages)


factory = made(Broken)
