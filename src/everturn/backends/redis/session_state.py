"""Reads the state of a session by one script (session_state.lua): its facts, its state, and the ranges of its path.

Its entries are read in reads.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from everturn.backend import At, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import damaged_session
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.stored_form import (
    StoredSession,
    StoredSnapshot,
    jump_of,
    other_of,
    ranges_of,
    session_of,
    snapshots_of,
    state_of,
)
from everturn.backends.redis.transport.resp import Command
from everturn.core.paths import Jump, Range, State
from everturn.core.signal_exceptions import is_interruption
from everturn.model import SessionInfo

T = TypeVar("T")

NEVER = 2**62  # no seq or version is as high, and a stream's id can be
PAGE = 500  # rows of a part in one reply


class SessionView(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, in the state that was asked for: the present one, or that of a snapshot or a version.

    `others` are seqs of entries that are no messages. `ranges` are those of the path, in order, as far as they were
    asked for; `rest` is the head to go on from if there are more, else 0.
    """

    status: Status
    session: StoredSession | None = None
    state: State = State()
    snapshots: tuple[StoredSnapshot, ...] = ()
    others: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()
    rest: int = 0


class PathWindow(msgspec.Struct, frozen=True, gc=False):
    """Ranges of a path to ask for: from `last` (None: the head) down to `low`, until they hold `enough` messages.

    Only visible ranges; with 0 as `low`, hidden ones, too.
    """

    last: int | None = None
    low: int = 1
    enough: int | None = None


EVERYTHING = PathWindow()


async def read_view(
    sender: Sender,
    keys: Keys,
    session_id: str,
    now: str,
    deadline: float,
    *,
    at: At = None,
    snapshots: bool = False,
    others: str = "",
    window: PathWindow = EVERYTHING,
    ranges: bool = False,
    more: Sequence[Command] = (),
) -> tuple[SessionView, list[Any]]:
    """Read the session, and the replies to `more` in the same round trip. `others` is as in session_state.lua.

    Snapshots that are too many for one answer are fetched afterwards, some at a time. If one of them was deleted
    meanwhile, the session is read again. Raises CorruptEntry if a part is not as it was written.
    """
    args = [
        now,
        at if isinstance(at, str) else "",
        min(at, NEVER) if isinstance(at, int) else "",
        "1" if snapshots else "",
        others,
        *(_bounds(window) if ranges else (*_bounds(window)[:2], "-")),
    ]
    while True:
        reply, *rest = await sender.read(scripts.SESSION_STATE, keys, args, more, deadline)
        seen = view_of(session_id, reply)
        if not snapshots or seen.status is not Status.FOUND or seen.session is None:
            return seen, rest
        if len(seen.snapshots) == seen.session.info.snapshots:
            return seen, rest
        held = await _all_snapshots(sender, keys, seen.session.info, deadline)
        if len(held) == seen.session.info.snapshots:
            return msgspec.structs.replace(seen, snapshots=held), rest


async def _all_snapshots(sender: Sender, keys: Keys, info: SessionInfo, deadline: float) -> tuple[StoredSnapshot, ...]:
    """Fetch the snapshots that the session had when it was read, without those that were deleted since."""
    pairs: dict[bytes, bytes] = {}
    cursor: Any = "0"
    while cursor != b"0":
        ((*_, cursor, scanned),) = await sender.read(
            scripts.PAGE, keys, ["", "", cursor, PAGE, info.life], (), deadline
        )
        pairs.update(zip(scanned[::2], scanned[1::2], strict=True))
    return _held(info, pairs)


def _held(info: SessionInfo, pairs: Mapping[bytes, bytes]) -> tuple[StoredSnapshot, ...]:
    """Return the snapshots that were taken no later than the version of `info`."""
    flat = [part for pair in pairs.items() for part in pair]
    return tuple(taken for taken in snapshots_of(info, flat) if taken.snapshot.version <= info.version)


def _bounds(window: PathWindow) -> tuple[Any, Any, Any]:
    last = "" if window.last is None else min(window.last, NEVER)
    return last, min(window.low, NEVER), "" if window.enough is None else window.enough


FACTS_ONLY = ("", "", "", "", "", 1, "-")
"""The arguments behind `now`, to read the facts alone."""


def view_of(session_id: str, reply: Sequence[Any]) -> SessionView:
    """Decode the answer of session_state.lua. Raises CorruptEntry."""
    word = reply[0]
    if word == b"damaged":
        raise damaged_session(session_id)
    status = Status(word.decode())
    if status is Status.NO_SESSION:
        return SessionView(status)
    try:
        return _seen(session_id, status, reply)
    except (ValueError, TypeError, AttributeError) as exc:
        if is_interruption(exc):
            raise
        raise damaged_session(session_id) from exc


