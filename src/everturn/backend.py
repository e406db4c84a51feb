"""What a backend must do for everturn: the operations, each of them one atomic request.

It has the requests and outcomes that a backend and the operations above it exchange, and `drive` for blocking ones.

A backend stores, for each life of a session: a log of entries in `seq` order, the jumps in it (rules.path), the
current `State`, snapshots and undo steps (copies of a State), and the latest changes. It gives out `seq` and
`version`, checks every condition of a request before its first write, and reports what it found as a `Status`.
Exceptions are for faults: MemoryStoreBackendError, saying whether the request may have been applied.

The methods are coroutines. A blocking backend never suspends in them; that is how both stores share one implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from everturn.core.codec import Draft, EntryRow, checksum, decode
from everturn.core.paths import Jump, Range, State, contains, path, reach
from everturn.model import Change, Compaction, ErasureReceipt, Page, Problem, SessionInfo, Snapshot

__all__ = [
    "REMEMBERED",
    "Append",
    "At",
    "Backend",
    "ChangeOutcome",
    "ChangeRequest",
    "Clear",
    "DeleteSnapshot",
    "Draft",
    "Effect",
    "EntryRow",
    "Erasure",
    "Fork",
    "ForkRequest",
    "Jump",
    "Opener",
    "Order",
    "Query",
    "Range",
    "Reading",
    "Rollback",
    "SetFloor",
    "SetTTL",
    "State",
    "Status",
    "Take",
    "TakeSnapshot",
    "Undo",
    "checksum",
    "contains",
    "decode",
    "drive",
    "path",
    "reach",
    "suspended",
]

T = TypeVar("T")
REMEMBERED = 1024  # changes whose call id, key and state are known, at the least

# --- changes ---------------------------------------------------------------------------------------------------------


class Append(msgspec.Struct, frozen=True, gc=False):
    """Write these entries as one turn. With `after`, first move the head back to that seq (undoable)."""

    drafts: tuple[Draft, ...]
    messages: int  # how many of them are messages
    dimension: int | None = None  # of the summaries among them
    after: int | None = None

    @property
    def kind(self) -> str:
        return "append" if self.after is None else "replace"


class SetFloor(msgspec.Struct, frozen=True, gc=False):
    """Hide everything up to `floor` but summaries and `kept` (undoable): a trim, planned on `seen`.

    Applies if it is the same life, `seen.head` is still on the path, and cleared, floor and kept are as seen; else
    MOVED. With `floor` None there is nothing to hide; the request is sent for its key and expected version.
    """

    kind: ClassVar[str] = "trim"

    life: str
    seen: State
    floor: int | None
    kept: tuple[int, ...] = ()
    hidden: int = 0  # messages that become invisible


class Clear(msgspec.Struct, frozen=True, gc=False):
    """Hide every entry (undoable)."""

    kind: ClassVar[str] = "clear"


class TakeSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Give the current state an id and a label."""

    kind: ClassVar[str] = "snapshot"

    snapshot_id: str
    label: str | None


class DeleteSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Forget a snapshot."""

    kind: ClassVar[str] = "delete_snapshot"
    snapshot_id: str


class Rollback(msgspec.Struct, frozen=True, gc=False):
    """Make the snapshot's state the current one (undoable)."""

    kind: ClassVar[str] = "rollback"

    snapshot_id: str


class Undo(msgspec.Struct, frozen=True, gc=False):
    """Take back the latest undo step. After a trim or clear: show again what it hid, keep what came later. After a
    rollback or replace: return to the state before it; FOLLOWED if turns were appended since, unless they may be
    dropped."""

    kind: ClassVar[str] = "undo"

    drop_turns: bool = False


class SetTTL(msgspec.Struct, frozen=True, gc=False):
    """Let the session expire this long after its latest change; None: never."""

    kind: ClassVar[str] = "ttl"
    seconds: float | None


class Fork(msgspec.Struct, frozen=True, gc=False):
    """Begin as a copy of another session's state. Backend.fork records it; `change` is never asked for it."""

    kind: ClassVar[str] = "fork"


Effect: TypeAlias = Append | SetFloor | Clear | TakeSnapshot | DeleteSnapshot | Rollback | Undo | SetTTL | Fork


