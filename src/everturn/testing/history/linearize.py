"""Searches for a linearization: an order of the calls that explains every read, in sessions with destructive calls.

It walks through time and keeps every possible configuration (`Config`). A call takes effect at the latest when it ends:
then the calls under way are tried before it, in every order that the reads allow. Reads of whole histories leave few
configurations, so the search costs about one pass. Where too many are left it gives up there, says so, and goes on from
an unknown state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from typing import TypeAlias

from everturn.testing.history.order import Before
from everturn.testing.history.parse import NEVER, RecordedCall, SessionCalls, Unit
from everturn.testing.history.read_anomalies import ReadView
from everturn.testing.history.read_rules import Blame
from everturn.testing.history.session_model import Config, ModelState, SessionModel, Snapshots

# Limits on configurations: at one moment, and in all, so that the cost stays linear in the calls.
_AT_ONCE = 1_000
_IN_ALL = 50_000
_PER_CALL = 5
_UNDER_WAY = 8  # after giving up: calls under way, each of which may have happened or not

Configs: TypeAlias = dict[Config, None]

_USES = frozenset({"rollback", "read"})  # calls that use a snapshot


class _TooMany(Exception):
    """More configurations are possible than are worth trying."""


class LinearizationSearch:
    """One search through the calls of a session. `stuck` yields each call that no order explains.

    `gave_up` says whether it gave up somewhere: violations that it found are real, and others may be missed.
    """

    def __init__(
        self,
        session: SessionCalls,
        views: list[ReadView],
        past: list[ReadView],
        before: Before,
        blame: Blame,
        *,
        exact: bool,
    ) -> None:
        self._before = before
        self._exact = exact
        named = {change.snapshot for change in session.changes if change.f == "snapshot" and change.snapshot}
        # Of a snapshot taken before the recording began nothing is known.
        past = [view for view in past if view.read.snapshot in named]
        self._units_of = {view.read: view.units for view in (*views, *past)}
        seen = {unit for units in self._units_of.values() for unit in units}
        units = [
            unit
            for unit in session.units
            if unit not in blame.units
            and not unit.failed
            # An append that was neither acknowledged nor read need not have happened. A replace still removes.
            and (unit.acknowledged or unit in seen or unit.call.f == "replace")
        ]
        unseen = {unit for unit in units if unit not in seen and not unit.retries}
        unit_of = {call: unit for unit in units for call in unit.calls if call.outcome != "fail"}
        trims = any(change.f == "trim" for change in session.changes)
        self._choices = trims or session.unordered
        doubtful = [unit for unit in session.units if not unit.failed and not unit.acknowledged and unit not in seen]
        self.model = SessionModel(unit_of, unseen, named, doubtful=doubtful, trims=trims, exact=exact)
        # How often each snapshot is still to be used; one that never is need not be taken.
        self._uses = Counter(call.snapshot for call in (*session.changes, *self._units_of) if call.f in _USES)
        changes = [change for change in session.changes if change.f != "snapshot" or self._uses[change.snapshot]]
        self._calls: list[RecordedCall] = list(dict.fromkeys((*unit_of, *changes, *self._units_of)))
        self._left = _IN_ALL + _PER_CALL * len(self._calls)
        self._finished: set[Unit] = set()  # units whose call is over
        self._pending: dict[RecordedCall, None] = {}  # changes under way
        self._reading: dict[RecordedCall, tuple[Unit, ...]] = {}  # reads under way
        # Dicts, because sets have no order: the same history must get the same verdict.
        self.configs: Configs = {self.model.start(): None}  # empty after giving up
        self.tried: Configs = {}
        self.gave_up = False

    def stuck(self) -> Iterator[RecordedCall]:
        """Yield each call that cannot have happened. Before going on, call `skip` or `accept` for it."""
        for call, ends in _moments(self._calls):
            if not ends:
                self._begin(call)
                continue
            try:
                possible = self._end(call)
            except _TooMany:
                self.gave_up = True
                if self._exact:
                    return  # the search that is not exact makes fewer configurations
                self._give_up()
                possible = self._end(call)
            if not possible:
                yield call
            if self._left < 0:
                self.gave_up = True
                return

    def units(self, read: RecordedCall) -> tuple[Unit, ...]:
        return self._units_of[read]

    def blocked_by(self, call: RecordedCall) -> Unit | None:
        """Find a unit that reads show before this append's, and that has not been written."""
        done: frozenset[RecordedCall] = frozenset().union(*(config.done for config in self.configs))
        return self._blocker(self.model.unit_of[call], done)

    def skip(self, call: RecordedCall) -> None:
        """Go on as if the call had not been made."""
        self._drop(call)

    def accept(self, call: RecordedCall) -> None:
        """Go on from the state that a read saw, or that a change asked for."""
        config = next(iter(self.configs))
        if call.f == "read":
            units = self._units_of[call]
            written = {write for unit in units for write in unit.calls if write in self._pending}
            accepted = self.model.read(config, call, self.model.seen(units), config.snapshots)
            self.configs = {accepted._replace(done=accepted.done | written): None}
        else:
            self.configs = dict.fromkeys(self.model.apply(config, call)) or self.configs
        self._drop(call)

    # --- calls begin and end -----------------------------------------------------------------------------------

    def _begin(self, call: RecordedCall) -> None:
        if call.f != "read":
            self._pending[call] = None
            self.configs = {self.model.begin(config, call): None for config in self.configs}
        elif self.configs:
            self._reading[call] = self._units_of[call]
            self.configs = {settled: None for config in self.configs for settled in self._settle(config)}

    def _end(self, call: RecordedCall) -> bool:
        if not self.configs or (call.f == "read" and call not in self._reading):
            self._drop(call)
            self._go_on_from_unknown()
            return True
        reached: Configs = {config: None for config in self.configs if call in config.done}
        if len(reached) < len(self.configs):
            ahead = [config for config in self.configs if call not in config.done]
            straight = self._straight(ahead[0], call) if len(ahead) == 1 else None
            reached |= {straight: None} if straight else self._explore(ahead, call)
        if not reached:
            return False
        self.configs = reached
        self._drop(call)
        return True

    def _drop(self, call: RecordedCall) -> None:
        """Forget a call that is over, and calls without an end that are known to have taken effect."""
        over = {call}
        if len(self.configs) == 1:
            (config,) = self.configs
            over.update(done for done in config.done if done.end == NEVER)
        unused = set()
        for gone in over:
            self._pending.pop(gone, None)
            self._reading.pop(gone, None)
            if gone in self.model.unit_of:
                self._finished.add(self.model.unit_of[gone])
            elif gone.f in _USES and gone.snapshot:
                self._uses[gone.snapshot] -= 1
                if not self._uses[gone.snapshot]:
                    unused.add(gone.snapshot)
        self.configs = {_forget(config, over, unused): None for config in self.configs}

    def _give_up(self) -> None:
        """Forget every configuration, after giving up."""
        self.configs = {}
        self._reading.clear()
        self.model.forget_snapshots()
        # Calls that may never end may have happened or not, and been undone again.
        self._finished.update(
            self.model.unit_of[call] for call in self._pending if call.end == NEVER and call in self.model.unit_of
        )

    def _go_on_from_unknown(self) -> None:
        """Go on from an unknown state, once few calls are under way: each may have happened or not."""
        pending = [call for call in self._pending if call.end != NEVER]
        if not self.configs and len(pending) <= _UNDER_WAY:
            happened = chain.from_iterable(combinations(pending, count) for count in range(len(pending) + 1))
            self.configs = {self.model.unknown(self._pending, frozenset(calls)): None for calls in happened}

    # --- the calls under way take effect -----------------------------------------------------------------------

    def _straight(self, config: Config, goal: RecordedCall) -> Config | None:
        """Find the one configuration in which `goal` has taken effect; None if there may be several.

        With only appends under way, delaying an append rules nothing out. Two units that share a read have an order;
        nothing can be read or kept between two that do not. (Only a later trim could cut between them.)
        """
        if any(call.f != "append" and call not in config.done for call in self._pending):
            return None
        if goal.f == "read":
            missing = len(self._units_of[goal]) - (config.state.node.depth - config.state.lo)
            steps = [unit.call for unit in self._units_of[goal][-missing:]] if missing > 0 else []
        elif any(read not in config.done for read in self._reading):
            return None
        else:
            steps = [goal]
            while (earlier := self._blocker(self.model.unit_of[steps[-1]], config.done)) is not None:
                if earlier.call not in self._pending:
                    return None
                steps.append(earlier.call)
            steps.reverse()
        if self._choices and any(call not in steps for call in self._possible(config, goal)):
            return None
        for step in steps:
            if step not in self._pending or step in config.done:
                return None
            if self._blocker(self.model.unit_of[step], config.done) is not None:
                return None
            settled = self._apply(config, step)
            if len(settled) != 1:
                return None
            (config,) = settled
        return config if goal in config.done else None

    def _explore(self, configs: list[Config], goal: RecordedCall) -> Configs:
        """Find every configuration in which `goal` has just taken effect, with calls under way in any order."""
        reached: Configs = {}
        tried = self.tried = dict.fromkeys(configs)
        while configs:
            config = configs.pop()
            for call in self._possible(config, goal):
                for after in self._apply(config, call):
                    if goal in after.done:
                        reached[after] = None
                    elif after not in tried:
                        tried[after] = None
                        configs.append(after)
            self._left -= 1
            if len(tried) + len(reached) > _AT_ONCE:
                raise _TooMany
        return reached

    def _possible(self, config: Config, goal: RecordedCall) -> Iterator[RecordedCall]:
        """Yield the calls under way that may take effect next."""
        alike: set[tuple[object, ...]] = set()
        for call in self._pending:
            if call in config.done:
                continue
            if call.f == "append":
                waits = self.model.is_unseen(call) and call is not goal
                if not waits and self._blocker(self.model.unit_of[call], config.done) is None:
                    yield call
                continue
            if call.end == NEVER:  # of calls that are alike and need not happen, trying one is enough
                kind = (call.f, call.snapshot, call.invoke.limit, call.values)
                if kind in alike:
                    continue
                alike.add(kind)
            yield call

    def _blocker(self, unit: Unit, done: Iterable[RecordedCall]) -> Unit | None:
        for earlier in self._before.get(unit, ()):
            if earlier not in self._finished and not any(call in done for call in earlier.calls):
                return earlier
        return None

    def _apply(self, config: Config, call: RecordedCall) -> list[Config]:
        after = self.model.apply(config, call)
        if call.end == NEVER:  # it need not have happened, so not if that changes nothing
            after = [other for other in after if other[:2] != config[:2] or other.waiting != config.waiting]
        if not self._reading:
            return after
        return [settled for other in after for settled in self._settle(other)]

    def _settle(self, config: Config) -> list[Config]:
        """Complete the reads under way that this configuration explains. A read that decides a state may also wait."""
        settled = [config]
        for read, units in self._reading.items():
            for present in list(settled):
                if read in present.done:
                    continue
                for state, snapshots in self._explains(present, read, units):
                    if state is present.state and snapshots is present.snapshots and not present.waiting:
                        settled.remove(present)
                    settled.append(self.model.read(present, read, state, snapshots))
        return settled

    def _explains(
        self, config: Config, read: RecordedCall, units: tuple[Unit, ...]
    ) -> list[tuple[ModelState, Snapshots]]:
        """List the (state, snapshots) in which a read can see these units; empty if it cannot."""
        state, snapshots = config[:2]
        if read.snapshot is None:
            matched = self.model.match(state, units)
            return [] if matched is None else [(matched, snapshots)]
        kept = self.model.kept(snapshots, read.snapshot)
        return [(state, after) for past, after in kept if self.model.match(past, units) is not None]


def _forget(config: Config, over: set[RecordedCall], unused: set[str]) -> Config:
    state, snapshots, done, waiting = config
    if unused:
        snapshots = frozenset(pair for pair in snapshots if pair[0] not in unused)
    return Config(state, snapshots, done - over, waiting)


def _moments(calls: list[RecordedCall]) -> list[tuple[RecordedCall, bool]]:
    """Sort begins and ends by time. At one moment begins come first, because such calls overlap."""
    moments = [(call.begin, False, call) for call in calls]
    moments += [(call.end, True, call) for call in calls if call.end != NEVER]
    moments.sort(key=lambda moment: moment[:2])
    return [(call, ends) for _, ends, call in moments]
