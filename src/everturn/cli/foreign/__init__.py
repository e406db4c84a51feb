"""SQLite files of other stores: `everturn import URL FILE --from openai-agents|langchain`.

__init__.py     appends the messages to a store
read_sqlite.py  the process that reads a file, and changes nothing in it
messages.py     messages of other stores as ours

The file is read in a process of its own: its owner may have it open here with another SQLite library, and two of them
in one process break each other's locks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import msgspec

from everturn.errors import InvalidInput, VersionConflict
from everturn.model import ChatMessage, CopyReport
from everturn.store.sync import MemoryStore

FORMATS = ("openai-agents", "langchain")
AT_ONCE = 500  # messages in a turn: the file does not say where a turn began


class ForeignMessage(msgspec.Struct, frozen=True):
    """One message of another store: its session, the number of its row, and the message as ours."""

    session_id: str
    row: int
    message: dict[str, object]


_decode = msgspec.json.Decoder(ForeignMessage).decode


def import_file(
    store: MemoryStore, form: str, file: Path, table: str | None, on_session: Callable[[str, int], None] | None = None
) -> CopyReport:
    """Append every session of the file to the store, once, however often it is run.

    A session that exists with other content is a conflict, and left as it is. Raises InvalidInput for a file that is
    not of this form.
    """
    imported = skipped = 0
    conflicts: list[tuple[str, str]] = []
    for session_id, rows in groupby(_rows(form, file, table), key=lambda row: row.session_id):
        try:
            fresh = _import_session(store, form, session_id, list(rows))
        except VersionConflict:
            conflicts.append((session_id, "another session has this id; erase it, or rename the one in the file"))
        else:
            imported, skipped = imported + fresh, skipped + (not fresh)
        if on_session is not None:
            on_session(session_id, imported + skipped + len(conflicts))
    return CopyReport(imported, 0, skipped, 0, 0, 0, tuple(conflicts))


def _import_session(store: MemoryStore, form: str, session_id: str, rows: list[ForeignMessage]) -> bool:
    """Append a session's messages, each portion under a key of its own. False if all of them were there."""
    fresh = False
    receipt = None
    for first in range(0, len(rows), AT_ONCE):
        portion = rows[first : first + AT_ONCE]
        turn = [ChatMessage.from_dict(row.message) for row in portion]
        key = f"import:{form}:{portion[0].row}-{portion[-1].row}"
        receipt = store.add_messages(session_id, turn, key=key, expected_version=receipt or 0)
        fresh = fresh or not receipt.replayed
    return fresh


def _rows(form: str, file: Path, table: str | None) -> Iterator[ForeignMessage]:
    command = [sys.executable, "-m", "everturn.cli.foreign.read_sqlite", form, str(file), *([table] if table else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:  # noqa: S603 - our own
        if reader.stdout is None or reader.stderr is None:  # pragma: no cover - they were asked for
            return
        yield from map(_decode, reader.stdout)
        said = reader.stderr.read().decode()
        if reader.wait() != 0:
            lines = said.strip().splitlines()
            raise InvalidInput(lines[-1] if lines else "could not be read", path=str(file))
