"""Worker process: runs the kit's jobs on instances of the target, and reports.

Target code runs here and nowhere else. Jobs come one at a time; the callers of one job run side by side.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import msgspec

from everturn.testing.kit.target import Offer, TargetError
from everturn.testing.races.breakpoints import Breakpoint, PausableCoroutine
from everturn.testing.shapes.base import await_if_needed
from everturn.testing.workers.fake_model import FakeModel
from everturn.testing.workers.instance import LocalInstance, Loop, Recorders, fault_of
from everturn.testing.workers.messages import (
    CallerSteps,
    Cancel,
    Close,
    Do,
    Done,
    FactoryHook,
    Failed,
    ForkProcess,
    Interleave,
    Interleaved,
    Job,
    Limit,
    Loaded,
    LosePower,
    Measure,
    Modules,
    Open,
    Outcome,
    Paused,
    PowerOutcome,
    Ready,
    Report,
    Resume,
    SetClock,
    Stop,
)
from everturn.testing.workers.process_limits import ProcessLimits
from everturn.testing.workers.process_usage import measure
from everturn.testing.workers.shifted_clock import ShiftedClock


class Worker:
    """One worker process: its open instances, its event loop, its breakpoint."""

    def __init__(self, pipe: Connection, factory: Callable[..., Any], offer: Offer) -> None:
        self._pipe = pipe
        self._factory = factory
        self._offer = offer
        self._instances: dict[str, LocalInstance] = {}
        self._loop = Loop()
        self._breakpoint = Breakpoint()
        self._model = FakeModel(self._pause_model)
        self._pausing = threading.Lock()  # held during a pause: a thread of the target may pause while its job ends
        self._may_pause = False
        self._recorders = Recorders()
        self._first_modules = frozenset(sys.modules)
        self._limits = ProcessLimits()
        self._clock = ShiftedClock()

    def serve(self, *, watched: bool) -> None:
        """Run jobs until the pipe closes. `watched`: driver calls can be counted, which slows every call."""
        if watched:
            self._breakpoint.watch_threads()
        while True:
            try:
                job: Job = self._pipe.recv()
            except EOFError:
                return
            report: Report
            try:
                report = self._run_job(job)
            except Exception as exc:  # noqa: BLE001 - whatever target code raises is reported
                report = Failed(fault_of(exc), hopeless=isinstance(exc, TargetError))
            self._pipe.send(report)

    def _run_job(self, job: Job) -> Report:
        match job:
            case Open():
                self._instances[job.slot] = self._opened(job)
                return self._instances[job.slot].describe()
            case Close():
                if (instance := self._instances.pop(job.slot, None)) is not None:
                    instance.close()
                return Ready()
            case Do():
                return self._do(job)
            case Interleave():
                return self._interleave(job)
            case Cancel():
                instance = self._instances[job.slot]
                return instance.run(self._cancel(instance, job))
            case Limit():
                self._limits.set(job)
                return Ready()
            case Measure():
                return measure()
            case SetClock():
                self._clock.shift(job.seconds)
                return Ready()
            case ForkProcess():
                return self._fork_process(job)
            case LosePower():
                return self._lose_power(job)
            case Modules():
                return Loaded(tuple(name for name in sys.modules if name not in self._first_modules))
            case FactoryHook():
                self._call_factory_hook(job)
                return Ready()
        raise AssertionError(job)

    def _call_factory_hook(self, job: FactoryHook) -> None:
        function = getattr(self._factory, job.what)
        known = inspect.signature(function).parameters
        first = () if job.session is None else (job.session,)
        options = {name: value for name, value in job.options.items() if name in known}
        result = function(Path(job.where), *first, **options)
        if inspect.isawaitable(result):
            self._loop.run(await_if_needed(result))

    def _opened(self, job: Open) -> LocalInstance:
        if job.stop is not None:
            self._breakpoint.arm(job.stop.n, self._at_stop(job.stop))
        try:
            return LocalInstance(self._factory, self._offer, Path(job.where), job.options, self._loop, self._model)
        finally:
            self._breakpoint.disarm()

    # --- callers -----------------------------------------------------------------------------------------------------

    def _do(self, job: Do) -> Done:
        if job.stop is not None:
            self._breakpoint.arm(job.stop.n, self._at_stop(job.stop))
        self._model.arm(job.model)
        _wait_until(job.start_at)
        try:
            outcomes = self._run_callers(job)
        finally:
            passed = self._breakpoint.disarm()
            with self._pausing:
                self._may_pause = False
        if job.die:
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(tuple(outcomes), passed, self._model.calls)

    def _run_callers(self, job: Do) -> list[tuple[Outcome, ...]]:
        match job.mode:
            case "alone":
                instance = self._instances[job.slot]
                return [self._take_steps(instance, caller, job.record) for caller in job.callers]
            case "tasks":
                return self._instances[job.slot].run(self._run_tasks(job))
            case "threads":
                return self._run_threads(job)

    def _take_steps(self, instance: LocalInstance, caller: CallerSteps, record: str | None) -> tuple[Outcome, ...]:
        recorder = self._recorders.of(record, caller.who)
        return tuple(instance.taken(step, recorder) for step in caller.steps)

    async def _take_steps_awaited(
        self, instance: LocalInstance, caller: CallerSteps, record: str | None
    ) -> tuple[Outcome, ...]:
        recorder = self._recorders.of(record, caller.who)
        return tuple([await instance.take(step, recorder) for step in caller.steps])

    async def _run_tasks(self, job: Do) -> list[tuple[Outcome, ...]]:
        instance = self._instances[job.slot]
        return await asyncio.gather(*(self._take_steps_awaited(instance, caller, job.record) for caller in job.callers))

    def _run_threads(self, job: Do) -> list[tuple[Outcome, ...]]:
        ready = threading.Barrier(len(job.callers))
        running = [_Thread(partial(self._in_thread, job, caller, ready)) for caller in job.callers]
        return [thread.result() for thread in running]

    def _in_thread(self, job: Do, caller: CallerSteps, ready: threading.Barrier) -> tuple[Outcome, ...]:
        with self._instance_for(job.slot, job.own) as instance:
            ready.wait(30)
            return self._take_steps(instance, caller, job.record)

    @contextmanager
    def _instance_for(self, slot: str, own: Open | None) -> Iterator[LocalInstance]:
        if own is None:
            yield self._instances[slot]
            return
        instance = LocalInstance(self._factory, self._offer, Path(own.where), own.options, Loop(), self._model)
        try:
            yield instance
        finally:
            instance.close()

    def _at_stop(self, stop: Stop) -> Callable[[int, str], None]:
        self._may_pause = True

        def pause(n: int, name: str) -> None:
            with self._pausing:
                if self._may_pause:
                    self._pipe.send(Paused(n, name))
                    go_on: Resume = self._pipe.recv()
                    if go_on.clock is not None:
                        self._clock.shift(go_on.clock)

        def die(_n: int, _name: str) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        return pause if stop.action == "pause" else die

    def _pause_model(self) -> None:
        self._pipe.send(Paused(0, "the model"))
        self._pipe.recv()

    # --- two callers, one of them stopped ----------------------------------------------------------------------------

    def _interleave(self, job: Interleave) -> Interleaved:
        if job.by == "awaits":
            instance = self._instances[job.slot]
            return instance.run(self._interleave_tasks(instance, job))
        return self._interleave_threads(job)

    async def _interleave_tasks(self, instance: LocalInstance, job: Interleave) -> Interleaved:
        b: asyncio.Task[tuple[Outcome, ...]] | None = None
        blocked = False
        passing = self._instances[job.passing_slot or job.slot]

        async def between() -> None:
            nonlocal b, blocked
            b = asyncio.ensure_future(self._take_steps_awaited(passing, job.b, job.record))
            _, pending = await asyncio.wait({b}, timeout=job.patience)
            blocked = bool(pending)

        a = await PausableCoroutine(self._take_steps_awaited(instance, job.a, job.record), job.n, between)
        at = None if b is None else f"suspension {job.n}"
        if b is None:
            b = asyncio.ensure_future(self._take_steps_awaited(passing, job.b, job.record))
        return Interleaved(a, await b, at, blocked)

    async def _cancel(self, instance: LocalInstance, job: Cancel) -> Done:
        async def now() -> None:
            task.cancel()  # as from outside: it takes effect where the coroutine awaits

        async def caller() -> tuple[tuple[Outcome, ...], int]:
            outcomes = await pausable
            return outcomes, pausable.passed

        pausable = PausableCoroutine(self._take_steps_awaited(instance, job.caller, job.record), job.n, now)
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
            with self._instance_for(job.slot, job.own) as instance:
                if job.by == "opcodes":
                    self._breakpoint.watch_instructions()
                else:
                    self._breakpoint.watch_threads()
                self._breakpoint.arm(job.n, at_stop)
                try:
                    return self._take_steps(instance, job.a, job.record)
                finally:
                    self._breakpoint.disarm()
                    self._breakpoint.unwatch_instructions()
                    self._breakpoint.unwatch()
                    stopped.set()

        def run_b() -> tuple[Outcome, ...]:
            with self._instance_for(job.slot, job.own) as instance:
                return self._take_steps(instance, job.b, job.record)

        a = _Thread(run_a)
        stopped.wait()
        b = _Thread(run_b)
        b.join(job.patience if at else None)
        blocked = b.is_alive()
        go_on.set()
        return Interleaved(a.result(), b.result(), at[0] if at else None, blocked)

    # --- power -------------------------------------------------------------------------------------------------------

    def _lose_power(self, job: LosePower) -> PowerOutcome:
        from everturn.testing.faults.disks import (
            PowerLossVFS,  # imports apsw, which is safe beside a store that uses it
        )

        disk = PowerLossVFS(f"everturn-kit-{job.n}-{job.moment}")
        disk.cut_at(job.n, moment=job.moment)
        opening = msgspec.structs.replace(job.opening, options={**job.opening.options, "vfs": disk.name})
        try:
            instance = self._opened(opening)
        except Exception:
            if disk.is_on:
                raise
            return PowerOutcome(lost=True)
        self._take_steps(instance, job.caller, job.record)
        lost = not disk.is_on
        if not lost:
            disk.cut()  # a store that syncs too seldom gets this far: now it shows
        return PowerOutcome(lost)

    # --- forks -------------------------------------------------------------------------------------------------------

    def _fork_process(self, job: ForkProcess) -> Done:
        parent_done_read, parent_done_write = os.pipe()
        from_child, to_parent = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                os.close(parent_done_write)
                from_child.close()
                self._pipe.close()
                self._loop = Loop()  # the parent's threads do not exist in the child
                instance = self._opened(job.opening)
                to_parent.send(self._take_steps(instance, job.child, job.record))
                os.read(parent_done_read, 1)
                to_parent.send(self._take_steps(instance, job.after, job.record))
                instance.close()
            os._exit(0)
        os.close(parent_done_read)
        to_parent.close()
        try:
            parent = self._take_steps(self._instances[job.slot], job.parent, job.record)
            child = _received(from_child)
            self._instances.pop(job.slot).close()
        finally:
            os.close(parent_done_write)
            after = _received(from_child)
            from_child.close()
            os.waitpid(pid, 0)
        return Done((parent, child, after))


def _received(from_child: Connection) -> tuple[Outcome, ...]:
    """Receive the next outcomes of a child; none if it has died."""
    try:
        outcomes: tuple[Outcome, ...] = from_child.recv()
    except (EOFError, OSError):
        return ()
    return outcomes


class _Thread(threading.Thread):
    """A thread that runs a function; `result` waits for its value, or raises its error."""

    def __init__(self, function: Callable[[], tuple[Outcome, ...]]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._result: tuple[Outcome, ...] = ()
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as exc:  # noqa: BLE001 - raised by `result`
            self._error = exc

    def result(self) -> tuple[Outcome, ...]:
        self.join()
        if self._error is not None:
            raise self._error
        return self._result


def _wait_until(moment: float) -> None:
    if (left := moment - time.monotonic()) > 0:
        time.sleep(left)
