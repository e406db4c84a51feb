"""Exports sessions as lines of JSON, and imports them. docs/storage.md describes the lines.

An import first fills a temporary SQLite store: damaged or missing lines are noticed before the target is touched. Then
it is a copy from that store, with the same rules.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec

from everturn import connect
from everturn.backend import Status, drive
from everturn.core.validation import MAX_NESTING
from everturn.errors import CorruptEntry, InvalidInput, MemoryStoreBackendError, SessionNotFound
from everturn.model import CopyProgress, CopyReport
from everturn.store.erase_many import with_sessions_beside
from everturn.store.maintenance import without_advice
from everturn.store.sync import MemoryStore, operations_of
from everturn.transfer import copy_stores, session_lines
from everturn.transfer.endpoint import Endpoint, rest_of
from everturn.transfer.import_checks import check_change, check_entry, check_outline
from everturn.transfer.lineage import Incomplete, PortionChecks
from everturn.transfer.protocol import Arrival, Staging
from everturn.transfer.session_lines import ChangePart, EntryPart, Outline, Portion

AT_ONCE = 1000  # rows brought at a time
BYTES_AT_ONCE = 2**20
IN_MEMORY = 4 * 2**20  # of a session on its way out; a longer one waits on disk
ATTEMPTS = 10  # at a session that changes while it is read
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')  # the strings of a line of JSON, and the brackets between them


# --- export ----------------------------------------------------------------------------------------------------------


def write_sessions(
    store: MemoryStore, sessions: Sequence[str] | None, write: Callable[[bytes], object], prefix: str = ""
) -> int:
    """Write sessions, all (that begin with `prefix`) or those named, each as it was at one moment.

    Returns how many. A session is written only when all of it has been read and found sound. Raises SessionNotFound for
    one that is named and not there, CorruptEntry.
    """
    end = Endpoint(operations_of(store), "source")
    written = 0
    for session_id in _every(store, prefix) if sessions is None else sessions:
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
            if not _read(end, session_id, spool):
                if sessions is not None:
                    raise SessionNotFound(f"there is no session {session_id!r}", session_id=session_id)
                continue
            spool.seek(0)
            while chunk := spool.read(2**16):
                write(chunk)
            written += 1
    return written


def _every(store: MemoryStore, prefix: str) -> Iterator[str]:
    for each in with_sessions_beside(prefix):
        page: str | None = None
        while True:
            found = store.sessions(each, limit=500, page=page)
            yield from (session.session_id for session in found.sessions)
            if (page := found.next) is None:
                break


def _read(end: Endpoint, session_id: str, spool: IO[bytes]) -> bool:
    """Write all lines of a session into the spool. False if there is no such session."""
    missing = ""
    for _ in range(ATTEMPTS):
        spool.seek(0)
        spool.truncate()
        outline = drive(end.outline(session_id))
        if outline is None:
            return False
        try:
            for part in _parts(end, outline):
                spool.write(session_lines.encode(part) + b"\n")
        except Incomplete as exc:
            if str(exc) == missing:  # twice: it was not reclaimed under our eyes, it is lost
                raise exc.error from None
            missing = str(exc)
        except _Over:
            pass
        else:
            return True
    text = f"session {session_id!r} changed again and again while it was read; export it when it is quiet"
    raise MemoryStoreBackendError(text, outcome="not_written")


class _Over(Exception):
    """The life that was being read has ended; another may have begun."""


def _parts(end: Endpoint, outline: Outline) -> Iterator[session_lines.Part]:
    yield outline
    checks = PortionChecks(outline)
    after_seq = after_version = 0
    while True:
        portion = drive(end.portion(rest_of(outline, after_seq, after_version)))
        if portion is None:
            raise _Over
        checks.check(portion)
        yield from portion.entries
        yield from portion.changes
        if portion.is_last:
            return
        after_seq = portion.entries[-1].seq if portion.entries else after_seq
        after_version = portion.changes[-1].version if portion.changes else after_version


# --- import ----------------------------------------------------------------------------------------------------------


def read_sessions(
    lines: Iterable[bytes], target: MemoryStore, progress: Callable[[CopyProgress], None] | None = None
) -> CopyReport:
    """Import the sessions of a file into a store, each in one step, by the rules of `everturn.copy`.

    Nothing is written before the whole file has been read and found sound. Raises InvalidInput, naming line and field,
    for a file that is no export, and for values that no change would have stored. Raises CorruptEntry for damage.
    """
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="everturn-import-"))
        # Durability is the target's business: this file is gone in a moment.
        waiting = connect.open(f"sqlite:///{Path(folder) / 'arriving.db'}", synchronous="OFF", timeout=60)
        opened.enter_context(waiting)
        _fill(Endpoint(operations_of(waiting), "file"), lines, operations_of(target).settings.max_message_bytes)
        return copy_stores.copy(waiting, target, progress=progress)


def _fill(end: Endpoint, lines: Iterable[bytes], limit: int) -> None:
    outline: Outline | None = None
    rows: list[EntryPart | ChangePart] = []
    checks: PortionChecks | None = None
    handle: str | None = None
    number = latest = 0

    def bring(*, last: bool) -> None:
        nonlocal handle
        if outline is None or checks is None:
            return
        portion = _portion(rows, last=last)
        rows.clear()
        try:
            checks.check(portion)
        except Incomplete as exc:
            raise exc.error from None
        if last:
            _restore(end, outline, portion, handle)
            handle = None
        else:
            handle = drive(end.stage(Staging(outline.session_id, outline.version, portion, handle, outline.life)))

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        part = _part(line, number)
        if isinstance(part, Outline):
            _check(part, part, limit, number)
            bring(last=True)
            outline, checks, latest = part, PortionChecks(part), 0
            continue
        if outline is None:
            raise InvalidInput("comes before the session it belongs to", path=f"line {number}")
        if isinstance(part, EntryPart) and rows and isinstance(rows[-1], ChangePart):
            raise InvalidInput("is an entry after the changes of its session", path=f"line {number}")
        _check(part, outline, limit, number)
        if isinstance(part, EntryPart):
            if part.seq <= latest:
                raise InvalidInput(f"must be above {latest}, that of the entry before", path=f"line {number}, seq")
            latest = part.seq
        # The changes of a session come in one portion: the last one shows whether all is there.
        if isinstance(part, EntryPart) and _is_full(rows):
            bring(last=False)
        rows.append(part)
    if number == 0:
        raise InvalidInput("is empty; everturn export writes such a file", path="line 1")
    bring(last=True)


def _part(line: bytes, number: int) -> session_lines.Part:
    try:
        part: session_lines.Part = session_lines.decode(line)
    except RecursionError:
        place = f"line {number}, byte {_first_too_deep(line) + 1}"
        raise InvalidInput(f"nested more than {MAX_NESTING} deep", path=place) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise InvalidInput(f"is not a line of an everturn export: {exc}", path=f"line {number}") from None
    return part


def _first_too_deep(line: bytes) -> int:
    """Find the index of the first bracket that is nested too deep for a field of a body."""
    depth = 0
    for found in _BRACKETS.finditer(line):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
        if depth > MAX_NESTING + 2:  # the line and the body are objects, too
            return found.start()
    return 0


def _check(part: session_lines.Part, outline: Outline, limit: int, number: int) -> None:
    """Raise InvalidInput, naming line and field, for a value that no change would have stored. CorruptEntry: damage."""
    try:
        if isinstance(part, Outline):
            check_outline(part, limit)
        elif isinstance(part, EntryPart):
            check_entry(part, outline, limit)
        else:
            check_change(part, outline)
    except InvalidInput as exc:
        raise InvalidInput(str(exc).removeprefix(f"{exc.path}: "), path=f"line {number}, {exc.path}") from None
    except CorruptEntry as exc:
        text = (
            f"line {number}: {without_advice(str(exc))}. Nothing was imported; was the file changed since its export?"
        )
        raise CorruptEntry(text, session_id=exc.session_id, seq=exc.seq) from exc


def _is_full(rows: Sequence[EntryPart | ChangePart]) -> bool:
    return len(rows) >= AT_ONCE or sum(row.size for row in rows if isinstance(row, EntryPart)) >= BYTES_AT_ONCE


def _portion(rows: Sequence[EntryPart | ChangePart], *, last: bool) -> Portion:
    return Portion(
        tuple(row for row in rows if isinstance(row, EntryPart)),
        tuple(row for row in rows if isinstance(row, ChangePart)),
        last,
    )


def _restore(end: Endpoint, outline: Outline, portion: Portion, handle: str | None) -> None:
    """Make the session visible in the store it waits in, unless its time has run out since it was written."""
    expires_in = None if outline.expires_at is None else outline.expires_at - time.time()
    if expires_in is not None and expires_in <= 0:
        return
    status = drive(end.restore(Arrival(outline, expires_in, portion, None, handle)))
    if status is Status.EXISTS:
        raise InvalidInput(f"session {outline.session_id!r} is there twice", path="file")
    if status is not Status.APPLIED:
        raise MemoryStoreBackendError(f"session {outline.session_id!r}: {status.value}", outcome="not_written")
