"""Reads a session by one script (session_state.lua): its meta, its state, the ranges of its path, and a few entries.

More entries are fetched in reads.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from everturn.backend import FRONT_ENTRIES, FRONT_SUMMARIES, At, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import damaged_session
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.stored_form import (
    StoredSession,
    StoredSnapshot,
    jump_of,
    kept_text,
    other_of,
    pairs_of,
    session_of,
    snapshots_of,
    state_of,
)
from everturn.backends.redis.transport.resp import Command
from everturn.core.paths import Jump, Range, State, clip
from everturn.core.signal_exceptions import is_interruption
from everturn.model import SessionInfo

T = TypeVar("T")
# Which entries come along with the state: all of the window, those of the front, none.
EntriesToCome: TypeAlias = Literal["1", "f", ""]

NEVER = 2**62  # no seq or version is as high, and a stream's id can be
PAGE = 500  # rows of a part in one reply
MOST = 10**12  # messages of a limit: more than any session has, and Lua writes such numbers in full


class PathWindow(msgspec.Struct, frozen=True, gc=False):
    """A part of a path to ask for: from `last` (None: the head) down to `low`, and of that the `limit` latest messages.

    Only visible entries; with 0 as `low`, hidden ones, too. `bare`: leave out entries that are no messages.
    """

    last: int | None = None
    low: int = 1
    limit: int | None = None
    bare: bool = False


EVERYTHING = PathWindow()


class FoundWindow(msgspec.Struct, frozen=True, gc=False):
    """Ranges of a path that were asked for, in order.

    If they did not fit into one answer, `rest` is the head to go on from, else 0, and `left` the number of messages
    that are still to be found. `start` is the seq of the oldest message within the limit, 0 if the limit was not
    reached; `cut` says that there are older ones.
    """

    ranges: Sequence[Range] = ()
    rest: int = 0
    left: int = 0
    start: int = 0
    cut: bool = False


class SessionView(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, in the state that was asked for: the present one, or that of a snapshot or a version.

    `others` are seqs of entries that are no messages. `entries` are those of the window, as session_state.lua gives
    them; none if they have to be fetched. `summaries`: "kind life" and value of each of the others, if the front of a
    prompt was asked for.
    """

    status: Status
    session: StoredSession | None = None
    state: State = State()
    snapshots: tuple[StoredSnapshot, ...] = ()
    others: tuple[int, ...] = ()
    window: FoundWindow = FoundWindow()
    entries: Sequence[bytes] = ()
    summaries: Sequence[bytes] = ()


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
    entries: EntriesToCome = "",
    front: bool = False,
    more: Sequence[Command] = (),
) -> tuple[SessionView, list[Any]]:
    """Read the session, and the replies to `more` in the same round trip. `others` is as in session_state.lua.

    `ranges`: read the ranges of the window, too. `entries`: which entries of these ranges come along. `front`: also
    read the beginning of a prompt. If there are too many snapshots for one answer, they are fetched afterwards, some at
    a time. If one of them was deleted meanwhile, the session is read again. Raises CorruptEntry if a part is not as it
    was written.
    """
    bounds = _bounds(window) if ranges else (*_bounds(window)[:2], b"-", b"")
    args = (
        now,
        at if isinstance(at, str) else b"",
        min(at, NEVER) if isinstance(at, int) else b"",
        b"1" if snapshots else b"",
        others,
        *bounds,
        entries,
        *((FRONT_ENTRIES, FRONT_SUMMARIES) if front else ()),
    )
    while True:
        reply, *rest = await sender.read(scripts.SESSION_STATE, keys, args, more, deadline)
        view = view_of(session_id, reply, front=front)
        if not snapshots or view.status is not Status.FOUND or view.session is None:
            return view, rest
        if len(view.snapshots) == view.session.info.snapshots:
            return view, rest
        held = await _all_snapshots(sender, keys, view.session.info, deadline)
        if len(held) == view.session.info.snapshots:
            return msgspec.structs.replace(view, snapshots=held), rest


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


def _bounds(window: PathWindow) -> tuple[bytes, bytes, bytes, bytes]:
    """Make the arguments 6 to 9 of session_state.lua."""
    last = b"" if window.last is None else b"%d" % min(window.last, NEVER)
    limit = b"" if window.limit is None else b"%d" % min(window.limit, MOST)
    return last, b"%d" % min(window.low, NEVER), limit, b"1" if window.bare else b""


FIELDS_ONLY = ("", "", "", "", "", 1, "-", "", "")
"""The arguments after `now`, to read only the fields of meta."""


