"""Interleaving: a caller is stopped at a point, and another one runs meanwhile, or the first one is cancelled there."""

from __future__ import annotations

import asyncio
import threading

from everturn.testing.races.breakpoints import Breakpoint, PausableCoroutine
from everturn.testing.workers.callers import Callers, ResultThread
from everturn.testing.workers.instance import LocalInstance
from everturn.testing.workers.messages import Cancel, Done, Interleave, Interleaved, Outcome


class Interleaving:
    """Stops callers at await points, driver calls or instructions, as a job says."""

    def __init__(self, callers: Callers, breakpoint_: Breakpoint) -> None:
        self._callers = callers
        self._breakpoint = breakpoint_

    def run(self, job: Interleave) -> Interleaved:
        """Stop caller A at a point, let caller B through, and let A go on."""
        if job.by == "awaits":
            instance = self._callers.instances[job.slot]
            return instance.run(self._interleave_tasks(instance, job))
        return self._interleave_threads(job)

    async def _interleave_tasks(self, instance: LocalInstance, job: Interleave) -> Interleaved:
        b: asyncio.Task[tuple[Outcome, ...]] | None = None
        blocked = False
        passing = self._callers.instances[job.passing_slot or job.slot]

        async def between() -> None:
            nonlocal b, blocked
            b = asyncio.ensure_future(self._callers.take_steps_awaited(passing, job.b, job.record))
            _, pending = await asyncio.wait({b}, timeout=job.patience)
            blocked = bool(pending)

        a = await PausableCoroutine(self._callers.take_steps_awaited(instance, job.a, job.record), job.n, between)
        at = None if b is None else f"suspension {job.n}"
        if b is None:
            b = asyncio.ensure_future(self._callers.take_steps_awaited(passing, job.b, job.record))
        return Interleaved(a, await b, at, blocked)

    def cancel(self, job: Cancel) -> Done:
        """Cancel a caller at a point."""
        instance = self._callers.instances[job.slot]
        return instance.run(self._cancel(instance, job))

    async def _cancel(self, instance: LocalInstance, job: Cancel) -> Done:
        async def now() -> None:
            task.cancel()  # as from outside: it takes effect where the coroutine awaits

        async def caller() -> tuple[tuple[Outcome, ...], int]:
            outcomes = await pausable
            return outcomes, pausable.passed

        pausable = PausableCoroutine(self._callers.take_steps_awaited(instance, job.caller, job.record), job.n, now)
        task = asyncio.ensure_future(caller())
        outcomes, passed = await task
        return Done((outcomes,), passed)

    def _interleave_threads(self, job: Interleave) -> Interleaved:
        stopped, go_on = threading.Event(), threading.Event()
        at: list[str] = []

        def at_stop(_n: int, name: str) -> None:
            at.append(name)
            stopped.set()
            go_on.wait()

        def run_a() -> tuple[Outcome, ...]:
            with self._callers.instance_for(job.slot, job.own) as instance:
                if job.by == "opcodes":
                    self._breakpoint.watch_instructions()
                else:
                    self._breakpoint.watch_threads()
                self._breakpoint.arm(job.n, at_stop)
                try:
                    return self._callers.take_steps(instance, job.a, job.record)
                finally:
                    self._breakpoint.disarm()
                    self._breakpoint.unwatch_instructions()
                    self._breakpoint.unwatch()
                    stopped.set()

        def run_b() -> tuple[Outcome, ...]:
            with self._callers.instance_for(job.slot, job.own) as instance:
                return self._callers.take_steps(instance, job.b, job.record)

        a = ResultThread(run_a)
        stopped.wait()
        b = ResultThread(run_b)
        b.join(job.patience if at else None)
        blocked = b.is_alive()
        go_on.set()
        return Interleaved(a.result(), b.result(), at[0] if at else None, blocked)
