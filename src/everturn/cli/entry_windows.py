"""Entries of a state, a window of seqs at a time, so that a long session is printed while it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from everturn.backend import Query, Reading, drive
from everturn.model import Entry, Snapshot
from everturn.store.outcomes import no_session
from everturn.store.pages import refuse_absent_state
from everturn.store.sync import MemoryStore, operations_of

FIRST = 100  # seqs of the first window: about a screen
LARGEST = 5000  # of a dense window
SPARSE = 100_000  # of one where few seqs are shown
WINDOW_BYTES = 4 * 2**20  # about

Window = Callable[[int, int], Sequence[Entry]]  # reads the entries after a seq and before another


def look(store: MemoryStore, session_id: str, at: Snapshot | int | None) -> Reading:
    """Read where a session stood at a version or snapshot, without its entries. Raises SessionNotFound, InvalidInput.

    The present state is named by its version, so that all windows are of one moment.
    """
    operations = operations_of(store)
    query = Query(session_id, at=at.id if isinstance(at, Snapshot) else at, limit=0)
    reading = drive(operations.backend.read(query, lambda _: None, time.monotonic() + operations.settings.timeout))
    if reading.session is None:
        raise no_session(session_id)
    refuse_absent_state(query, reading)
    return reading


def forward(read: Window, reading: Reading, beyond: int = 0) -> Iterator[Sequence[Entry]]:
    """Yield windows from the first entry in view to the head (or `beyond`, if that is higher)."""
    low, last, most = reading.state.cleared, max(reading.state.head, beyond), _most(reading)
    step = min(FIRST, most)
    while low < last:
        found = read(low, low + step + 1)
        yield found
        low += step
        step = _next(step, len(found), most)


def latest(read: Window, reading: Reading, limit: int) -> list[Entry]:
    """Read the latest entries, from the head backwards."""
    high, most = reading.state.head, _most(reading)
    step = min(max(limit, FIRST), most)
    found: list[Entry] = []
    while high > reading.state.cleared and len(found) < limit:
        some = read(max(high - step, 0), high + 1)
        found = [*some, *found]
        high -= step
        step = _next(step, len(some), most)
    return found[-limit:]


def _most(reading: Reading) -> int:
    """Estimate the seqs of a window of some megabytes, from the length of an entry on average."""
    session = reading.session
    average = session.bytes / max(1, session.last_seq) if session else 0
    return max(1, min(LARGEST, int(WINDOW_BYTES / (average + 100))))


def _next(step: int, found: int, most: int) -> int:
    """Take a larger window next; much larger where few of the seqs were shown."""
    return min(4 * step, SPARSE) if found < step // 8 else min(4 * step, most)