def view_of(session_id: str, reply: Sequence[Any], *, front: bool = False) -> SessionView:
    """Decode the answer of session_state.lua. Raises CorruptEntry."""
    if reply[0] == b"damaged":
        raise damaged_session(session_id)
    if reply[0] == b"no_session":
        return SessionView(Status.NO_SESSION)
    try:
        return _view(session_id, reply, front=front)
    except (ValueError, TypeError, AttributeError) as exc:
        if is_interruption(exc):
            raise
        raise damaged_session(session_id) from exc


def _view(session_id: str, reply: Sequence[Any], *, front: bool) -> SessionView:
    status, listed, undo, forgotten, found_by, state, others, window, fields = reply[0].split(b"\n", 8)
    session = session_of(session_id, fields, undo, forgotten, found_by)
    if status != b"found":
        return SessionView(Status(status.decode()), session)
    behind = 1 + int(listed)  # snapshots
    seqs = tuple(map(int, others.split(b",")[::-1])) if others else ()
    end = len(reply) - 2 * len(seqs) if front else len(reply)
    return SessionView(
        Status.FOUND,
        session,
        state_of(state),
        tuple(snapshots_of(session.info, reply[1:behind])) if behind > 1 else (),
        seqs,
        _window_of(window) if window else FoundWindow(),
        reply[behind:end],
        reply[end:],
    )


def _window_of(text: bytes) -> FoundWindow:
    """Read a window as `window_text` in lua/_window.lua writes it."""
    rest, left, start, cut, ranges = text.split(b" ")
    return FoundWindow(pairs_of(ranges)[::-1], int(rest), int(left), int(start), cut == b"1")


async def walk(sender: Sender, keys: Keys, view: SessionView, wanted: PathWindow, deadline: float) -> SessionView:
    """Fetch the ranges that did not fit into the first answer. Returns the view with all of them."""
    found = view.window
    if not found.rest or view.session is None:
        return view
    ranges, start = list(found.ranges), found.start
    low = max(wanted.low, view.state.floor + 1) if wanted.low else 1
    kept = kept_text(view.state.kept) if wanted.low else ""
    last = view.state.head if wanted.last is None else min(wanted.last, NEVER)
    while found.rest:
        limit = "" if wanted.limit is None else found.left
        args = [view.session.info.life, found.rest, low, limit, _bounds(wanted)[3], kept, last, wanted.low]
        (text,) = await sender.read(scripts.WALK, keys, args, (), deadline)
        found = _window_of(text)
        ranges = [*found.ranges, *ranges]
        start = start or found.start
    shown = clip(ranges, start, NEVER) if found.cut else ranges
    return msgspec.structs.replace(view, window=FoundWindow(shown, start=start, cut=found.cut))


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
                view, _ = await read_view(sender, keys, session_id, now, deadline)
            except DamagedPart as second:
                raise damaged_session(session_id, second.part) from second
            life = view.session.info.life if view.session else None
            if life is not None and life == before:
                raise damaged_session(session_id, exc.part) from exc
            before = life


class FullView(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, with all its jumps and others. Jumps are newest first, as core.paths takes them; others
    are class and seq, in order."""

    view: SessionView
    jumps: list[Jump] = []
    others: list[tuple[str, int]] = []


async def read_all_parts(
    sender: Sender, keys: Keys, session_id: str, now: str, deadline: float, *, more: Sequence[Command] = ()
) -> tuple[FullView, list[Any]]:
    """Read the session with all its jumps, others and snapshots, in bounded steps; and the replies to `more`.

    Parts that were added meanwhile are left out, by their seqs and versions. Parts that were removed meanwhile are
    noticed, because the session has their number; then all is read again.
    """
    while True:
        view, rest = await read_view(sender, keys, session_id, now, deadline, more=more)
        if view.status is not Status.FOUND or view.session is None:
            return FullView(view), rest
        info = view.session.info
        others_there, snapshots_there, jumps_there, *_ = map(int, view.session.parts.split(b" "))
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
            return FullView(msgspec.structs.replace(view, snapshots=held), jumps[::-1], others), rest


def roots(view: SessionView) -> Iterator[tuple[State, str]]:
    """Yield every state that a session can return to, and its name."""
    yield view.state, "the head"
    for stored in view.snapshots:
        yield stored.state, f"snapshot {stored.snapshot.id}"
    for step in view.session.undo if view.session else ():
        yield step.before, f"the undo step of version {step.version}"
