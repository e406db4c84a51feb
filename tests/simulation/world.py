"""A world: clients that run the real store over something simulated, with a judge that sees all of it.

A subclass has the servers or files below the store: redis_world.py, sqlite_world.py, postgres_world.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from everturn import Summary
from everturn.backend import Backend, Query, Status, drive
from everturn.core.prompts import is_in_view
from everturn.errors import CorruptEntry
from everturn.store.entry_reader import EntryReader
from everturn.store.lease_holder import LeaseHolder
from everturn.store.operations import Operations
from everturn.store.options import Settings
from tests.simulation import histories
from tests.simulation.hosts import EPOCH, Clock, Host, simulated_time
from tests.simulation.judge import Judge
from tests.simulation.leases import LeaseRow
from tests.simulation.network import Deliveries
from tests.simulation.records import Finding, Record, Stored, described, message, outcome_of
from tests.simulation.scheduler import Endless, Scheduler, Task
from tests.simulation.schedules import Fault, Op, Schedule

OBSERVED = 30.0  # seconds that the observer would wait: nothing makes it


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule. With `deliveries`, those of its exchanges, it runs the same again."""

    schedule: Schedule
    findings: tuple[Finding, ...]
    story: tuple[tuple[float, str, str], ...]
    deliveries: dict[str, Any]
    calls: int
    answered: int  # of them: a world in which nothing works proves nothing

    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}


