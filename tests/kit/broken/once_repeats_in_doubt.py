"""Looks whether there is a result, and does it if there is none: also where nobody knows whether it was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.kit.sound.resume import ResumingCore, made

CAUGHT_BY = ("effect-once",)


class Broken(ResumingCore):
    def once(self, session: str, key: str, do: Callable[[], Any]) -> Any:
        found = self.begin_effect(session, key)
        if found["status"] == "finished":
            return found["result"]
        result = do()
        self.finish_effect(session, key, result)
        return result


factory = made(Broken)
