"""Judges leases and the changes that name one, by the rows that the store had of them, each from a moment on.

A lease is no change and has no version: the worlds look at its row before and behind every request. Whether it was in
force is told by the store's own clock, as the promise is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from everturn import LeaseHeld, LeaseLost
from everturn.backend import LONGEST_LEASE
from everturn.store.lease_holder import LeaseHolder
from tests.simulation.network import Attempt
from tests.simulation.records import Record, named
from tests.simulation.schedules import Op
from tests.simulation.states import FOREVER

TAKES = {"lease", "renew", "release"}
ROUNDED = 2e-6  # seconds: servers keep the end of a lease in microseconds
Fact = TypeVar("Fact")
Timeline = list[tuple[float, Fact]]


class LeaseRow(NamedTuple):
    """The lease of a session as it is stored. `until` is on the store's clock; 0: it was released.

    `life` is that of the session when it was taken; "" if there was none, or the store need not say.
    """

    token: int
    holder: str
    until: float
    life: str = ""


class Served(NamedTuple):
    """A request that was carried out: the row before it, and the session's facts before and behind it, life first."""

    row: LeaseRow | None
    before: Sequence[object] | None
    after: Sequence[object] | None

    @property
    def continues(self) -> bool:
        """Whether the lease that was there counts: its life is not over."""
        life = "" if self.before is None else self.before[0]
        stays = self.before is None or (self.after is not None and self.after[0] == life)
        return stays and (self.row is None or self.row.life in ("", life))


class LeaseRules:
    """The promises of leases in one world. `look` reads the row of a session; `holders` has the lease of each take."""

    def __init__(
        self,
        now: Callable[[], float],
        clock: Callable[[float], float],
        steps: Callable[[float, float], list[float]],
        find: Callable[..., None],
        look: Callable[[str], LeaseRow | None],
    ) -> None:
        self._now = now
        self._clock = clock
        self._steps = steps
        self._find = find
        self.look = look
        self.holders: dict[int, LeaseHolder] = {}
        self.early = self.late = 0.0  # seconds by which a lease may end before or behind its time
        self.has_replicas = False  # one that was the master may refuse a lease by its own clock
        self._rows: dict[str, Timeline[LeaseRow | None]] = {}
        self._lives: dict[str, Timeline[object]] = {}
        self._by: dict[str, str] = {}  # the host that wrote the latest row of each session

    def note(self, name: str) -> LeaseRow | None:
        """Look at the row of a session, and take note of it if it is another. Returns it."""
        row = self.look(name)
        _add(self._rows.setdefault(name, [(0.0, None)]), self._now(), row)
        return row

    def lost(self) -> None:
        """Look at all rows again: the server has lost the latest of its data, or another one has taken over."""
        for name in list(self._rows):
            self.note(name)

    def served(self, attempt: Attempt, name: str, served: Served, *, is_over: bool) -> None:
        """A request was carried out, just now. `is_over`: the time of the life that was there is over, or may be."""
        op, before, after = attempt.op, served.row, self.note(name)
        life = None if served.after is None else served.after[0]
        _add(self._lives.setdefault(name, [(0.0, None)]), self._now(), life)
        if op.lease and served.after != served.before:
            self._claimed(attempt, name, after, str(life or ""))
        if after == before or (after and before and after[:3] == before[:3]):
            return
        hosts = attempt.host.name, self._by.get(name, "")
        self._by[name] = attempt.host.name
        text = f"{named(op)} made of {before} the lease {after}"
        continues = served.continues and not is_over
        holder = self._holder(op)
        if op.kind not in TAKES:
            if continues and op.kind != "erase":
                self._find("lease touched", text, *hosts)
        elif after is not None and (holder is None or after.holder != holder._holder):
            self._find("lease of another", text, *hosts)
        if before is None or after is None or not continues:
            return
        if after.token < before.token:
            self._find("token fell", text, *hosts)
        if after.holder != before.holder:
            if after.token == before.token:
                self._find("token twice", text, *hosts)
            moment = self._clock(self._now()) + self.early + ROUNDED
            if moment < before.until <= moment + LONGEST_LEASE:
                self._find("two holders", f"{text}, {before.until - moment:.3f} s before that had ended", *hosts)

    def _claimed(self, attempt: Attempt, name: str, row: LeaseRow | None, life: str) -> None:
        """A change that names a lease was applied, just now: it must be that of the row, and in force."""
        lease = self.holders.get(attempt.op.lease)
        if lease is None:
            return
        claim = lease._token, lease._holder
        text = f"{named(attempt.op)} was applied with the lease {claim}; the store has {row}"
        hosts = attempt.host.name, self._by.get(name, "")
        if row is None or row[:2] != claim or row.life not in ("", life):
            self._find("fence broken", text, *hosts)
        elif row.until + self.late + ROUNDED < self._clock(self._now()):
            self._find("fence broken", f"{text}, whose time is over", *hosts)

    def answered(self, record: Record, *, is_over: bool) -> None:
        """Judge what the caller of a lease, or of a change that names one, was told.

        `is_over`: there was no session in the time of the call, or may have been none.
        """
        op, lease = record.op, self._holder(record.op)
        if record.end is None or lease is None:
            return
        rows = list(_between(self._rows.get(op.session, [(0.0, None)]), record.begin, record.end))
        ours = [row for _, _, row in rows if row is not None and row.holder == lease._holder]
        hosts = record.host, self._by.get(op.session, "")
        text = f"{named(op)}: {record.error or record.result}; in its time the store had {[row for _, _, row in rows]}"
        if record.outcome == "ok" and op.kind in ("lease", "renew"):
            if not any(row.token == record.result for row in ours):
                self._find("not done", text, *hosts)
        elif isinstance(record.error, LeaseHeld):
            if all(row is None or row.holder == lease._holder or not row.until for _, _, row in rows):
                self._find("refused for nothing", text, *hosts)
        elif isinstance(record.error, LeaseLost) and not (is_over or self.has_replicas):
            lives = [life for _, _, life in _between(self._lives.get(op.session, []), record.begin, record.end)]
            claim = lease._token, lease._holder
            if all(row and row[:2] == claim and self._is_in_force(row, *time, lives) for *time, row in rows):
                self._find("refused for nothing", text, *hosts)

    def _is_in_force(self, row: LeaseRow, first: float, last: float, lives: Iterable[object]) -> bool:
        """Whether a lease was in force all the time, for sure."""
        moments = [self._clock(moment) for moment in (first, last, *self._steps(first, last))]
        in_time = all(moment + self.early + ROUNDED < row.until <= moment + LONGEST_LEASE for moment in moments)
        return in_time and len(set(lives)) < 2 and all(row.life in ("", life or "") for life in lives)

    def _holder(self, op: Op) -> LeaseHolder | None:
        return self.holders.get(op.id if op.kind == "lease" else op.of if op.kind in TAKES else op.lease)


def _add(timeline: Timeline[Fact], now: float, fact: Fact) -> None:
    if timeline[-1][1] != fact:
        timeline.append((now, fact))


def _between(timeline: Timeline[Fact], begin: float, end: float) -> Iterator[tuple[float, float, Fact]]:
    """The facts from one moment to another, each with its first and last moment in that time."""
    for place, (since, fact) in enumerate(timeline):
        until = timeline[place + 1][0] if place + 1 < len(timeline) else FOREVER
        if until >= begin and since <= end:
            yield max(begin, since), min(end, until), fact
