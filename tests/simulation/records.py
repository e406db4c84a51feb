"""Records of a simulated world: calls as their callers saw them, states as they were, findings, and the words for them.

judge.py decides which finding follows from which records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from everturn import ChatMessage, MemoryStoreError, Summary
from everturn.errors import CorruptEntry, MemoryStoreBackendError
from tests.model.model_store import Session, State
from tests.simulation.schedules import Op

REPEATED = "repeated refusal"
"""A request that changed nothing is repeated by the network within its time, and then changes something. Nothing is
written by a refusal, so nothing can tell that it was given (docs/decisions/025-simulation.md)."""
MISLED = "opened in a wrong time"
"""A process that starts while its machine's clock is wrong has nothing to compare it with, and believes it."""
SET_BACK = "applied by a clock that was set back"
"""A call that was refused, or failed as not written, is applied by an attempt that the network kept: since it was sent
its server's clock was set back by more than the request's life and less than its age (decision 020)."""
OTHER_CLOCK = "hidden by another server's clock"
"""A request is applied after its time by a server that took over again. While it was under way another server was the
master, and changed the session for somebody else, or took its fence back to now, by a clock that showed less than this
server's when the request was sent; or its clock was so far ahead that the tombstone of an erasure expired
(docs/decisions/044-retries-at-another-server.md)."""
FORGOTTEN = "behind a tombstone that expired"
"""A retry is applied again behind an erasure that took its first attempt away: the server's clock was set forward by
more than a request's life, or another server's clock is so far ahead, and with the tombstone went the call's id
(docs/decisions/027-retries-behind-an-erasure.md)."""
TOLERATED = {REPEATED, MISLED, SET_BACK, OTHER_CLOCK, FORGOTTEN}


@dataclass
class Record:
    """One call as its caller saw it. `end` is None for one whose process was killed."""

    op: Op
    host: str
    begin: float
    by: float  # true time of its deadline
    end: float | None = None
    outcome: str = "killed"
    result: Any = None
    error: BaseException | None = None

    @property
    def over(self) -> float:
        """The true time at which its caller had an answer, or had given up."""
        return self.by if self.end is None or self.outcome == "cancelled" else self.end


@dataclass(frozen=True)
class Finding:
    """A promise that was broken. `kind` is one word for all of its sort."""

    kind: str
    at: float
    text: str


@dataclass(frozen=True)
class Seen:
    """A state of a session, from a moment on. None: there is none. `expires` is on the store's clock; `by` told it."""

    since: float
    state: State | None
    expires: float | None = None
    life: int = 0
    by: str = ""
    effects: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str, ...]:
        return () if self.state is None else tuple(item.entry.content for item in self.state.messages)

    @property
    def summaries(self) -> tuple[str, ...]:
        """The summaries that stand for hidden turns."""
        shown = () if self.state is None else self.state.visible
        return tuple(item.entry.text for item in shown if isinstance(item.entry, Summary))


@dataclass
class Image:
    """The judge's knowledge of the data at one moment, for a server that loses what came later."""

    sessions: dict[str, Session]
    made: dict[str, list[int]]
    moves: dict[str, list[tuple[float, Op]]]
    numbers: dict[int, int]

    def copy(self) -> Image:
        sessions = {
            name: replace(
                session,
                snapshots=dict(session.snapshots),
                undo=list(session.undo),
                log=list(session.log),
                stored=dict(session.stored),
                effects=dict(session.effects),
            )
            for name, session in self.sessions.items()
        }
        made = {name: list(ops) for name, ops in self.made.items()}
        return Image(sessions, made, {name: list(moves) for name, moves in self.moves.items()}, dict(self.numbers))


Stored = tuple[str, int, tuple[tuple[int, str], ...]]  # life, version, and the messages with their seqs


def placed(state: State) -> tuple[tuple[int, str], ...]:
    """The messages and summaries that a state shows, with their seqs."""
    return tuple((item.seq, item.entry.text) for item in state.visible)


def message(value: str) -> ChatMessage:
    return ChatMessage("user", value)


def outcome_of(error: BaseException) -> str:
    """The outcome of a call that raised this error."""
    if isinstance(error, MemoryStoreBackendError):
        return error.outcome
    return "refused" if isinstance(error, MemoryStoreError) and not isinstance(error, CorruptEntry) else "error"


def named(op: Op) -> str:
    return f"call {op.id} ({described(op)})"


def described(op: Op) -> str:
    """A call in a few words."""
    about = {
        "append": f" {'+'.join(op.values)}" + (f" key={op.key}" if op.key else ""),
        "replace": f" by {'+'.join(op.values)}",
        "rollback": f" to the snapshot of call {op.of}",
        "read_at": f" the snapshot of call {op.of}",
        "delete_snapshot": f" of call {op.of}",
        "trim": f" to {op.limit}",
        "fold": f" to {op.limit}, by a model that takes {op.seconds} s",
        "set_ttl": f" {op.seconds}",
        "fork": f" into {op.target}",
        "lease": f" for {op.seconds} s",
        "renew": f" of call {op.of}",
        "release": f" of call {op.of}",
        "begin": f" {op.key}" + (f", again if attempt {op.limit} is in doubt" if op.limit else ""),
        "finish": f" {op.key}" + (f" of call {op.of}" if op.of else ""),
        "fail": f" {op.key}" + (f" of call {op.of}" if op.of else ""),
    }
    lease = f" with the lease of call {op.lease}" if op.lease else ""
    return f"{op.kind} {op.session}{about.get(op.kind, '')}{lease}"


def short(messages: tuple[tuple[int, str], ...]) -> str:
    return "[" + ", ".join(f"{seq}:{value}" for seq, value in messages) + "]"