class ChangeRequest(msgspec.Struct, frozen=True, gc=False):
    """One change to one session, with everything needed to apply it once.

    `call` is made once per call and repeated by retries; `retry` says that an earlier attempt may have landed, so
    that a backend without blind retries of its own need not look for `call` the first time. `key` and `content`
    are digests of the caller's idempotency key and of what it was used with. `life` and `ttl` are for a session
    that this change begins.
    """

    session_id: str
    effect: Effect
    call: bytes
    ttl: float | None
    key: bytes | None = None
    content: bytes | None = None
    expected_version: int | None = None
    expected_life: str | None = None
    retry: bool = False

    @property
    def life(self) -> str:
        """A life is named after the call that began it."""
        return self.call[:8].hex()


class Status(Enum):
    """What became of a request. Only APPLIED wrote anything."""

    FOUND = "found"  # of a read
    APPLIED = "applied"
    REPLAYED = "replayed"  # an earlier attempt, or an earlier use of the key, had written it
    UNCHANGED = "unchanged"  # there was nothing to do; no version was used
    CONFLICT = "conflict"  # not at the expected version, or not that life
    KEY_REUSED = "key_reused"  # the key was used with other content
    NO_SESSION = "no_session"
    NO_SNAPSHOT = "no_snapshot"
    NO_VERSION = "no_version"  # never reached, or reclaimed
    NOTHING_TO_UNDO = "nothing_to_undo"
    FOLLOWED = "followed"  # turns follow what an undo would take back
    MOVED = "moved"  # a trim was planned on a state that is no more
    NOT_ON_PATH = "not_on_path"  # `after` is not in the history
    DIMENSION = "dimension"  # the session's embeddings have another length
    EXISTS = "exists"  # the session to fork into, or to restore, is there already
    SNAPSHOT_TAKEN = "snapshot_taken"  # a snapshot to restore belongs to another session here


class ChangeOutcome(msgspec.Struct, frozen=True, gc=False):
    """`version` and `life` are those of the receipt; on a refusal, the session's own (0 and "" if absent)."""

    status: Status
    life: str = ""
    version: int = 0
    first_seq: int = 0
    count: int = 0
    snapshot: Snapshot | None = None
    detail: int = 0  # DIMENSION: the session's


# --- reads -----------------------------------------------------------------------------------------------------------

At: TypeAlias = str | int | None  # a snapshot's id, a version, or now


