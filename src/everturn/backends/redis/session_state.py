"""Looks at a session: its facts, the state it is or was in, and where its entries stand, by one script.

Its entries are read in reads.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from everturn.backend import At, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import headless
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import Damaged
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.stored_form import (
    Session,
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


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, and the state that was asked for. `others` are the seqs of entries that are no messages;
    `ranges` those of the path, in order, as far as they were asked for; `rest` is the head to go on from, or 0."""

    status: Status
    session: Session | None = None
    state: State = State()
    snapshots: tuple[StoredSnapshot, ...] = ()
    others: tuple[int, ...] = ()
    ranges: tuple[Range, ...] = ()
    rest: int = 0


class Window(msgspec.Struct, frozen=True, gc=False):
    """Ranges of a path to ask for: from `last` (None: its head) down to `low`, until `enough` messages stand in them.
    Those that show; with 0 as `low`, also those that are hidden."""

    last: int | None = None
    low: int = 1
    enough: int | None = None


EVERYTHING = Window()


async def look(
    sender: Sender,
    keys: Keys,
    session_id: str,
    now: str,
    deadline: float,
    *,
    at: At = None,
    snapshots: bool = False,
    others: str = "",
    window: Window = EVERYTHING,
    ranges: bool = False,
    more: Sequence[Command] = (),
) -> tuple[Seen, list[Any]]:
    """The session, and the replies to `more` from the same round trip. `others` is as in look.lua. Raises CorruptEntry
    if a part is not as it was written.

    Many snapshots are fetched behind it, some at a time: those that were there when the session was seen, or, if one
    has gone since, when it is seen again.
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
        reply, *rest = await sender.look(scripts.LOOK, keys, args, more, deadline)
        seen = seen_in(session_id, reply)
        if not snapshots or seen.status is not Status.FOUND or seen.session is None:
            return seen, rest
        if len(seen.snapshots) == seen.session.info.snapshots:
            return seen, rest
        held = await _all_snapshots(sender, keys, seen.session.info, deadline)
        if len(held) == seen.session.info.snapshots:
            return msgspec.structs.replace(seen, snapshots=held), rest


async def _all_snapshots(sender: Sender, keys: Keys, info: SessionInfo, deadline: float) -> tuple[StoredSnapshot, ...]:
    """The snapshots that were there when the session was seen, but for those that have gone since."""
    pairs: dict[bytes, bytes] = {}
    cursor: Any = "0"
    while cursor != b"0":
        ((*_, cursor, scanned),) = await sender.look(
            scripts.PAGE, keys, ["", "", cursor, PAGE, info.life], (), deadline
        )
        pairs.update(zip(scanned[::2], scanned[1::2], strict=True))
    return _held(info, pairs)


def _held(info: SessionInfo, pairs: Mapping[bytes, bytes]) -> tuple[StoredSnapshot, ...]:
    """Those of the snapshots that are no later than the session."""
    flat = [part for pair in pairs.items() for part in pair]
    return tuple(taken for taken in snapshots_of(info, flat) if taken.snapshot.version <= info.version)


def _bounds(window: Window) -> tuple[Any, Any, Any]:
    last = "" if window.last is None else min(window.last, NEVER)
    return last, min(window.low, NEVER), "" if window.enough is None else window.enough


GLANCE = ("", "", "", "", "", 1, "-")
"""The arguments behind `now` of a look at the facts alone."""


def seen_in(session_id: str, reply: Sequence[Any]) -> Seen:
    """The answer of look.lua."""
    word = reply[0]
    if word == b"headless":
        raise headless(session_id)
    status = Status(word.decode())
    if status is Status.NO_SESSION:
        return Seen(status)
    try:
        return _seen(session_id, status, reply)
    except (ValueError, TypeError, AttributeError) as exc:
        if is_interruption(exc):
            raise
        raise headless(session_id) from exc


def _seen(session_id: str, status: Status, reply: Sequence[Any]) -> Seen:
    facts, undo, forgotten, held = reply[1:5]
    session = session_of(session_id, facts, undo, forgotten, held, state_of(facts[3]).messages)
    if status is not Status.FOUND:
        return Seen(status, session)
    state_text, snapshots, others, ranges, rest = reply[5:]
    return Seen(
        status,
        session,
        state_of(state_text),
        tuple(snapshots_of(session.info, snapshots)) if snapshots else (),
        tuple(map(int, others.split(b",")[::-1])) if others else (),
        tuple(ranges_of(ranges)[::-1]) if ranges else (),
        rest,
    )


async def walk(sender: Sender, keys: Keys, seen: Seen, window: Window, deadline: float) -> Seen:
    """All ranges of the window: those that were seen, and those that did not fit into the answer."""
    ranges, rest = list(seen.ranges), seen.rest
    low = max(window.low, seen.state.floor + 1) if window.low else 1
    while rest and seen.session is not None:
        args = [seen.session.info.life, rest, low, *_bounds(window)[2:]]
        ((text, rest),) = await sender.look(scripts.WALK, keys, args, (), deadline)
        ranges = ranges_of(text)[::-1] + ranges
    return msgspec.structs.replace(seen, ranges=tuple(ranges), rest=0)


async def steadily(
    work: Callable[..., Awaitable[T]],
    sender: Sender,
    keys: Keys,
    session_id: str,
    now: str,
    deadline: float,
    *more: Any,
) -> T:
    """Do work that takes several looks at a session, with the rest as its arguments. Raises CorruptEntry if a part is
    not as it was written.

    What is of another life is taken for damage. So work that finds some is done again, until one life was there before
    and after it: lives do not come back.
    """
    before = None
    while True:
        try:
            return await work(sender, keys, session_id, now, deadline, *more)
        except Damaged as exc:
            try:
                seen, _ = await look(sender, keys, session_id, now, deadline)
            except Damaged as second:
                raise headless(session_id, second.part) from second
            life = seen.session.info.life if seen.session else None
            if life is not None and life == before:
                raise headless(session_id, exc.part) from exc
            before = life


class Whole(msgspec.Struct, frozen=True, gc=False):
    """A session with all that stands beside its log, as of one moment. Jumps are newest first, as rules.path wants
    them; others are class and seq, in order."""

    seen: Seen
    jumps: list[Jump] = []
    others: list[tuple[str, int]] = []


async def look_at_all(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float, *, more: Sequence[Command] = ()
) -> tuple[Whole, list[Any]]:
    """The session with all its jumps, others and snapshots, in bounded steps; and the replies to `more`.

    What was there when the session was seen, and has not gone since, is all of it: seqs and versions tell what came
    later, and the session says how many there are to be. If some have gone, it is looked at again.
    """
    while True:
        seen, rest = await look(sender, keys, session_id, now, deadline, more=more)
        if seen.status is not Status.FOUND or seen.session is None:
            return Whole(seen), rest
        info = seen.session.info
        others_there, snapshots_there, jumps_there, *_ = map(int, seen.session.parts.split(b" "))
        jumps: list[Jump] = []
        others: list[tuple[str, int]] = []
        pairs: dict[bytes, bytes] = {}
        after: list[Any] = [0 if jumps_there else "", 0 if others_there else "", "0" if snapshots_there else ""]
        while after != ["", "", ""]:
            ((more_jumps, more_others, cursor, scanned),) = await sender.look(
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
            return Whole(msgspec.structs.replace(seen, snapshots=held), jumps[::-1], others), rest


def roots(seen: Seen) -> Iterator[tuple[State, str]]:
    """Every state a session can return to, with what to call it."""
    yield seen.state, "the head"
    for stored in seen.snapshots:
        yield stored.state, f"snapshot {stored.snapshot.id}"
    for step in seen.session.undo if seen.session else ():
        yield step.before, f"the undo step of version {step.version}"
