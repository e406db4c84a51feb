"""Clauses of races: every two operations on one session. One is stopped at each of its points, the other completes.

testing/races/sweep.py runs them, testing/history judges them.
"""

from __future__ import annotations

from functools import partial

import msgspec

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.races.sweep import LEAST_POINTS, Ended, Race, Sweep, modes
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("concurrency")

NEEDS = {
    "append": (),
    "read": (),
    "trim": ("trim",),
    "clear": ("clear",),
    "snapshot": ("save_snapshot", "rollback"),
    "rollback": ("save_snapshot", "rollback"),
}


class RacingPair(msgspec.Struct, frozen=True):
    """Two operations, the promise for their race, and an incident where it was broken."""

    one: str
    other: str
    promise: str
    incident: str

    @property
    def name(self) -> str:
        return f"{self.one}-{self.other}"


PAIRS = (
    RacingPair(
        "append",
        "append",
        "Two turns stored at once are both kept, whole, one after the other.",
        "Two workers read the same list, each adds its turn, and the second writes over the first.",
    ),
    RacingPair(
        "append",
        "read",
        "A reader sees all of a turn that is being stored, or nothing of it.",
        "LangChain Redis and Postgres histories: a turn is several writes, and a prompt is built from half of it.",
    ),
    RacingPair(
        "append",
        "trim",
        "A turn stored during a trim is kept or trimmed as a whole; what was trimmed stays away.",
        "LTRIM to a length read before: the turn that came in between is cut off.",
    ),
    RacingPair(
        "append",
        "clear",
        "A turn stored during a clear is kept or cleared as a whole; what was cleared stays away.",
        "A worker writes back the list it had read before the user pressed reset: the conversation is back.",
    ),
    RacingPair(
        "append",
        "snapshot",
        "A snapshot taken while a turn is stored holds all of the turn or nothing of it, and the turn is kept.",
        "A snapshot copies rows while a turn is half-way in: rolling back restores half a turn.",
    ),
    RacingPair(
        "append",
        "rollback",
        "A turn stored during a rollback is kept or dropped as a whole, and the rest is the snapshot's.",
        "A rollback deletes and inserts in two steps: a turn in between sits in the middle of the past.",
    ),
    RacingPair(
        "read",
        "trim",
        "A reader during a trim sees the session before it or after it.",
        "A trim that deletes all and inserts the rest: a prompt is built from an empty history.",
    ),
    RacingPair(
        "read",
        "clear",
        "A reader during a clear sees the session before it or after it.",
        "A clear that deletes row by row: a prompt begins with an answer to a question that is gone.",
    ),
    RacingPair(
        "read",
        "snapshot",
        "Taking a snapshot changes nothing for a reader, not even for a moment.",
        "A snapshot that renames the table and copies it back: for a moment there is no conversation.",
    ),
    RacingPair(
        "read",
        "rollback",
        "A reader during a rollback sees the session before it or after it.",
        "A rollback that empties the table first: the bot greets a customer of three years as a new one.",
    ),
    RacingPair(
        "trim",
        "trim",
        "Of two trims at once both hold: what either has trimmed stays away.",
        "A trim writes back the list it had read: what the stricter trim removed is there again.",
    ),
    RacingPair(
        "trim",
        "clear",
        "A trim during a clear leaves the session cleared.",
        "A trim writes back the list it had read: what was cleared, for privacy, is there again.",
    ),
    RacingPair(
        "trim",
        "snapshot",
        "A snapshot taken during a trim holds the session before it or after it.",
        "A snapshot taken while rows are being deleted: rolling back restores a history with holes.",
    ),
    RacingPair(
        "trim",
        "rollback",
        "A trim during a rollback: one comes after the other, whichever it is.",
        "A trim computed on the rows before the rollback deletes rows that the rollback brought back.",
    ),
    RacingPair(
        "clear",
        "clear",
        "Two clears at once leave an empty session that takes the next turn.",
        "A counter of cleared rows is added up twice: the next turns are hidden, though they were acknowledged.",
    ),
    RacingPair(
        "clear",
        "snapshot",
        "A snapshot taken during a clear holds the session before it or after it.",
        "A clear takes the snapshot that is being written along: the safety net is gone with what it was for.",
    ),
    RacingPair(
        "clear",
        "rollback",
        "A clear during a rollback: one comes after the other, whichever it is.",
        "A clear deletes half of what a rollback is bringing back: a conversation begins in the middle.",
    ),
    RacingPair(
        "snapshot",
        "snapshot",
        "Two snapshots taken at once are two: each has its handle, and each can be rolled back to.",
        "Ids from a counter in memory: the second snapshot is written over the first.",
    ),
    RacingPair(
        "snapshot",
        "rollback",
        "A snapshot taken during a rollback holds the session before it or after it.",
        "A rollback deletes all that is later than its snapshot, also the one that is being taken.",
    ),
    RacingPair(
        "rollback",
        "rollback",
        "Of two rollbacks at once, one comes after the other: the session is one of the two states.",
        "Two operators roll back to two snapshots at once: the session holds both, mixed.",
    ),
)


