"""Looks at a session: its facts, and the state it is or was in, by one script. Its entries are read in reads.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.backend import At, Status
from everturn.backends.redis import scripts
from everturn.backends.redis.changes import headless
from everturn.backends.redis.names import Keys
from everturn.backends.redis.records import Session, StoredSnapshot, session_of, snapshots_of, state_of
from everturn.backends.redis.sending import Sender
from everturn.backends.redis.wire import Command
from everturn.rules import State

NEVER = 2**62  # no seq or version is as high, and a stream's id can be


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A session at one moment, and the state that was asked for. `others` are the entries that are no messages, as
    class and seq: those up to the floor, or all."""

    status: Status
    session: Session | None = None
    state: State = State()
    snapshots: tuple[StoredSnapshot, ...] = ()
    others: tuple[tuple[bytes, int], ...] = ()


async def look(
    sender: Sender,
    keys: Keys,
    session_id: str,
    now: str,
    deadline: float,
    *,
    at: At = None,
    snapshots: bool = False,
    others: bool = False,
    more: Sequence[Command] = (),
) -> tuple[Seen, list[Any]]:
    """The session, and the replies to `more` from the same round trip. Raises CorruptEntry if its meta is gone."""
    args = [
        now,
        at if isinstance(at, str) else "",
        min(at, NEVER) if isinstance(at, int) else "",
        "1" if snapshots else "",
        "1" if others else "",
    ]
    reply, *rest = await sender.look(scripts.LOOK, keys, args, more, deadline)
    return seen_in(session_id, reply), rest


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
        raise headless(session_id) from exc


def _seen(session_id: str, status: Status, reply: Sequence[Any]) -> Seen:
    facts, held = reply[1:3]
    session = session_of(session_id, facts, held, state_of(facts[3]).messages)
    if status is not Status.FOUND:
        return Seen(status, session)
    state_text, snapshots, others = reply[3:]
    return Seen(
        status,
        session,
        state_of(state_text),
        tuple(snapshots_of(session.info, snapshots)) if snapshots else (),
        tuple([(member[:1], int(member[1:])) for member in others]) if others else (),
    )
