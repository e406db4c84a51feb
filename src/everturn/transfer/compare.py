"""Compares a session in two stores: everything that `state()` compares, some entries at a time, at any length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.backend import Query, Reading, Status
from everturn.model import SessionInfo
from everturn.transfer.endpoint import Endpoint
from everturn.transfer.session_lines import Outline

WINDOW = 1000  # seqs compared at a time, at most
WINDOW_BYTES = 4 * 2**20  # of them, about


class StatesDiffer(Exception):
    """The session is not the same in both stores."""


class Compared(msgspec.Struct, frozen=True, gc=False):
    """Facts of the session in both stores, now. At the version that was compared, it is the same in both."""

    source: SessionInfo
    target: SessionInfo


async def compare(source: Endpoint, target: Endpoint, outline: Outline) -> Compared | None:
    """Compare the entries at the outline's version, and, if neither session has changed since, the other facts.

    Raises StatesDiffer, and CorruptEntry. Returns None if that version can no longer be read in one of the stores.
    """
    compared: Compared | None = None
    low, step = outline.state.cleared, WINDOW
    while compared is None or low < outline.state.head:
        query = Query(outline.session_id, at=outline.version, after=low, before=low + step + 1, snapshots=not compared)
        ours, our_rows = await source.read(query)
        theirs, their_rows = await target.read(query)
        if ours.session is None or theirs.session is None or not _are_of(outline, ours, theirs):
            return None
        if ours.state != theirs.state or _content(our_rows) != _content(their_rows):
            raise StatesDiffer
        low += step
        if compared is None:
            compared = Compared(ours.session, theirs.session)
            facts = _facts(ours, ours.session), _facts(theirs, theirs.session)
            if ours.session.version == theirs.session.version and facts[0] != facts[1]:
                raise StatesDiffer
            step = max(1, min(WINDOW, WINDOW_BYTES * outline.last_seq // max(1, ours.session.bytes)))
    return compared


def _are_of(outline: Outline, *readings: Reading) -> bool:
    return all(
        reading.status is Status.FOUND and reading.session is not None and reading.session.life == outline.life
        for reading in readings
    )


def _facts(reading: Reading, session: SessionInfo) -> tuple[Any, ...]:
    """Collect the facts that state() compares beside version and entries."""
    snapshots = [(snapshot.label, snapshot.version) for snapshot in reading.snapshots]
    return session.last_seq, session.undo_steps, session.ttl, session.forked_from, snapshots, session.facts


def _content(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Leave out the time of each entry: a backend may round it to microseconds."""
    return [(seq, check, body, kind, turn) for seq, _, check, body, kind, turn in rows]
