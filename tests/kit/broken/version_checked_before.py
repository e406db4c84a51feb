"""The version is compared before the write and not in it: both pass, and one is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("one-version-one-winner",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], *, expected_version: int | None = None, **_: Any) -> Any:
        if expected_version is not None:
            with self.view() as db:
                (version,) = db.execute("SELECT version FROM sessions WHERE session = ?", (session,)).fetchone()
            if version != expected_version:
                raise ValueError(f"at version {version}")
            time.sleep(0.001)  # the model's answer
        return super().append(session, messages)


factory = made(Broken)
