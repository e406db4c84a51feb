"""The session's key has the worker's process id in it: a conversation begins anew at each worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("handover", "another-process")


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Any:
        return super().append(f"{os.getpid()} {session}", messages, **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return super().read(f"{os.getpid()} {session}", limit)


factory = made(Broken)
