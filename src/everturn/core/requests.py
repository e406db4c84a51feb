"""Requests and outcomes that the store and a backend exchange: changes, reads, forks, erasures. Values, no IO.

An action (Append, Clear, Undo, ...) says how a change alters a session. A ChangeRequest carries one action and all that
is needed to apply it once. A backend answers with a Status: exceptions are for faults only.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Literal, TypeAlias

import msgspec

from everturn.core.codec import Draft, EntryRow
from everturn.core.effects import BeginEffect, EndEffect, StoredEffect
from everturn.core.facts import SetFacts
from everturn.core.paths import State
from everturn.model import ErasureReceipt, SessionInfo, Snapshot

REMEMBERED = 1024  # changes whose call id, key and state are known, at the least
FRONT_ENTRIES = 4  # that a query with `front` asks for, at the most
FRONT_SUMMARIES = 2

# --- changes ---------------------------------------------------------------------------------------------------------


class Append(msgspec.Struct, frozen=True, gc=False):
    """Write these entries as one turn. With `after`, first move the head back to that seq (undoable).

    `carried` are copies of summaries that stand for entries which stay hidden, and which the move would drop. They are
    written before the turn, as a turn of their own that no receipt names. None: if the move drops a summary while
    entries stay hidden, refuse it (SUMMARY_DROPPED).
    """

    drafts: tuple[Draft, ...]
    messages: int  # how many of them are messages
    dimension: int | None = None  # of the summaries among them
    after: int | None = None
    carried: tuple[Draft, ...] | None = None

    @property
    def kind(self) -> str:
        return "append" if self.after is None else "replace"


class Trim(msgspec.Struct, frozen=True, gc=False):
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


class Fold(msgspec.Struct, frozen=True, gc=False):
    """Hide everything up to `floor` but summaries and `kept`, and append the summary that stands for it: one step.

    Undoable. Planned on `seen`, and applied or MOVED as a Trim is. `draft` is the summary.
    """

    kind: ClassVar[str] = "fold"

    life: str
    seen: State
    floor: int
    kept: tuple[int, ...]
    hidden: int  # messages that become invisible
    draft: Draft

    @property
    def drafts(self) -> tuple[Draft, ...]:
        return (self.draft,)

    @property
    def dimension(self) -> int | None:
        return self.draft.dimension


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
    """Make the state of a snapshot, or the state after a version, the current one (undoable). One of them is given."""

    kind: ClassVar[str] = "rollback"

    snapshot_id: str | None
    version: int | None = None

    @property
    def label(self) -> str | None:
        """Name of the version, for the record of the change; a snapshot is recorded as such."""
        return None if self.version is None else f"version {self.version}"


class Undo(msgspec.Struct, frozen=True, gc=False):
    """Take back the latest undo step.

    After a trim, fold or clear: show the entries again that it hid, and keep later turns. After a rollback or replace:
    return to the state before it; FOLLOWED if turns were appended since, unless `drop_turns`.
    """

    kind: ClassVar[str] = "undo"

    drop_turns: bool = False


class SetTTL(msgspec.Struct, frozen=True, gc=False):
    """Let the session expire this long after its latest change; None: never."""

    kind: ClassVar[str] = "ttl"
    seconds: float | None


class Fork(msgspec.Struct, frozen=True, gc=False):
    """Begin as a copy of another session's state. Backend.fork records it; `change` is never asked for it."""

    kind: ClassVar[str] = "fork"


Action: TypeAlias = (
    Append
    | Trim
    | Fold
    | Clear
    | TakeSnapshot
    | DeleteSnapshot
    | Rollback
    | Undo
    | SetTTL
    | SetFacts
    | BeginEffect
    | EndEffect
    | Fork
)


class LeaseClaim(msgspec.Struct, frozen=True, gc=False):
    """A lease that a change names: its token, and its holder ("": whoever that is)."""

    token: int
    holder: str = ""


class ChangeRequest(msgspec.Struct, frozen=True, gc=False):
    """One change to one session, with everything needed to apply it once.

    `call` is the id of one call of the caller; its retries carry the same. `retry` says that an earlier attempt may
    have been applied: only then need a backend look for `call`. `key` and `content` are digests of the caller's
    idempotency key and of the arguments it was used with. `life` and `ttl` are for a session that this change begins.
    """

    session_id: str
    action: Action
    call: bytes
    ttl: float | None
    key: bytes | None = None
    content: bytes | None = None
    expected_version: int | None = None
    expected_life: str | None = None
    retry: bool = False
    lease: LeaseClaim | None = None

    @property
    def life(self) -> str:
        """Name of the life that this change begins: a life is named after the call that began it."""
        return self.call[:8].hex()


