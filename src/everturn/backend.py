"""Backends: the protocol that a backend implements, and everything that the author of one needs.

A backend stores, for each life of a session: a log of entries in `seq` order, the jumps in it (`path`), the current
`State`, snapshots and undo steps (copies of a State), and the latest changes. It gives out `seq` and `version`, checks
every condition of a request before its first write, and answers with a `Status`. Exceptions are for faults:
MemoryStoreBackendError, saying whether the request may have been applied.

The methods are coroutines. A blocking backend never suspends in them, and `drive` runs them without an event loop: so
MemoryStore and AsyncMemoryStore share one implementation.

    Backend         the protocol. Opener: the module or object that an entry point names
    ChangeRequest   a change, and its action; Query, ForkRequest: the other requests (core/requests.py)
    plan_change     the rules of every change, pure: plan it over a Reader, then write the Plan (core/plan_change.py)
    path, reach     which entries a state shows (core/paths.py)
    decode          entries from stored rows, with their checksums (core/codec.py)
    Portable        four more operations, if sessions are to be copied in and out (transfer/protocol.py)

`everturn docs write-a-backend` says where a whole backend to copy is.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from everturn.core.codec import Draft, EntryRow, MessageRow, checksum, decode
from everturn.core.effects import BeginEffect, EndEffect, StoredEffect, stamped
from everturn.core.facts import MOST_FACTS, SetFacts, Where, has_facts
from everturn.core.leases import (
    LONGEST_LEASE,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    LeaseRow,
    change_lease,
    is_fenced_off,
    is_held,
    reading_of,
)
from everturn.core.paths import Jump, Range, State, contains, path, reach
from everturn.core.plan_change import Plan, Reader, SessionFacts, UndoStep, plan_change
from everturn.core.requests import (
    FRONT_ENTRIES,
    FRONT_SUMMARIES,
    REMEMBERED,
    Action,
    Append,
    At,
    ChangeOutcome,
    ChangeRequest,
    Clear,
    DeleteSnapshot,
    EffectsReading,
    Erasure,
    Fold,
    Fork,
    ForkRequest,
    LeaseClaim,
    Order,
    Query,
    Reading,
    Rollback,
    SetTTL,
    Status,
    TakeSnapshot,
    Trim,
    Undo,
)
from everturn.model import Change, Compaction, Page, Problem
from everturn.transfer.protocol import STAGED_FOR, Arrival, Mark, Portable, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EffectPart, EntryPart, Outline, Portion, SnapshotPart, UndoPart

__all__ = [
    "FRONT_ENTRIES",
    "FRONT_SUMMARIES",
    "LONGEST_LEASE",
    "MOST_FACTS",
    "REMEMBERED",
    "STAGED_FOR",
    "Action",
    "Append",
    "Arrival",
    "At",
    "Backend",
    "BeginEffect",
    "ChangeOutcome",
    "ChangePart",
    "ChangeRequest",
    "Clear",
    "DeleteSnapshot",
    "Draft",
    "EffectPart",
    "EffectsReading",
    "EndEffect",
    "EntryPart",
    "EntryRow",
    "Erasure",
    "Fold",
    "Fork",
    "ForkRequest",
    "Jump",
    "LeaseClaim",
    "LeaseOutcome",
    "LeaseReading",
    "LeaseRequest",
    "LeaseRow",
    "Mark",
    "MessageRow",
    "Opener",
    "Order",
    "Outline",
    "Plan",
    "Portable",
    "Portion",
    "PortionRequest",
    "Query",
    "Range",
    "Reader",
    "Reading",
    "Rollback",
    "SessionFacts",
    "SetFacts",
    "SetTTL",
    "SnapshotPart",
    "Staging",
    "State",
    "Status",
    "StoredEffect",
    "Take",
    "TakeSnapshot",
    "Trim",
    "Undo",
    "UndoPart",
    "UndoStep",
    "Where",
    "change_lease",
    "checksum",
    "contains",
    "decode",
    "drive",
    "has_facts",
    "is_fenced_off",
    "is_held",
    "path",
    "plan_change",
    "reach",
    "reading_of",
    "stamped",
    "suspended",
]

T = TypeVar("T")

Take: TypeAlias = Callable[[Sequence[Any]], object]
"""Receives the rows in seq order, a batch at a time: MessageRow if the query names a kind, else EntryRow. Messages may
come in the shapes of core/message_batches.py. It may run in another thread, and runs again from the start if a read is
retried."""


class Backend(Protocol):
    """A backend. Every method ends by `deadline` (a moment of time.monotonic) and is one atomic request.

    `erase` and `compact` may take several: nobody can reach the rows that they remove. So may `fork`: nobody can reach
    the rows that it writes before the last request.
    """

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        """Apply all of the change or nothing, and record it.

        In this order, before the first write: a known `call` or `key` is REPLAYED with its first receipt (a key only
        while its turn is on the path; with other content it is KEY_REUSED, with that receipt); an unmet expectation is
        a CONFLICT; a lease that is named and not in force is LEASE_LOST (is_fenced_off); then the rules of the action
        (plan_change). An absent or expired session has version 0: Append, TakeSnapshot, BeginEffect, SetFacts begin a
        new life, Clear and Trim find nothing to do, Fold is MOVED, EndEffect is NO_EFFECT, the rest is NO_SESSION.
        Every APPLIED change adds one to the version, refreshes the TTL and is remembered for at least the next 1,024
        changes; if it has a key, for as long as the entries of its turn are stored.

        A request with `retry` may overtake the one that it repeats: a network may deliver late, and a server works on
        for a client that has gone. A backend where that can happen sends two moments with every request, on the
        server's own clock: a request that arrives after its caller's time, or was issued before the
        latest rollback, undo, replace, refused retry or erasure of the session, is not applied. That is a fault of
        outcome "not_written", which the store answers by sending again while there is time. There, an erasure keeps
        the receipts of the calls it takes away for as long as requests live, so that a retry is REPLAYED.
        """
        ...

    async def lease(self, request: LeaseRequest, deadline: float) -> LeaseOutcome:
        """Take, renew or release the lease of a session, by the rules of `change_lease`. It is no change: the version
        and the TTL stay. Time is the backend's own.

        An absent session can be leased, and stays absent; the life that begins next takes the lease over. The token
        grows within a life. A lease ends with the life it was taken in: nothing of it is left after an erasure."""
        ...

    async def held_lease(self, session_id: str, deadline: float) -> LeaseReading | None:
        """Return the lease of a session that is in force (`reading_of`); None if nobody holds one. Writes nothing."""
        ...

    async def effects(self, session_id: str, deadline: float) -> EffectsReading:
        """List the effects of the session's present life, in the order in which they were begun, all of one moment.

        Rows of effects are kept until the life ends. They come along in copies, and stay behind at a fork."""
        ...

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        """Hand over entries of one state, in seq order, all seen at one moment. NO_SESSION if there is none."""
        ...

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        """List the latest changes, newest first; none if the session is absent."""
        ...

    async def sessions(
        self, prefix: str, limit: int, page: str | None, order: Order, deadline: float, *, where: Where | None = None
    ) -> Page:
        """List sessions whose id begins with `prefix`, by id in byte order, or the latest changed first. A session that
        is present throughout is on at least one page. With `where` (never empty): only those with all these facts. A
        page may then have fewer sessions than `limit`, and a next page."""
        ...

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        """Hand visible entries whose body may contain `text` (in any case of ASCII letters) to `take`, with their
        session, newest first, until it returns False. `take` looks closer: an entry too many is no mistake."""
        ...

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        """Make the target visible in one step, at version 1. EXISTS if there is a session of that name.

        If the deadline is too near for a long session, a fault of outcome "not_written" says how much time it needs."""
        ...

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        """Physically remove every life of the session; but leave a living one alone that is not `life` (None: remove
        any). If there is nothing to remove, the receipt has zeros.

        When it returns, nobody can read them any more. A long session is removed in steps that keep nobody waiting;
        rows that are left at the deadline are told by `complete=False`, and removed by the next erasure."""
        ...

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        """Reclaim entries of the session that no head, snapshot or undo step can reach, and changes older than the
        latest 1,024, but for those with a key whose turn is stored. None: reclaim the rows of sessions that ended.

        A request does as much as keeps nobody waiting for more than some milliseconds, and uses a part of the time. It
        is sent again until it returns zeros: then there is nothing left to do.

        With `drop_undo`, first forget every undo step of the session, all in one atomic step: `undo` then has nothing
        to take back, and `undo_steps` is 0. The version stays. Only the first request of a call has it set, and a
        retry of that one. It always comes with a session_id; an absent session is left absent."""
        ...

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        """Count the stored entries of the session, and list its problems. None: look for rows of no session."""
        ...

    async def close(self) -> None:
        """Release the connections and files that this backend opened. Calls after it fail; a second close does
        nothing."""
        ...


class Opener(Protocol):
    """A module or an object that the entry point of a scheme (group `everturn.backends`) names.

    It may also have `load_driver()`, which imports modules that take long; it is called before a time-out begins.
    """

    OPTIONS: Mapping[str, Callable[[Any], Any]]  # the options it takes, each with the function that reads its value

    def open(self, url: str, options: Mapping[str, Any], deadline: float) -> Backend: ...

    async def open_async(self, url: str, options: Mapping[str, Any], deadline: float) -> Backend: ...


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a blocking backend, which never suspends, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise suspended(coroutine)


def suspended(coroutine: Coroutine[Any, Any, Any]) -> RuntimeError:
    """Close a coroutine that waits for an event loop where there is none. Returns the error to raise."""
    coroutine.close()
    return RuntimeError("a blocking backend suspended; use everturn.open_async for an asynchronous one")
