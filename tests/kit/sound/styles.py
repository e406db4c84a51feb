"""Sound stores of unusual style: picky ids, limits, compression, a file for each message. All in files."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import uuid
import zlib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.files import FileLists, sync_directory
from tests.kit.sound.shapes import made

LONGEST = 32_000  # characters of a content
MOST = 400  # messages of a session


class Picky(Core):
    """Takes ids of letters, digits, dashes and underscores, at most 64 of them, and refuses all others."""

    def begin(self, db: sqlite3.Connection, session: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", session):
            raise ValueError(f"session ids are 1 to 64 letters, digits, - and _, not {session!r:.80}")
        super().begin(db, session)


class Identifiers(Core):
    """Takes the letter s and a number as the id of a session, and nothing else."""

    def begin(self, db: sqlite3.Connection, session: str) -> None:
        if not re.fullmatch(r"s(moke|[1-9][0-9]{0,8})|everturn kit", session):
            raise ValueError(f"session ids are s and a number, not {session!r:.80}")
        super().begin(db, session)


class Limited(Core):
    """Refuses messages and sessions that are too large."""

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        if any(len(encoded(message)) > LONGEST for message in messages):
            raise ValueError(f"a message has at most {LONGEST} characters")
        (held,) = db.execute("SELECT count(*) FROM messages WHERE session = ?", (session,)).fetchone()
        if held + len(messages) > MOST:
            raise ValueError(f"a session has at most {MOST} messages: trim it first")
        super().put(db, session, messages)


class Compressed(Core):
    """Keeps each message compressed, in a BLOB."""

    def load(self, db: sqlite3.Connection, session: str) -> list[Any]:
        if self.expired(db, session):
            return []
        rows = db.execute("SELECT body FROM messages WHERE session = ? ORDER BY seq", (session,)).fetchall()
        return [json.loads(zlib.decompress(body)) for (body,) in rows]

    def put(self, db: sqlite3.Connection, session: str, messages: Sequence[Any]) -> None:
        (seq,) = db.execute("SELECT next_seq FROM sessions WHERE session = ?", (session,)).fetchone()
        for number, message in enumerate(messages):
            body = zlib.compress(encoded(message).encode())
            db.execute("INSERT INTO messages VALUES (?, ?, ?)", (session, seq + number, body))
        db.execute("UPDATE sessions SET next_seq = ? WHERE session = ?", (seq + len(messages), session))


class GzipFiles(FileLists):
    """A gzip file for each session, locked while it is changed, and replaced as a whole."""

    def load(self, path: Path) -> list[Any]:
        try:
            return json.loads(gzip.decompress(path.read_bytes()))  # type: ignore[no-any-return]
        except FileNotFoundError:
            return []

    def store(self, path: Path, messages: list[Any]) -> None:
        fresh = path.with_suffix(f".{os.getpid()}")
        with fresh.open("wb") as file:
            file.write(gzip.compress(encoded(messages).encode()))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_directory(path.parent)


class FilePerMessage:
    """A directory for each session, and a file for each message in it, named after its place.

    A file is written under another name, synced, and linked to the next free number: the link fails if there is one.
    """

    def __init__(self, where: Path) -> None:
        self.where = where

    def folder(self, session_id: str) -> Path:
        return self.where / sha256(session_id.encode()).hexdigest()

    def add_message(self, session_id: str, role: str, content: str) -> None:
        folder = self.folder(session_id)
        fresh = self.where / f"{uuid.uuid4().hex}.new"
        try:
            with fresh.open("w", encoding="utf-8", newline="") as file:
                file.write(encoded([role, content]))
                file.flush()
                os.fsync(file.fileno())
            while not self.linked(fresh, folder):
                pass
        finally:
            fresh.unlink(missing_ok=True)
        sync_directory(folder)
        sync_directory(self.where)

    def linked(self, fresh: Path, folder: Path) -> bool:
        folder.mkdir(exist_ok=True)
        try:
            (folder / f"{len(list(folder.iterdir())):09}").hardlink_to(fresh)
        except (FileExistsError, FileNotFoundError):  # another was quicker, or the session was cleared
            return False
        return True

    def get_conversation(self, session_id: str) -> list[Any]:
        folder = self.folder(session_id)
        while True:
            try:
                return [tuple(json.loads(path.read_text("utf-8"))) for path in sorted(folder.iterdir())]
            except FileNotFoundError:
                if not folder.exists():
                    return []

    def clear(self, session_id: str) -> None:
        folder = self.folder(session_id)
        if folder.exists():
            folder.rename(self.where / f"{uuid.uuid4().hex}.gone")
            sync_directory(self.where)


picky = made(Picky)
identifiers = made(Identifiers)
limited = made(Limited)
compressed = made(Compressed)


def gzip_files(where: Path) -> GzipFiles:
    return GzipFiles(where)


gzip_files.share_threads = True  # type: ignore[attr-defined]


def file_per_message(where: Path) -> FilePerMessage:
    return FilePerMessage(where)


file_per_message.share_threads = True  # type: ignore[attr-defined]
