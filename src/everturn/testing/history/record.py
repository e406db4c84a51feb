"""Writes a history and reads it back: one line per event, one `os.write` per line. Judges nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from everturn.errors import (
    InvalidInput,
    KeyReused,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
)
from everturn.testing.results import Event, EventType, Function

# Errors of ours that mean "nothing was changed". Other libraries' errors count only if they have an `outcome`.
_CHANGED_NOTHING = (InvalidInput, KeyReused, SessionNotFound, SnapshotNotFound, Unsupported, VersionConflict)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


class Recorder:
    """Writes the calls of one worker to a file, each event with one `os.write` before and after the call.

    A written event is in the page cache, so kill -9 of the process does not lose it. Recorders of one process may share
    a file. Give each process its own file, because a torn line is only tolerated at the end of a file. Use one recorder
    per thread or task: its times always grow, so the order of its own calls is always known.
    """

    def __init__(
        self, path: str | os.PathLike[str], worker: str, *, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.worker = worker
        self._clock = clock
        self._last = -1
        self._op = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def call(
        self,
        f: Function,
        session: str,
        *,
        values: Iterable[str] | None = None,
        key: str | None = None,
        snapshot: str | None = None,
        limit: int | None = None,
    ) -> Recording:
        """Record one call of the store, blocking or awaited, as a context manager. Errors of the store pass through."""
        self._op += 1
        invoke = Event(
            "invoke",
            self.worker,
            self._op,
            0,
            session=session,
            f=f,
            values=None if values is None else tuple(values),
            key=key,
            snapshot=snapshot,
            limit=limit,
        )
        return Recording(self._write, invoke)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, event: Event) -> None:
        self._last = max(self._clock(), self._last + 1)
        line = _encode(msgspec.structs.replace(event, at=self._last)) + b"\n"
        while line:  # a full disk or a signal can cut a write short
            line = line[os.write(self._file, line) :]


class Recording:
    """One call being recorded: say inside the block what it `saw` (a read) or how it was `named` (a snapshot)."""

    def __init__(self, write: Callable[[Event], None], invoke: Event) -> None:
        self._write = write
        self._invoke = invoke
        self._values: tuple[str, ...] | None = None
        self._snapshot: str | None = None

    def saw(self, values: Iterable[str]) -> None:
        """Note the ids that a read returned, in order. Ids that nobody wrote belong here too: they are phantoms."""
        self._values = tuple(map(_printable, values))

    def named(self, snapshot: object) -> None:
        """Note the handle that the store gave to a snapshot; kept as text."""
        self._snapshot = _printable(str(snapshot))

    def __enter__(self) -> Self:
        self._write(self._invoke)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end("ok")
        else:
            self._end(
                "fail" if says_not_written(error) else "info",
                error=_printable(f"{type(error).__name__}: {error}"[:1000]),
            )

    def _end(self, how: EventType, *, error: str | None = None) -> None:
        began = self._invoke
        self._write(Event(how, began.worker, began.op, 0, values=self._values, snapshot=self._snapshot, error=error))


def _printable(text: str) -> str:
    # A store that gives back half a surrogate pair must not stop the recorder: JSON cannot carry one.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def says_not_written(error: BaseException) -> bool:
    """Whether an error itself says that nothing was changed. After any other error the call may have happened."""
    return getattr(error, "outcome", None) == "not_written" or isinstance(error, _CHANGED_NOTHING)


class BadHistory(ValueError):
    """A file is not a history: a line is not an event, a call ends without beginning, an id is written twice."""


def load(path: str | os.PathLike[str]) -> list[Event]:
    """Load the events of a file, or of every `*.jsonl` file in a folder, as written; files are in no order.

    A torn last line of a file is left out: its call had not begun, or its end is unknown. Raises BadHistory if another
    line is not an event, OSError if the file cannot be read.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise BadHistory(f"{path}: a folder without a *.jsonl file is no history")
    return [event for file in files for event in _load_file(file)]


def save(events: Sequence[Event], path: str | os.PathLike[str]) -> None:
    """Write events to one file, replacing it. `load` reads them back."""
    Path(path).write_bytes(b"".join(_encode(event) + b"\n" for event in events))


def _load_file(file: Path) -> list[Event]:
    lines = file.read_bytes().split(b"\n")
    torn = lines.pop()  # what follows the last line end: nothing, or a line that was cut off
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(_decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadHistory(
                f"{file}:{number}: no event ({error}); the format: everturn docs history-format"
            ) from error
    if torn:
        try:
            events.append(_decode(torn))  # complete, and only the line end is missing
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return events
