"""A file for each session, locked by lockf. A read closes its handle, and with it goes the lock of the process."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

CAUGHT_BY = ("reader-beside-append",)
WRITING = threading.Lock()  # POSIX locks do not keep threads of one process apart


class Broken:
    def __init__(self, where: Path) -> None:
        self.where = where

    def path(self, session_id: str) -> Path:
        return self.where / f"{sha256(session_id.encode()).hexdigest()}.json"

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with WRITING, self.path(session_id).open("a+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            file.seek(0)
            held = json.loads(file.read() or b"[]")
            body = json.dumps([*held, *map(dict, messages)]).encode()
            file.truncate(0)
            file.write(body)

    def get_history(self, session_id: str) -> list[Any]:
        if not self.path(session_id).exists():
            return []
        with self.path(session_id).open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            found: list[Any] = json.loads(file.read() or b"[]")
        return found


def factory(where: Path) -> Broken:
    return Broken(where)
