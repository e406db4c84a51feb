"""Snapshots are kept in the instance: the operator's process has none."""

from __future__ import annotations

import uuid

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshots-persist",)


class Broken(Core):
    def save_snapshot(self, session: str) -> str:
        self.taken = getattr(self, "taken", {})
        snapshot = uuid.uuid4().hex
        self.taken[session, snapshot] = self.read(session)
        return snapshot

    def rollback(self, session: str, snapshot: str) -> None:
        self.replace(session, getattr(self, "taken", {})[session, snapshot])


factory = made(Broken)
