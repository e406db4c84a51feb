"""Worker process: runs the kit's jobs on instances of the target, and reports.

Target code runs here and nowhere else. Jobs come one at a time; the callers of one job run side by side (callers.py),
or one of them is stopped while another goes on (interleaving.py).
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import msgspec

from everturn.testing.kit.target import Offer, TargetError
from everturn.testing.races.breakpoints import Breakpoint
from everturn.testing.shapes.base import await_if_needed
from everturn.testing.workers.callers import Callers
from everturn.testing.workers.fake_model import FakeModel
from everturn.testing.workers.instance import LocalInstance, Loop, fault_of
from everturn.testing.workers.interleaving import Interleaving
from everturn.testing.workers.messages import (
    Cancel,
    Close,
    Do,
    Done,
    FactoryHook,
    Failed,
    ForkProcess,
    Interleave,
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
        self._breakpoint = Breakpoint()
        self._model = FakeModel(self._pause_model)
        self._callers = Callers(factory, offer, self._model)
        self._interleaving = Interleaving(self._callers, self._breakpoint)
        self._pausing = threading.Lock()  # held during a pause: a thread of the target may pause while its job ends
        self._may_pause = False
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
                self._callers.instances[job.slot] = self._opened(job)
                return self._callers.instances[job.slot].describe()
            case Close():
                if (instance := self._callers.instances.pop(job.slot, None)) is not None:
                    instance.close()
                return Ready()
            case Do():
                return self._do(job)
            case Interleave():
                return self._interleaving.run(job)
            case Cancel():
                return self._interleaving.cancel(job)
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
            self._callers.loop.run(await_if_needed(result))

    def _opened(self, job: Open) -> LocalInstance:
        if job.stop is not None:
            self._breakpoint.arm(job.stop.n, self._at_stop(job.stop))
        try:
            return self._callers.open(job)
        finally:
            self._end_pauses()

    # --- callers -----------------------------------------------------------------------------------------------------

    def _do(self, job: Do) -> Done:
        if job.stop is not None:
            self._breakpoint.arm(job.stop.n, self._at_stop(job.stop))
        self._model.arm(job.model)
        _wait_until(job.start_at)
        try:
            outcomes = self._callers.run(job)
        finally:
            passed = self._end_pauses()
        if job.die:
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(tuple(outcomes), passed, self._model.calls)

    def _end_pauses(self) -> int:
        """Stop counting, and wait until a thread of the target that pauses goes on: its report comes before the job's.
        Returns how many points were passed."""
        passed = self._breakpoint.disarm()
        with self._pausing:
            self._may_pause = False
        return passed

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
        self._callers.take_steps(instance, job.caller, job.record)
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
                self._callers.loop = Loop()  # the parent's threads do not exist in the child
                instance = self._opened(job.opening)
                to_parent.send(self._callers.take_steps(instance, job.child, job.record))
                os.read(parent_done_read, 1)
                to_parent.send(self._callers.take_steps(instance, job.after, job.record))
                instance.close()
            os._exit(0)
        os.close(parent_done_read)
        to_parent.close()
        try:
            parent = self._callers.take_steps(self._callers.instances[job.slot], job.parent, job.record)
            child = _received(from_child)
            self._callers.instances.pop(job.slot).close()
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


def _wait_until(moment: float) -> None:
    if (left := moment - time.monotonic()) > 0:
        time.sleep(left)