class World(ABC):
    """Everything of one schedule. Used once."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.scheduler = Scheduler()
        self.deliveries = Deliveries(schedule)
        self.story: list[tuple[float, str, str]] = []
        self.observer = Host(self.scheduler, "observer", Clock(0.0), Clock(EPOCH))
        self.hosts = [
            Host(
                self.scheduler,
                f"process {number}",
                Clock(1000.0 * number, client.rate),
                Clock(EPOCH + client.ahead, client.rate),
            )
            for number, client in enumerate(schedule.clients, 1)
        ]
        self.has_leases = any(op.kind in ("lease", "begin") for op in schedule.ops)
        self.judge = Judge(
            schedule.ttl,
            lambda: self.scheduler.now,
            self.store_time,
            self.peek,
            self.clock_steps,
            self.peek_effects if self.has_leases else None,
            self.lease_row if self.has_leases else lambda _: None,
        )
        self._snapshots: dict[int, str] = {}
        self._leases: dict[int, LeaseHolder] = {}  # by the calls that took them
        self._attempts: dict[int, int] = {}  # of effects, by the calls that began them
        self._turns: dict[str, list[int]] = {}

    # --- what a subclass has -----------------------------------------------------------------------------------------

    @abstractmethod
    def backend_for(self, host: Host) -> Backend: ...

    @abstractmethod
    def observe(self) -> Backend:
        """A backend that reads what is stored right now, past everything that is simulated."""

    @abstractmethod
    def lease_row(self, name: str) -> LeaseRow | None:
        """The lease of a session as it is stored right now."""

    @abstractmethod
    def store_time(self, moment: float) -> float:
        """The clock that sessions expire by."""

    def clock_steps(self, first: float, last: float) -> list[float]:
        """The moments at which that clock was stepped."""
        return []

    @abstractmethod
    def inject(self, fault: Fault) -> None:
        """Apply a fault to a server, a file or a network of this world."""

    @abstractmethod
    def quiet(self) -> None:
        """End all faults, before the last look."""

    @abstractmethod
    def close(self) -> None:
        """Release what is not simulated."""

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        tasks: list[Task] = []
        with simulated_time(self.scheduler, self.observer, Random(self.schedule.seed)):
            try:
                for host, client in zip(self.hosts, self.schedule.clients, strict=True):
                    settings = Settings(ttl=self.schedule.ttl, timeout=self.schedule.timeout)
                    operations = Operations(self.backend_for(host), settings, host)
                    tasks += [host.start(self._work(host, operations, task_ops)) for task_ops in client.tasks]
                for fault in self.schedule.faults:
                    self.scheduler.at(fault.at, partial(self._inject_fault, fault))
                try:
                    self.scheduler.run()
                except Endless as exc:
                    self.judge.find("endless", str(exc))
                for host in self.hosts:
                    if host.is_alive and not all(task.is_over for task in host.tasks):
                        self.judge.find("hung", f"{host.name} waits for ever")
                self.quiet()
                self.judge.finish()
                self._verify()
                if not self.judge.findings and histories.fits(self.schedule):
                    for violation in histories.violations(self.judge.records.values()):
                        self.judge.find("history", violation)
            finally:
                for task in tasks:
                    task.close()
                self.close()
        return Outcome(
            self.schedule,
            tuple(self.judge.findings),
            tuple(self.story),
            self.deliveries.drawn,
            len(self.judge.records),
            sum(record.outcome == "ok" for record in self.judge.records.values()),
        )

    def tell(self, who: str, what: str) -> None:
        self.story.append((self.scheduler.now, who, what))

    def _inject_fault(self, fault: Fault) -> None:
        if fault.kind == "kill":
            host = self.hosts[fault.who % len(self.hosts)]
            if host.is_alive:
                self.tell(host.name, "is killed")
                host.kill()
        elif fault.kind == "step_client":
            host = self.hosts[fault.who % len(self.hosts)]
            self.step(host.name, host.wall, fault)
        else:
            self.inject(fault)

    def step(self, who: str, clock: Clock, fault: Fault) -> None:
        """Set a clock, and set it right again after a while if the fault says so."""
        self.tell(who, f"clock is set by {fault.lose:+.1f} s")
        clock.step(self.scheduler.now, fault.lose)
        if fault.seconds:
            self.scheduler.at(self.scheduler.now + fault.seconds, lambda: self._step_back(who, clock, fault.lose))

    def _step_back(self, who: str, clock: Clock, seconds: float) -> None:
        self.tell(who, f"clock is set by {-seconds:+.1f} s")
        clock.step(self.scheduler.now, -seconds)

    async def _work(self, host: Host, operations: Operations, ops: tuple[Op, ...]) -> None:
        for op in ops:
            await host.sleep(op.pause)
            task = self.scheduler.task
            assert task is not None
            call = self._call(operations, op)
            if call is None:
                continue
            now = self.scheduler.now
            allowed = self.schedule.timeout * {"trim": 3, "fold": 9}.get(op.kind, 1)  # they look, and look again
            if op.kind == "fold":
                allowed += op.seconds or 0.0
            record = self.judge.records[op.id] = Record(op, host.name, now, now + allowed / host.monotonic_clock.rate)
            self.tell(host.name, f"calls {op.id}: {described(op)}")
            task.tag = op
            if op.cancel is not None:
                self.scheduler.at(now + op.cancel, partial(self._cancel, task, op))
            try:
                record.result = await call()
            except CancelledError:
                record.outcome = "cancelled"
            except Exception as exc:  # noqa: BLE001 - the judge looks at it
                record.outcome, record.error = outcome_of(exc), exc
            else:
                record.outcome = "ok"
            task.tag = None
            record.end = self.scheduler.now
            said = f": {record.error}" if record.error else "" if record.result is None else f": {record.result}"
            self.tell(host.name, f"call {op.id} ends, {record.outcome}{said}")

    def _cancel(self, task: Task, op: Op) -> None:
        if task.tag is op and not task.is_over:
            self.tell(task.host.name, f"call {op.id} is cancelled")
            task.cancel()

    def _call(self, operations: Operations, op: Op) -> Callable[[], Any] | None:
        """The call of an operation; None if what it is about is not there yet."""
        if op.kind in ("rollback", "delete_snapshot", "read_at") and op.of not in self._snapshots:
            return None
        if (op.kind in ("renew", "release") and op.of not in self._leases) or (
            op.lease and op.lease not in self._leases
        ):
            return None
        if op.kind in ("finish", "fail") and op.of and op.of not in self._attempts:
            return None
        return lambda: getattr(self, f"_{op.kind}")(operations, op)

    async def _append(self, operations: Operations, op: Op) -> bool:
        turn = [message(value) for value in op.values]
        receipt = await operations.add_messages(op.session, turn, key=op.key, lease=self._leases.get(op.lease))
        self._turns.setdefault(op.session, []).append(receipt.seqs[-1])
        return receipt.replayed

    async def _replace(self, operations: Operations, op: Op) -> None:
        known = self._turns.get(op.session, [])
        after = known[-op.limit] if 0 < op.limit <= len(known) else 0
        self.judge.replaces(op, after)
        receipt = await operations.replace(op.session, [message(value) for value in op.values], after=after)
        self._turns.setdefault(op.session, []).append(receipt.seqs[-1])

    async def _read(self, operations: Operations, op: Op) -> tuple[Any, ...]:
        return tuple(one.content for one in await operations.get_history(op.session))

    async def _read_at(self, operations: Operations, op: Op) -> tuple[Any, ...]:
        return tuple(one.content for one in await operations.get_history(op.session, at=self._snapshots[op.of]))

    async def _snapshot(self, operations: Operations, op: Op) -> None:
        self._snapshots[op.id] = (await operations.save_snapshot(op.session)).id

    async def _delete_snapshot(self, operations: Operations, op: Op) -> None:
        await operations.delete_snapshot(op.session, self._snapshots[op.of])

    async def _rollback(self, operations: Operations, op: Op) -> None:
        await operations.rollback_to_snapshot(op.session, self._snapshots[op.of])

    async def _undo(self, operations: Operations, op: Op) -> None:
        await operations.undo(op.session, lease=self._leases.get(op.lease))

    async def _trim(self, operations: Operations, op: Op) -> None:
        await operations.trim(op.session, max_messages=op.limit)

    async def _fold(self, operations: Operations, op: Op) -> bool:
        async def summarize(messages: list[Any], earlier: Any) -> str:
            self.tell("model", f"summarizes {len(messages)} messages for call {op.id}")
            await operations.runtime.sleep(op.seconds or 0.0)
            return f"summary {op.id}"

        return await operations.fold(op.session, summarize, max_messages=op.limit) is not None

    async def _clear(self, operations: Operations, op: Op) -> None:
        await operations.clear(op.session, lease=self._leases.get(op.lease))

    async def _context(self, operations: Operations, op: Op) -> tuple[Any, ...]:
        found = await operations.get_context(op.session, heal=False)
        values = tuple(one.content for one in found.messages if one.role == "user")
        return values, tuple(summary.text for summary in found.summaries)[-1:]

    async def _lease(self, operations: Operations, op: Op) -> int:
        lease = self.judge.leases.holders[op.id] = LeaseHolder(op.session, op.seconds or 1.0, "worker")
        await operations.take_lease(lease, 0)
        self._leases[op.id] = lease
        return lease.token

    async def _renew(self, operations: Operations, op: Op) -> int:
        await operations.renew_lease(self._leases[op.of])
        return self._leases[op.of].token

    async def _release(self, operations: Operations, op: Op) -> None:
        await operations.release_lease(self._leases[op.of])

    async def _begin(self, operations: Operations, op: Op) -> tuple[str, int]:
        lease = self._leases.get(op.lease)
        effect = await operations.begin_effect(op.session, op.key or "", repeats=op.limit, lease=lease)
        self._attempts[op.id] = effect.attempt
        return effect.status, effect.attempt

    async def _finish(self, operations: Operations, op: Op) -> None:
        attempt = self.judge.attempts[op.id] = self._attempts.get(op.of, 0)
        lease = self._leases.get(op.lease)
        await operations.finish_effect(op.session, op.key or "", "done", attempt=attempt, lease=lease)

    async def _fail(self, operations: Operations, op: Op) -> None:
        attempt = self.judge.attempts[op.id] = self._attempts.get(op.of, 0)
        lease = self._leases.get(op.lease)
        await operations.fail_effect(op.session, op.key or "", "not done", attempt=attempt, lease=lease)

    async def _erase(self, operations: Operations, op: Op) -> None:
        await operations.erase(op.session)

    async def _set_ttl(self, operations: Operations, op: Op) -> None:
        await operations.set_ttl(op.session, op.seconds)

    async def _fork(self, operations: Operations, op: Op) -> None:
        await operations.fork(op.session, op.target)

    async def _compact(self, operations: Operations, op: Op) -> None:
        await operations.compact(op.session)

    # --- looking -----------------------------------------------------------------------------------------------------

    def peek(self, name: str) -> Stored | None:
        """Read the stored session, for the judge."""
        reader = EntryReader(name)
        try:
            reading = drive(self.observe().read(Query(name), reader.take, self.observer.clock() + OBSERVED))
        except CorruptEntry as exc:
            self.judge.find("damaged", f"what is stored of {name!r} cannot be read: {exc}")
            return None
        if reading.status is not Status.FOUND or reading.session is None:
            return None
        entries = tuple(
            (entry.seq, entry.text)
            for entry in reader.entries
            if not isinstance(entry, Summary) or is_in_view(entry, reading.state)
        )
        return reading.session.life, reading.session.version, entries

    def peek_effects(self, name: str) -> dict[str, tuple[str, int]]:
        """Read the stored effects of a session, for the judge."""
        reading = drive(self.observe().effects(name, self.observer.clock() + OBSERVED))  # type: ignore[attr-defined]
        return {row.key: (row.status, row.attempt) for row in reading.effects}

    def _verify(self) -> None:
        """Ask the store itself whether all is well."""
        operations = Operations(self.observe(), Settings(timeout=OBSERVED), self.observer)
        for name in sorted(self.judge.model.sessions):
            report = drive(operations.verify(name))
            for problem in report.problems:
                self.judge.find("damaged", f"verify of {name!r}: {problem}")
