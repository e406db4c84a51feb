"""Clauses of syncing: an acknowledged turn is on the disk, and not only in the memory of the operating system.

The store is watched from outside (faults/system_calls.py), so they hold for any store in files: JSON, pickle, SQLite
by any library. A power cut is made by restoring the files as they were last synced (faults/durable_files.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from everturn.testing.faults.durable_files import DiskState, DurableFiles, restore
from everturn.testing.faults.system_calls import SystemCallWatch
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Outcome, Step

registry = ClauseRegistry("crash", since=2)
APPENDS = 5
NEEDS = ("files", "system_calls")


class WatchedAppends(msgspec.Struct, frozen=True):
    """Appends of one process whose system calls were watched, and that was killed afterwards. The first was not."""

    place: Path
    session: str
    turns: Sequence[tuple[SentMessage, ...]]
    outcomes: Sequence[Outcome]  # of all but the first
    files: DurableFiles
    end: DiskState
    lost: str  # the first file of which a power cut at the end takes something, in words


def watch_appends(kit: Kit) -> WatchedAppends:
    """Append turns in a process that is watched. Raises Untested if no write of it is seen."""
    place, session, turns = kit.place(), kit.session(), kit.turns(APPENDS)
    store = kit.open("watched", at=place)
    store.append(session, turns[0])
    store.worker.used_up = True
    files = DurableFiles(place)
    with SystemCallWatch(store.worker.pid, files.begun):
        steps = [Step("append", session, (turn,)) for turn in turns[1:]]
        outcomes = store.run(*steps)
        end, lost = files.cut(), files.lost()
    store.kill()
    if not files.writes and files.sent:
        raise NotOffered("it writes no file in the process that calls it, and sends what it stores to another process")
    if not files.writes:
        raise Untested("no write to a file below its directory was seen: it may write by memory maps or io_uring")
    if not all(outcome.ok for outcome in outcomes):
        raise Untested(f"an append failed: {next(one.fault for one in outcomes if not one.ok)}")
    return WatchedAppends(place, session, turns, outcomes, files, end, lost)


@registry.clause(
    "append-synced",
    "An append is acknowledged after something that it wrote was synced.",
    incident="open(), write(), close(), and the pod's node loses power: the last half minute of all users is gone.",
    needs=NEEDS,
)
def append_synced(kit: Kit) -> None:
    seen = watch_appends(kit)
    for outcome in seen.outcomes:
        synced = sum(outcome.began <= moment <= outcome.ended for moment in seen.files.synced)
        kit.check(
            synced,
            f"an append was acknowledged, and nothing was synced between its begin and its end; {seen.lost}",
            session=seen.session,
        )
    kit.notes.append(f"{len(seen.files.synced)} syncs in {len(seen.outcomes)} appends")


@registry.clause(
    "power-loss-files",
    "After a power cut, at any sync and after the last, every acknowledged turn is there, and no part of another.",
    incident="A file is written, synced and renamed; its directory is not: after the cut the old file is back.",
    needs=NEEDS,
    weight=2,
)
def power_loss_files(kit: Kit) -> None:
    seen = watch_appends(kit)
    cuts = [seen.end, *_spread(kit, seen.files.states)]
    for number, state in enumerate(cuts):
        acknowledged = 1 + sum(outcome.ended <= state.at for outcome in seen.outcomes)
        restore(seen.place, state)
        later = kit.open("later", at=seen.place)
        found = [message.content for message in later.read(seen.session)]
        later.close()
        kit.release(later.worker)
        states = [
            [sent.content for turn in seen.turns[:length] for sent in turn]
            for length in (acknowledged, acknowledged + 1)
        ]
        story = f"the power was cut when {acknowledged} turns of {len(seen.turns[0])} were acknowledged"
        reason = f" ({seen.lost})" if seen.lost and not number else ""
        kit.check(found in states, f"{story}; {len(found)} messages are left{reason}", session=seen.session)
    kit.notes.append(f"{len(cuts)} power cuts")


def _spread(kit: Kit, states: Sequence[DiskState]) -> Sequence[DiskState]:
    """Choose some of the moments at which the power is cut: a few in a quick run, more if there is time."""
    number = 6 if kit.quick else 24
    return states if len(states) <= number else [states[index * len(states) // number] for index in range(number)]
