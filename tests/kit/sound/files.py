"""A sound store over plain files: one JSON file per session, locked while it is changed, and replaced as a whole."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class FileLists:
    def __init__(self, where: Path) -> None:
        self.where = where

    def path(self, session_id: str) -> Path:
        # A digest: no session id is a path, and no two share one.
        return self.where / f"{hashlib.sha256(session_id.encode()).hexdigest()}.json"

    @contextmanager
    def locked(self, session_id: str) -> Iterator[Path]:
        path = self.path(session_id)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield path

    def load(self, path: Path) -> list[Any]:
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return []
        return json.loads(text)  # type: ignore[no-any-return]

    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{os.getpid()}")
        with fresh.open("w", encoding="utf-8", newline="") as file:
            json.dump(messages, file, ensure_ascii=False, allow_nan=False)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(path.parent)

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        with self.locked(session_id) as path:
            self.store(path, self.load(path) + [dict(message) for message in messages])

    def get_history(self, session_id: str) -> list[Any]:
        return self.load(self.path(session_id))

    def trim(self, session_id: str, max_messages: int) -> None:
        with self.locked(session_id) as path:
            messages = self.load(path)
            self.store(path, messages[max(0, len(messages) - max_messages) :])

    def clear(self, session_id: str) -> None:
        with self.locked(session_id) as path:
            path.unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Save the names in a directory: without it, a power cut takes the rename back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def factory(where: Path) -> FileLists:
    return FileLists(where)


factory.share_threads = True  # type: ignore[attr-defined]