class Status(Enum):
    """Outcome of a request. Only APPLIED wrote anything."""

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
    MOVED = "moved"  # a trim or fold was planned on a state that is no more
    NOT_ON_PATH = "not_on_path"  # `after` is not in the history
    SUMMARY_DROPPED = "summary_dropped"  # a replace would drop a summary, which may stand for entries that stay hidden
    DIMENSION = "dimension"  # the session's embeddings have another length
    EXISTS = "exists"  # the session to fork into, or to restore, is there already
    SNAPSHOT_TAKEN = "snapshot_taken"  # a snapshot to restore belongs to another session here
    LEASE_HELD = "lease_held"  # by another
    LEASE_LOST = "lease_lost"  # another has had it, its time is over, or its life is
    NO_EFFECT = "no_effect"  # it was never begun in this life
    EFFECT_ENDED = "effect_ended"  # before; with its row
    TOO_MANY_FACTS = "too_many_facts"  # it would have more than MOST_FACTS
    EFFECT_REPEATED = "effect_repeated"  # another attempt than the one named is started; with its row


class ChangeOutcome(msgspec.Struct, frozen=True, gc=False):
    """A backend's answer to a change.

    `version` and `life` are those of the receipt; on a refusal, the session's own (0 and "" if it is absent).
    KEY_REUSED has the receipt of the change that used the key first. `effect` is the row of an effect that was to begin
    or end, unless it is REPLAYED or there is none.
    """

    status: Status
    life: str = ""
    version: int = 0
    first_seq: int = 0
    count: int = 0
    snapshot: Snapshot | None = None
    detail: int = 0  # DIMENSION: the session's
    effect: StoredEffect | None = None


# --- reads -----------------------------------------------------------------------------------------------------------

At: TypeAlias = str | int | None  # a snapshot's id, a version, or now


class Query(msgspec.Struct, frozen=True, gc=False):
    """Read visible entries: of one kind or all, after and before a seq, at most the `limit` latest (0: none).

    `snapshots`: list the session's snapshots too, as of the same moment. `skip`: leave out damaged entries.

    `front`: hand over what a prompt begins with, too, as of the same moment. Such a query is of the kind MESSAGE, with
    a `limit`, and without `after`, `before`, `snapshots` and `skip`. If the limit leaves out earlier messages, some of
    these come before the latest ones: all that a trim kept, and those among the first FRONT_ENTRIES entries behind the
    floor. A backend may hand over fewer of the latter. `Reading.turns` and `Reading.summaries` have the rest.
    """

    session_id: str
    kind: str | None = None
    at: At = None
    after: int = 0
    before: int | None = None
    limit: int | None = None
    snapshots: bool = False
    skip: bool = False  # the caller prefers the undamaged entries to an error
    front: bool = False

    @property
    def is_glance(self) -> bool:
        """Whether only the session's facts and its present state are asked for. Most queries of limit 0 are."""
        return self.limit == 0 and self.at is None and not self.snapshots


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Result of a read, beside the rows it handed over.

    `first_missing` is the first seq that should be there and is not (0: all are there). `cut`: `limit` left out earlier
    entries. `session.snapshots` may be 0, uncounted, unless snapshots are asked for or `limit` is 0.

    For a query with `front`: `turns` has, for each message handed over, the seq of the first entry of its turn.
    `summaries` are the rows of the latest FRONT_SUMMARIES summaries on the path behind `cleared`, in order; none if no
    trim or fold hides anything (`floor` is not above `cleared`).
    """

    status: Status  # FOUND, NO_SESSION, NO_SNAPSHOT or NO_VERSION
    session: SessionInfo | None = None
    state: State = State()
    snapshots: tuple[Snapshot, ...] = ()  # in the order they were taken
    first_missing: int = 0
    cut: bool = False
    turns: Sequence[int] = ()
    summaries: tuple[EntryRow, ...] = ()


class EffectsReading(msgspec.Struct, frozen=True, gc=False):
    """Effects of the present life of a session, in the order in which they were begun. life "": there is no session."""

    life: str = ""
    version: int = 0
    effects: tuple[StoredEffect, ...] = ()


class ForkRequest(msgspec.Struct, frozen=True, gc=False):
    """Copy the visible entries at `at` into `target`, which must not exist, under the same seqs."""

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
    """Receipt of an erasure. `spared`: another life than the one that was named lives there, and was left alone."""

    receipt: ErasureReceipt
    spared: bool = False


Order: TypeAlias = Literal["recent"] | None