class RaceSession:
    """A session for one race, and the steps of its two operations."""

    def __init__(self, kit: Kit, reader: Instance, *, rollbacks: int) -> None:
        """Two turns, two more, one more; with a snapshot after each two, where there will be a rollback."""
        self._kit = kit
        self._session = kit.session()
        size = len(kit.turn())
        self._most = [3 * size, 2 * size]
        steps: list[Step] = []
        for number in range(2):
            steps += (Step("append", self._session, (kit.turn(),)) for _ in range(2))
            if number < rollbacks:
                steps.append(Step("save_snapshot", self._session))
        steps.append(Step("append", self._session, (kit.turn(),)))
        values = reader.values(*steps)
        self._snapshots = [value for step, value in zip(steps, values, strict=True) if step.op == "save_snapshot"]

    def race(self, stopped: str, passing: str) -> Race:
        return Race(self._session, (self._step(stopped),), (self._step(passing),))

    def _step(self, operation: str) -> Step:
        match operation:
            case "append":
                return Step("append", self._session, (self._kit.turn(),))
            case "trim":
                return Step("trim", self._session, (self._most.pop(0),))
            case "snapshot":
                return Step("save_snapshot", self._session)
            case "rollback":
                return Step("rollback", self._session, (self._snapshots.pop(),))
            case _:
                return Step(operation, self._session)


def _check_afterwards(kit: Kit, reader: Instance, session: str, ended: list[Ended]) -> None:
    """Check that the session takes the next turn, and that every snapshot can be rolled back to."""
    reader.values(Step("read", session), Step("append", session, (kit.turn(),)), Step("read", session))
    handles = [outcome.value for step, outcome in ended if step.op == "save_snapshot" and outcome.ok]
    kit.check(len(handles) == len(set(map(str, handles))), f"two snapshots have one handle: {handles}", session=session)
    for handle in handles:
        reader.rollback(session, handle)
        reader.read(session)


def _check_that_reads_are_answered(kit: Kit, sweep: Sweep) -> None:
    """Check that most readers are answered. In a race a read may be refused; if most are, nobody reads while others
    write. (A reader that waits for a lock is answered: the stopped call goes on after a moment.)"""
    reads = [(step, outcome) for step, outcome in sweep.passed if step.op == "read"]
    refused = [(step, outcome) for step, outcome in reads if not outcome.ok]
    if len(reads) >= LEAST_POINTS and 2 * len(refused) > len(reads):
        step, outcome = refused[0]
        story = f"of {len(reads)} reads while another call was under way, {len(refused)} raised: {outcome.fault}"
        kit.broken(story, session=step.session)


def _register(pair: RacingPair) -> None:
    needs = dict.fromkeys(("appends", "processes|threads|tasks", *NEEDS[pair.one], *NEEDS[pair.other]))

    @registry.clause(pair.name, pair.promise, incident=pair.incident, needs=needs, weight=3)
    def test(kit: Kit) -> None:
        both = list(dict.fromkeys([(pair.one, pair.other), (pair.other, pair.one)]))
        for mode in modes(kit):
            sweep = Sweep(kit, mode)
            # A quick run takes one direction, chosen by the seed; a replay takes both.
            for stopped, passing in [kit.dice.choice(both)] if kit.quick and kit.only is None else both:
                sweep.run(partial(_prepare, kit, stopped, passing), partial(_check_afterwards, kit))
            kit.notes.append(sweep.describe())
            _check_that_reads_are_answered(kit, sweep)
        kit.judge(least=10)


def _prepare(kit: Kit, stopped: str, passing: str, reader: Instance) -> Race:
    return RaceSession(kit, reader, rollbacks=[stopped, passing].count("rollback")).race(stopped, passing)


for _pair in PAIRS:
    _register(_pair)
