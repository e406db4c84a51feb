"""Plans the compaction of a session, as steps that are each a short transaction. Pure: it sends nothing.

The plan is made from one look at the session (survey_v1), without a lock: an entry that nothing can reach then, nothing
reaches later, because a head only moves to a snapshot, to an undo step, or on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from everturn.backends._shared.verification import damaged_session, unreadable_session
from everturn.core.paths import Range, Reach, State, minus, out_of, reach
from everturn.model import Compaction

T = TypeVar("T")
STEP = 500  # rows deleted in one transaction: a session's writers wait for no more than that
ROUNDS = 3
JUMPS = 100  # each of these is three statements
LEFTOVERS = (  # of an erasure
    "dead rows in the files of the tables, here and on standbys, until VACUUM",
    "the WAL and its archive, until they are recycled",
)

_State = tuple[int, int, int, tuple[int, ...], int]


class CompactionStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: the type work_v1 of schema/tables/001.sql. A field that is left out is NULL there."""

    unreadable: tuple[int, ...] | None = None
    firsts: tuple[int, ...] | None = None
    lasts: tuple[int, ...] | None = None
    summaries: bool = False
    jumps: tuple[int, ...] | None = None
    forget_to: int | None = None
    forget_beyond: int | None = None


class _Survey(msgspec.Struct, frozen=True):
    """The answer of survey_v1 about a session."""

    no: int
    version: int
    last_seq: int
    last_jump: int
    roots: list[_State]
    jumps: list[tuple[int, int, int]] | None
    remembered: list[tuple[int, int, int, int, tuple[int, ...], int]] | None
    forgets: bool


class CompactionPlan:
    """The steps that are left for one life of a session."""

    def __init__(self, no: int, seen: tuple[int, int], steps: Iterator[CompactionStep]) -> None:
        """`seen` is the version of the session that it was made for, and the number of its roots."""
        self.no = no
        self.rounds = 1
        self.seen = seen
        self._steps = deque(steps)
        self._entries = 0

    @property
    def is_done(self) -> bool:
        return not self._steps

    def is_enough(self, later: CompactionPlan) -> bool:
        """Whether this plan, which is done, needs no later one: the session has not changed since it was made.

        Where others only append, it has, for ever: then a few looks are enough.
        """
        return later.seen == self.seen or (self._entries == 0 and self.rounds >= ROUNDS)

    def next_step(self) -> str:
        """The next step, as compact_v1 takes it."""
        return msgspec.json.encode(self._steps[0]).decode()

    def made(self, row: Sequence[int]) -> Compaction:
        """Take in the row of compact_v1 for the step, and go on to the next one when nothing is left of it."""
        sessions, entries, size, _, looked, last = row
        step = self._steps[0]
        self._entries += entries
        if sessions == 0:  # the life is over
            self._steps.clear()
        elif looked < STEP:
            self._steps.popleft()
        elif step.forget_beyond is not None:
            self._steps[0] = CompactionStep(forget_to=step.forget_to, forget_beyond=last)
        return Compaction(sessions, entries, size)


def plan(session_id: str, told: str) -> CompactionPlan:
    """Make the plan from the answer of survey_v1. Raises CorruptEntry for a damaged session: nothing is reclaimed."""
    try:
        survey = msgspec.json.decode(told, type=_Survey)
    except msgspec.MsgspecError as exc:
        raise unreadable_session(session_id, exc) from exc
    prior = 0
    for seq, after, named in survey.jumps or ():
        if named != prior or not 0 <= after < seq:
            raise damaged_session(session_id, f"the jump before seq {seq} is lost or damaged")
        prior = seq
    if prior != survey.last_jump:
        raise damaged_session(session_id, "its last jump is lost")
    return CompactionPlan(survey.no, (survey.version, len(survey.roots)), _steps(survey))


def _steps(survey: _Survey) -> Iterator[CompactionStep]:
    jumps = [(seq, after) for seq, after, _ in survey.jumps or ()]
    needed = reach([State(*state) for state in survey.roots], jumps)
    remembered = survey.remembered or []
    lost = out_of(needed, [State(*state[1:]) for state in remembered], jumps)
    # Before the first entry goes: versions that show it can no longer be read.
    forget_to = survey.version - 1024
    if survey.forgets:
        yield CompactionStep(forget_to=forget_to)
    gone = (version for (version, *_), is_lost in zip(remembered, lost, strict=True) if is_lost)
    for versions in _batches(gone, STEP):
        yield CompactionStep(unreadable=versions)
    yield from _entries(survey, needed)
    on_the_way = {seq for seq, _ in needed.jumps}
    for seqs in _batches((seq for seq, _ in jumps if seq not in on_the_way), JUMPS):
        yield CompactionStep(jumps=seqs)
    if survey.forgets:
        yield CompactionStep(forget_to=forget_to, forget_beyond=-1)


def _batches(items: Iterator[T], size: int) -> Iterator[tuple[T, ...]]:
    while some := tuple(islice(items, size)):
        yield some


def _entries(survey: _Survey, needed: Reach) -> Iterator[CompactionStep]:
    """Ranges of entries that no root shows: with their summaries, or, where a trim hid them, without."""
    unreachable = minus([(1, survey.last_seq)], needed.whole)
    yield from _ranges(minus(unreachable, needed.summaries), summaries=True)
    yield from _ranges(minus(needed.summaries, needed.whole), summaries=False)


def _ranges(ranges: list[Range], *, summaries: bool) -> Iterator[CompactionStep]:
    for some in _batches(iter(ranges), STEP):
        firsts, lasts = zip(*some, strict=True)
        yield CompactionStep(firsts=firsts, lasts=lasts, summaries=summaries)
