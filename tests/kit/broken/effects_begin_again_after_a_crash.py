"""Begins an effect again if the process that began it is dead, as if it had done nothing."""

from __future__ import annotations

import os
from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-in-doubt",)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Broken(ResumingCore):
    def begin_effect(self, session: str, key: str) -> dict[str, Any]:
        owner = self.path.parent / f"{session}.{key}.pid"
        told = super().begin_effect(session, key)
        if told["status"] == "started" and not alive(int(owner.read_text())):
            told = {"status": "new"}
        if told["status"] == "new":
            owner.write_text(str(os.getpid()))
        return told


factory = made(Broken)