def _seen(session_id: str, status: Status, reply: Sequence[Any]) -> SessionView:
    facts, undo, forgotten, held = reply[1:5]
    session = session_of(session_id, facts, undo, forgotten, held, state_of(facts[3]).messages)
    if status is not Status.FOUND:
        return SessionView(status, session)
    state_text, snapshots, others, ranges, rest = reply[5:]
    return SessionView(
        status,
        session,
        state_of(state_text),
        tuple(snapshots_of(session.info, snapshots)) if snapshots else (),
        tuple(map(int, others.split(b",")[::-1])) if others else (),
        tuple(ranges_of(ranges)[::-1]) if ranges else (),
        rest,
    )


async def walk(sender: Sender, keys: Keys, seen: SessionView, window: PathWindow, deadline: float) -> SessionView:
    """Fetch the ranges of the window that did not fit into the first answer. Returns the view with all of them."""
    ranges, rest = list(seen.ranges), seen.rest
    low = max(window.low, seen.state.floor + 1) if window.low else 1
    while rest and seen.session is not None:
        args = [seen.session.info.life, rest, low, *_bounds(window)[2:]]
        ((text, rest),) = await sender.read(scripts.WALK, keys, args, (), deadline)
        ranges = ranges_of(text)[::-1] + ranges
    return msgspec.structs.replace(seen, ranges=tuple(ranges), rest=0)


async def retry_across_lives(
    work: Callable[..., Awaitable[T]],
    sender: Sender,
    keys: Keys,
    session_id: str,
    now: str,
    deadline: float,
    *more: Any,
) -> T:
    """Do work that reads a session in several round trips; `more` are its further arguments.

    A session that was replaced by another life in between looks damaged. So work that finds damage is done again, until
    the same life was there before and after it: a life does not come back. Then it raises CorruptEntry.
    """
    before = None
    while True:
        try:
            return await work(sender, keys, session_id, now, deadline, *more)
        except DamagedPart as exc:
            try:
                seen, _ = await read_view(sender, keys, session_id, now, deadline)
            except DamagedPart as second:
                raise damaged_session(session_id, second.part) from second
            life = seen.session.info.life if seen.session else None
            if life is not None and life == before:
                raise damaged_session(session_id, exc.part) from exc
            before = life


class FullView(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, with all its jumps and others. Jumps are newest first, as core.paths takes them; others
    are class and seq, in order."""

    seen: SessionView
    jumps: list[Jump] = []
    others: list[tuple[str, int]] = []


async def read_all_parts(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float, *, more: Sequence[Command] = ()
) -> tuple[FullView, list[Any]]:
    """Read the session with all its jumps, others and snapshots, in bounded steps; and the replies to `more`.

    Parts that came later are left out: their seqs and versions tell. Parts that went meanwhile are noticed: the session
    says how many there must be. Then all is read again.
    """
    while True:
        seen, rest = await read_view(sender, keys, session_id, now, deadline, more=more)
        if seen.status is not Status.FOUND or seen.session is None:
            return FullView(seen), rest
        info = seen.session.info
        others_there, snapshots_there, jumps_there, *_ = map(int, seen.session.parts.split(b" "))
        jumps: list[Jump] = []
        others: list[tuple[str, int]] = []
        pairs: dict[bytes, bytes] = {}
        after: list[Any] = [0 if jumps_there else "", 0 if others_there else "", "0" if snapshots_there else ""]
        while after != ["", "", ""]:
            ((more_jumps, more_others, cursor, scanned),) = await sender.read(
                scripts.PAGE, keys, [*after, PAGE, info.life], (), deadline
            )
            jumps += [jump_of(info.life, *pair) for pair in zip(more_jumps[::2], more_jumps[1::2], strict=True)]
            others += [other_of(info.life, *pair) for pair in zip(more_others[::2], more_others[1::2], strict=True)]
            pairs.update(zip(scanned[::2], scanned[1::2], strict=True))
            after = [
                jumps[-1][0] if len(more_jumps) == 2 * PAGE else "",
                others[-1][1] if len(more_others) == 2 * PAGE else "",
                cursor if cursor != b"0" else "",
            ]
        jumps = [jump for jump in jumps if jump[0] <= info.last_seq]
        others = [other for other in others if other[1] <= info.last_seq]
        held = _held(info, pairs)
        if (len(jumps), len(others), len(held)) == (jumps_there, others_there, snapshots_there):
            return FullView(msgspec.structs.replace(seen, snapshots=held), jumps[::-1], others), rest


def roots(seen: SessionView) -> Iterator[tuple[State, str]]:
    """Yield every state that a session can return to, and its name."""
    yield seen.state, "the head"
    for stored in seen.snapshots:
        yield stored.state, f"snapshot {stored.snapshot.id}"
    for step in seen.session.undo if seen.session else ():
        yield step.before, f"the undo step of version {step.version}"
