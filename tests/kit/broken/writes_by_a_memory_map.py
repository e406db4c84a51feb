"""Turns are written into a memory map, and nothing ever syncs it."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kit.sound.files import sync_directory

CAUGHT_BY = ("append-synced", "power-loss-files")
SIZE = 1 << 24


class Broken:
    def __init__(self, where: Path) -> None:
        self.where, self.path = where, where / "log"
        with (where / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.path.exists():
                fresh = where / "new"
                with fresh.open("wb") as file:
                    file.truncate(SIZE)
                    os.fsync(file.fileno())
                fresh.rename(self.path)
                sync_directory(where)

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        turn = json.dumps([session_id, [dict(one) for one in messages]], allow_nan=False).encode() + b"\n"
        with (self.where / "lock").open("w") as lock, self.path.open("r+b") as file:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with mmap.mmap(file.fileno(), SIZE) as log:
                end = int.from_bytes(log[:8])
                log[end + 8 : end + 8 + len(turn)] = turn
                log[:8] = (end + len(turn)).to_bytes(8)

    def get_history(self, session_id: str) -> list[Any]:
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ) as log:
            lines = log[8 : 8 + int.from_bytes(log[:8])].splitlines()
        turns = [json.loads(line) for line in lines]
        return [message for session, turn in turns if session == session_id for message in turn]


def factory(where: Path) -> Broken:
    return Broken(where)
