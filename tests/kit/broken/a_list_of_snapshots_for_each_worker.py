"""Each worker remembers the list of snapshots: those of other workers are not in it."""

from __future__ import annotations

from pathlib import Path

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("snapshots-are-fresh",)


class Broken(Core):
    def __init__(self, where: Path, ttl: float | None = None, timeout: float | None = None) -> None:
        super().__init__(where, ttl, timeout)
        self.listed: dict[str, list[str]] = {}

    def list_snapshots(self, session: str) -> list[str]:
        if session not in self.listed:
            self.listed[session] = super().list_snapshots(session)
        return list(self.listed[session])

    def save_snapshot(self, session: str) -> str:
        snapshot = super().save_snapshot(session)
        self.listed.pop(session, None)
        return snapshot

    def delete_snapshot(self, session: str, snapshot: str) -> None:
        super().delete_snapshot(session, snapshot)
        self.listed.pop(session, None)


factory = made(Broken)
