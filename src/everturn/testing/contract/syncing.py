"""Clauses of syncing: an acknowledged turn is on the disk, and not only in the memory of the operating system.

The store is watched from outside (faults/system_calls.py), so they hold for any store in files: JSON, pickle, SQLite
by any library. A power cut is made by restoring the files as they were last synced (faults/durable_files.py).
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from everturn.testing.faults.durable_files import DiskState, DurableFiles, is_file_below, restore
from everturn.testing.faults.system_calls import REMOVES, SENDS, SystemCall, SystemCallWatch
from everturn.testing.kit.clause import ClauseRegistry, NotOffered, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.controller import WorkerDied
from everturn.testing.workers.messages import Done, Outcome, Step

registry = ClauseRegistry("crash", since=2)
APPENDS = 5
NEW = 2  # the number of the append that is the first of another session
NEEDS = ("files", "system_calls")
KILLS = 8


class WatchedAppends(msgspec.Struct, frozen=True):
    """Appends of one process whose system calls were watched, and that was killed afterwards."""

    place: Path
    first: tuple[SentMessage, ...]  # stored before it was watched
    sessions: Sequence[str]  # of each append
    turns: Sequence[tuple[SentMessage, ...]]
    outcomes: Sequence[Outcome]
    files: DurableFiles
    end: DiskState
    lost: str  # the first file of which a power cut at the end takes something, in words

    def expected(self, session: str, moment: float) -> list[list[str]]:
        """List what a session may hold after a power cut: what was acknowledged, and perhaps the turn after that."""
        first = [self.first] if session == self.sessions[0] else []
        mine = [number for number, name in enumerate(self.sessions) if name == session]
        done = sum(self.outcomes[number].ended <= moment for number in mine)
        allowed = []
        for length in (done, done + 1):
            turns = [*first, *(self.turns[number] for number in mine[:length])]
            allowed.append([sent.content for turn in turns for sent in turn])
        return allowed


def watch_appends(kit: Kit) -> WatchedAppends:
    """Append turns in a process that is watched: to a session that is there, and one to a new session. Raises Untested
    if no write of it is seen."""
    place, first, turns = kit.place(), kit.turn(), kit.turns(APPENDS)
    session, new = kit.session(), kit.session()
    sessions = [new if number == NEW else session for number in range(APPENDS)]
    store = kit.open("watched", at=place)
    store.append(session, first)
    store.worker.used_up = True
    files = DurableFiles(place)
    with SystemCallWatch(store.worker.pid, files.begun):
        steps = [Step("append", name, (turn,)) for name, turn in zip(sessions, turns, strict=True)]
        outcomes = store.run(*steps)
        end, lost = files.cut(), files.lost()
    store.kill()
    if not files.writes and not lost and files.sent:
        raise NotOffered("it writes no file in the process that calls it, and sends what it stores to another process")
    if not files.writes and not lost:  # a memory map writes without a call, and what it wrote is seen all the same
        raise Untested("no write to a file below its directory was seen: it may write by memory maps or io_uring")
    if not all(outcome.ok for outcome in outcomes):
        raise Untested(f"an append failed: {next(one.fault for one in outcomes if not one.ok)}")
    return WatchedAppends(place, first, sessions, turns, outcomes, files, end, lost)


@registry.clause(
    "append-synced",
    "An append is acknowledged after something that it wrote was synced.",
    incident="open(), write(), close(), and the pod's node loses power: the last half minute of all users is gone.",
    needs=NEEDS,
)
def append_synced(kit: Kit) -> None:
    seen = watch_appends(kit)
    for session, outcome in zip(seen.sessions, seen.outcomes, strict=True):
        synced = sum(outcome.began <= moment <= outcome.ended for moment in seen.files.synced)
        kit.check(
            synced,
            f"an append was acknowledged, and nothing was synced between its begin and its end; {seen.lost}",
            session=session,
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
        acknowledged = sum(outcome.ended <= state.at for outcome in seen.outcomes)
        restore(seen.place, state)
        later = kit.open("later", at=seen.place)
        for session in dict.fromkeys(seen.sessions):
            found = [message.content for message in later.read(session)]
            story = f"the power was cut when {acknowledged} of {len(seen.outcomes)} appends were acknowledged"
            what = "the first turn of a new session" if session == seen.sessions[NEW] else "the session"
            reason = f" ({seen.lost})" if seen.lost and not number else ""
            kit.check(
                found in seen.expected(session, state.at),
                f"{story}; of {what} {len(found)} messages are left{reason}",
                session=session,
            )
        later.close()
        kit.release(later.worker)
    kit.notes.append(f"{len(cuts)} power cuts")


def _spread(kit: Kit, states: Sequence[DiskState]) -> Sequence[DiskState]:
    """Choose some of the moments at which the power is cut: a few in a quick run, more if there is time."""
    number = 6 if kit.quick else 24
    return states if len(states) <= number else [states[index * len(states) // number] for index in range(number)]


@registry.clause(
    "killed-in-system-call",
    "A process killed at any write or sync of an append, also inside one driver call, leaves the turn whole or absent.",
    incident="journal_mode=MEMORY, for speed: a worker is killed inside COMMIT, and the database is malformed.",
    needs=NEEDS,
    weight=2,
)
def killed_in_system_call(kit: Kit) -> None:
    size = None if kit.quick else 40  # a large turn is more than one page
    reader = kit.open("reader")
    for _ in range(3):  # so that there is something to lose, and what is made at the first call has been made
        reader.append(kit.session(), kit.turn(size))
    calls = _killed_at_call(kit, reader, 0, size)
    killed = 0
    points = [kit.only] if kit.only is not None else kit.dice.sample(range(1, calls + 1), calls)
    for n in points:
        if killed >= KILLS and not kit.time_left():
            break
        _killed_at_call(kit, reader, n, size)
        killed += 1
    if not calls:
        raise NotOffered("no write to a file below its directory was seen")
    kit.notes.append(f"killed at {killed} of {calls} writes and syncs")
    kit.judge(least=3)


def _killed_at_call(kit: Kit, reader: Instance, n: int, size: int | None) -> int:
    """Kill a process at the n-th write or sync of an append, and read what is left; 0 kills it after the append.
    Returns how many of these calls it made."""
    session = kit.session()
    kit.replays[session] = f"{kit.clause.id}@{n}"
    reader.append(session, kit.turn(size))
    store = kit.open("killed", at=reader.place)
    store.worker.used_up = True
    calls = 0

    def begun(call: SystemCall) -> None:
        nonlocal calls
        if call.name in REMOVES or (call.name not in SENDS and is_file_below(reader.place, call)):
            calls += 1
            if calls == n:
                os.kill(store.worker.pid, signal.SIGKILL)

    with SystemCallWatch(store.worker.pid, begun):
        store.worker.send(store.job(Step("append", session, (kit.turn(size),))))
        with suppress(WorkerDied):
            kit.report(store.worker, Done)
    store.kill()
    reader.values(Step("read", session), Step("append", session, (kit.turn(size),)), Step("read", session))
    return calls


@registry.clause(
    "sync-fails",
    "An append whose sync failed is an error: what the disk did not take is not acknowledged.",
    incident="except OSError: pass, around fsync, for a network disk without it: a failing disk eats a week of chats.",
    needs=NEEDS,
)
def sync_fails(kit: Kit) -> None:
    place, first, session = kit.place(), kit.turn(), kit.session()
    store = kit.open("watched", at=place)
    store.append(session, first)
    store.worker.used_up = True
    failed: list[float] = []

    def fails(call: SystemCall) -> int:
        if call.name not in {"fsync", "fdatasync"} or not is_file_below(place, call):
            return 0  # a directory cannot be synced on every file system, and stores may know that
        failed.append(time.monotonic())
        return errno.EIO

    with SystemCallWatch(store.worker.pid, lambda _: None, fails):
        outcomes = store.run(*(Step("append", session, (kit.turn(),)) for _ in range(APPENDS)))
    store.kill()
    if not failed:
        raise NotOffered("no file was synced in an append; see append-synced")
    for number, outcome in enumerate(outcomes, 1):
        seen = sum(outcome.began <= moment <= outcome.ended for moment in failed)
        kit.check(
            not (outcome.ok and seen),
            f"the disk failed at {seen} syncs of append {number} (EIO), and it was acknowledged",
            session=session,
        )
    found = [message.content for message in kit.open("later", at=place).read(session)]
    kit.check(
        found[: len(first)] == [sent.content for sent in first],
        f"syncs failed, and what was acknowledged before is not there: {len(found)} messages are left",
        session=session,
    )
    kit.notes.append(f"{len(failed)} syncs failed; {sum(not one.ok for one in outcomes)} of {APPENDS} appends did")