class Query(msgspec.Struct, frozen=True, gc=False):
    """Which visible entries to read: of one kind or all, after and before a seq, at most the `limit` latest (none at
    0). `snapshots`: list the session's snapshots too, as of the same moment."""

    session_id: str
    kind: str | None = None
    at: At = None
    after: int = 0
    before: int | None = None
    limit: int | None = None
    snapshots: bool = False
    skip: bool = False  # the caller would rather have what is left than an error

    @property
    def is_glance(self) -> bool:
        """Whether nothing is asked for but the session's facts and its present state: what is seen most often."""
        return self.limit == 0 and self.at is None and not self.snapshots


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What a read found beside the rows it handed over. `first_missing` is the first seq that should be there and
    is not (0: all there). `cut` says that `limit` left out earlier entries. How many snapshots the session has need not
    be counted where neither they nor its facts alone (`limit=0`) are asked for; then it says 0."""

    status: Status  # FOUND, NO_SESSION, NO_SNAPSHOT or NO_VERSION
    session: SessionInfo | None = None
    state: State = State()
    snapshots: tuple[Snapshot, ...] = ()  # in the order they were taken
    first_missing: int = 0
    cut: bool = False


Take: TypeAlias = Callable[[Sequence[Any]], None]
"""Receives the rows in seq order, a batch at a time: MessageRow if the query names a kind, else EntryRow. Messages may
come as in core/message_batches.py. It may run in another thread, and runs again from the start if a read is retried."""


class ForkRequest(msgspec.Struct, frozen=True, gc=False):
    """Copy what is visible at `at` into `target`, which must not exist, under the same seqs."""

    source: str
    target: str
    at: At
    call: bytes
    ttl: float | None
    key: bytes | None = None
    content: bytes | None = None
    expected_version: int | None = None  # of the source
    expected_life: str | None = None
    retry: bool = False


class Erasure(msgspec.Struct, frozen=True, gc=False):
    """What was removed, and whether another life than the one that was named lives there, and was left alone."""

    receipt: ErasureReceipt
    spared: bool = False


Order: TypeAlias = Literal["recent"] | None


class Backend(Protocol):
    """A backend. Every method ends by `deadline` (on the face's clock, monotonic), and is one atomic request.

    (`erase` and `compact` may be many of them: what they remove was out of everybody's reach before. So may `fork`:
    what it makes is out of everybody's reach until the last.)
    """

    async def change(self, request: ChangeRequest, deadline: float) -> ChangeOutcome:
        """Apply all of the change or nothing, and record it.

        In this order, before the first write: a known `call` or `key` is REPLAYED with its first receipt (a key only
        while its turn is on the path; with other content it is KEY_REUSED); an unmet expectation is a CONFLICT; then
        whatever the effect needs. An absent or expired session has version 0; Append and TakeSnapshot begin a new
        life, Clear and SetFloor find nothing to do, the rest is NO_SESSION. Every APPLIED change adds one to the
        version, refreshes the TTL and is remembered for at least the next 1,024 changes; if it has a key, for as long
        as the entries of its turn are stored.

        A request with `retry` may overtake the one that it repeats: a network keeps what was sent, and a server works
        on for a client that has gone. A backend where that can be carries two moments with every request, on the
        server's own clock (server_clock.py): a request that arrives after its caller's time, or was issued before the
        latest rollback, undo, replace, refused retry or erasure of the session, is not applied. That is a fault of
        outcome "not_written", which the store answers by sending again while there is time.
        """
        ...

    async def read(self, query: Query, take: Take, deadline: float) -> Reading:
        """Hand over entries of one state, in seq order, all seen at one moment. NO_SESSION if there is none."""
        ...

    async def changes(self, session_id: str, limit: int, deadline: float) -> list[Change]:
        """The latest changes, newest first; none if the session is absent."""
        ...

    async def sessions(self, prefix: str, limit: int, page: str | None, order: Order, deadline: float) -> Page:
        """Sessions whose id begins with `prefix`, by id in byte order, or the latest changed first. A session that is
        present throughout is on at least one page."""
        ...

    async def find(
        self, text: str, session_id: str | None, take: Callable[[str, EntryRow], bool], deadline: float
    ) -> None:
        """Hand visible entries whose body may contain `text` (rules.fold applied) to `take`, with their session, newest
        first, until it says False. It looks closer."""
        ...

    async def fork(self, request: ForkRequest, deadline: float) -> ChangeOutcome:
        """Make the target visible in one step, at version 1. EXISTS if there is a session of that name.

        Where the time will not do for a long session, a fault of outcome "not_written" says how much would."""
        ...

    async def erase(self, session_id: str, life: str | None, deadline: float) -> Erasure:
        """Physically remove every life of the session, but for a living one that is another than `life` (None: that
        one too). Where there is nothing to remove, a receipt of zeros.

        When it returns, nobody can read them any more. Much of it goes in steps that keep nobody waiting; what could
        not be removed by the deadline is told by `complete=False`, and removed by the next erasure."""
        ...

    async def compact(self, session_id: str | None, deadline: float, *, drop_undo: bool = False) -> Compaction:
        """Reclaim, in steps that keep nobody waiting for more than some milliseconds and for a part of the time there
        is: entries of the session that no head, snapshot or undo step can reach, and changes older than the latest
        1,024, but for those with a key whose turn is stored. None: what is left of sessions that ended. It is called
        again until it has nothing to do, and says so by zeros.

        With `drop_undo`, first forget every undo step of the session, all in one atomic step: `undo` then has nothing
        to take back, and `undo_steps` is 0. The version stays. Only the first request of a call has it set, and a
        retry of that one. It always comes with a session_id; an absent session is left absent."""
        ...

    async def verify(self, session_id: str | None, deadline: float) -> tuple[int, list[Problem]]:
        """How many entries the session has stored, and what is wrong with it. None: what belongs to no session."""
        ...

    async def close(self) -> None:
        """Release what this backend opened. Calls after it fail; a second close does nothing."""
        ...


class Opener(Protocol):
    """What the entry point of a scheme (group `everturn.backends`) names: a module or an object with these.

    It may also have `load_driver()`, which imports what takes long; it is called before a time-out begins.
    """

    OPTIONS: Mapping[str, Callable[[Any], Any]]  # the options it takes, each with what reads its value

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
    """The error for a coroutine that was to be driven, and waits for an event loop."""
    coroutine.close()
    return RuntimeError("a blocking backend suspended; use everturn.open_async for an asynchronous one")
