"""Owns the search: whether some order of the calls explains every read, where things were taken away.

It walks through time and keeps every present that is possible, each a `Config`. A call takes effect at the latest when
it ends: then the calls under way are tried before it, in every order that the reads allow. Reads of whole histories
leave few presents, so it costs about one pass. Where they leave too many it gives up, and says so: no verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from everturn.testing.history.calls import NEVER, Call, Session, Unit
from everturn.testing.history.order import Before
from everturn.testing.history.rules import Blame
from everturn.testing.history.sight import Sight
from everturn.testing.history.states import Config, Model, Snapshots, State

# Before giving up: presents tried at one moment, and in all, so that the whole stays linear in the calls.
_AT_ONCE = 2_000
_IN_ALL = 50_000
_PER_CALL = 20


class GaveUp(Exception):
    """More presents are possible than are worth trying."""


class Search:
    """One walk through the calls of a session. `stuck` yields each call that no order explains."""

    def __init__(
        self, session: Session, sights: list[Sight], past: list[Sight], before: Before, blame: Blame, *, exact: bool
    ) -> None:
        self._before = before
        named = {change.snapshot for change in session.changes if change.f == "snapshot" and change.snapshot}
        # Of a snapshot taken before the recording began nothing is known.
        past = [sight for sight in past if sight.read.snapshot in named]
        self._units_of = {sight.read: sight.units for sight in (*sights, *past)}
        self._past = {sight.read: sight.read.snapshot or "" for sight in past}
        seen = {unit for units in self._units_of.values() for unit in units}
        units = [
            unit
            for unit in session.units
            if unit not in blame.units and not unit.failed and (unit.acknowledged or unit in seen)
        ]
        unseen = {unit for unit in units if unit not in seen and not unit.retries}
        unit_of = {call: unit for unit in units for call in unit.calls if call.outcome != "fail"}
        self._trims = any(change.f == "trim" for change in session.changes)
        self.model = Model(unit_of, unseen, named, trims=self._trims, exact=exact)
        users = [call for call in (*session.changes, *self._past) if call.f != "snapshot" and call.snapshot]
        self._users = Counter(call.snapshot for call in users)  # who is still to use each snapshot
        changes = [change for change in session.changes if change.f != "snapshot" or self._users[change.snapshot]]
        self._calls: list[Call] = list(dict.fromkeys((*unit_of, *changes, *self._units_of)))
        self._left = _IN_ALL + _PER_CALL * len(self._calls)
        self._finished: set[Unit] = set()
        self._pending: dict[Call, None] = {}  # changes under way
        self._reading: dict[Call, tuple[Unit, ...]] = {}  # reads under way
        self.configs: set[Config] = {self.model.start()}
        self.tried: set[Config] = set()

    def stuck(self) -> Iterator[Call]:
        """Each call that cannot have happened. Before going on, call `skip` or `accept` for it. Raises GaveUp."""
        for call, ends in _moments(self._calls):
            if not ends:
                self._begin(call)
            elif not self._end(call):
                yield call

    def units(self, read: Call) -> tuple[Unit, ...]:
        return self._units_of[read]

    def blocked_by(self, call: Call) -> Unit | None:
        """A unit that reads show before this append's, and that has not been written."""
        done: frozenset[Call] = frozenset().union(*(config.done for config in self.configs))
        return self._blocker(self.model.unit_of[call], done)

    def skip(self, call: Call) -> None:
        """Go on as if the call had not been made."""
        self._drop(call)

    def accept(self, call: Call) -> None:
        """Go on from what a read saw, or a change was to do, however it came about."""
        config = next(iter(self.configs))
        if call.f == "read":
            units = self._units_of[call]
            written = {write for unit in units for write in unit.calls if write in self._pending}
            self.configs = {Config(self.model.seen(units), config.snapshots, config.done | written)}
        else:
            self.configs = {
                Config(state, snapshots, config.done | {call}) for state, snapshots in self.model.apply(config, call)
            } or self.configs
        self._drop(call)

    def _begin(self, call: Call) -> None:
        if call.f == "read":
            self._reading[call] = self._units_of[call]
            self.configs = {settled for config in self.configs for settled in self._settle(config)}
        else:
            self._pending[call] = None

    def _end(self, call: Call) -> bool:
        reached = {config for config in self.configs if call in config.done}
        if len(reached) < len(self.configs):
            reached |= self._explore([config for config in self.configs if call not in config.done], call)
        if not reached:
            return False
        self.configs = reached
        self._drop(call)
        return True

    def _drop(self, call: Call) -> None:
        """The call is over: forget it, and those that may never end once it is known that they took effect."""
        over = {call}
        if len(self.configs) == 1:
            (config,) = self.configs
            over |= {done for done in config.done if done.end == NEVER}
        unused = {gone.snapshot for gone in over if gone.f != "snapshot" and self._used(gone.snapshot)}
        self.configs = {_forget(config, over, unused) for config in self.configs}
        for gone in over:
            self._pending.pop(gone, None)
            self._reading.pop(gone, None)
            if gone in self.model.unit_of:
                self._finished.add(self.model.unit_of[gone])

    def _used(self, name: str | None) -> bool:
        """Count one use of a snapshot; whether it was the last."""
        self._users[name] -= name is not None
        return name is not None and self._users[name] == 0

    def _explore(self, configs: list[Config], goal: Call) -> set[Config]:
        """Every present in which `goal` has just taken effect, from calls under way in any order."""
        reached: set[Config] = set()
        tried = self.tried = set(configs)
        while configs:
            config = configs.pop()
            for call in self._possible(config, goal):
                for after in self._apply(config, call):
                    if goal in after.done:
                        reached.add(after)
                    elif after not in tried:
                        tried.add(after)
                        configs.append(after)
            self._left -= 1
            if len(tried) + len(reached) > _AT_ONCE or self._left < 0:
                raise GaveUp
        return reached

    def _possible(self, config: Config, goal: Call) -> Iterator[Call]:
        """The calls under way that may take effect next."""
        alike: set[tuple[object, ...]] = set()
        for call in self._pending:
            if call in config.done:
                continue
            if call.f == "append":
                # Unseen units only spoil reads: without trims, later is better, until the call ends or all is cleared.
                waits = self._unseen(call) and not self._trims and call is not goal
                if not waits and self._blocker(self.model.unit_of[call], config.done) is None:
                    yield call
                continue
            if call.end == NEVER:  # of calls that are alike and need not happen, trying one is enough
                kind = (call.f, call.snapshot, call.invoke.limit, call.values)
                if kind in alike:
                    continue
                alike.add(kind)
            yield call

    def _unseen(self, append: Call) -> bool:
        return self.model.unit_of[append] in self.model.unseen

    def _blocker(self, unit: Unit, done: Iterable[Call]) -> Unit | None:
        for earlier in self._before.get(unit, ()):
            if earlier not in self._finished and earlier.call not in done:
                return earlier
        return None

    def _apply(self, config: Config, call: Call) -> Iterator[Config]:
        done = config.done | {call}
        if call.f in {"clear", "rollback", "replace", "erase", "undo"}:
            # Unseen units under way are best placed right before: they are gone at once.
            done |= {write for write in self._pending if write.f == "append" and self._unseen(write)}
        for state, snapshots in self.model.apply(config, call):
            if call.end == NEVER and state == config.state and snapshots == config.snapshots:
                continue  # it need not have happened, and changes nothing
            yield from self._settle(Config(state, snapshots, done))

    def _settle(self, config: Config) -> list[Config]:
        """The present, with the reads under way that it explains. A read that would decide something may also wait."""
        settled = [config]
        for read, units in self._reading.items():
            for present in list(settled):
                if read in present.done:
                    continue
                for state, snapshots in self._explains(present, read, units):
                    if state is present.state and snapshots is present.snapshots:
                        settled.remove(present)
                    settled.append(Config(state, snapshots, present.done | {read}))
        return settled

    def _explains(self, config: Config, read: Call, units: tuple[Unit, ...]) -> list[tuple[State, Snapshots]]:
        """What a present is once a read has seen these units in it; empty if it cannot."""
        state, snapshots, _ = config
        if read not in self._past:
            matched = self.model.match(state, units)
            return [] if matched is None else [(matched, snapshots)]
        kept = self.model.kept(snapshots, self._past[read])
        return [(state, after) for past, after in kept if self.model.match(past, units) is not None]


def _forget(config: Config, over: set[Call], unused: set[str | None]) -> Config:
    state, snapshots, done = config
    if unused:
        snapshots = frozenset(pair for pair in snapshots if pair[0] not in unused)
    return Config(state, snapshots, done - over)


def _moments(calls: list[Call]) -> list[tuple[Call, bool]]:
    """Begins and ends in the order of time; at one moment begins come first, for then the calls overlap."""
    moments = [(call.begin, False, call) for call in calls]
    moments += [(call.end, True, call) for call in calls if call.end != NEVER]
    moments.sort(key=lambda moment: moment[:2])
    return [(call, ends) for _, ends, call in moments]
