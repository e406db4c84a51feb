"""A worker process: carries out the kit's orders on instances of the target, and reports.

Target code runs here and nowhere else. Orders come one at a time; lanes within one run side by side.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import resource
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

from everturn.testing.history import Recorder
from everturn.testing.kit.target import Offer, TargetError
from everturn.testing.races.breakpoints import Paced, Trap
from everturn.testing.shapes.base import settled
from everturn.testing.workers.instance import Loop, Subject, fault_of
from everturn.testing.workers.messages import (
    Cancel,
    Close,
    Cut,
    Do,
    Done,
    Duel,
    Dueled,
    Failed,
    Fork,
    Lane,
    Limit,
    Loaded,
    Modules,
    Open,
    Order,
    Outcome,
    Paused,
    Power,
    Ready,
    Report,
    Stop,
    Tell,
)

_LIMITS = {"fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE}


class Worker:
    """What one worker process holds: its instances, its event loop, its trap."""

    def __init__(self, pipe: Connection, factory: Callable[..., Any], offer: Offer) -> None:
        self._pipe = pipe
        self._factory = factory
        self._offer = offer
        self._subjects: dict[str, Subject] = {}
        self._loop = Loop()
        self._trap = Trap()
        self._recorders = _Recorders()
        self._first_modules = frozenset(sys.modules)
        self._first_limits = {what: resource.getrlimit(number) for what, number in _LIMITS.items()}

    def serve(self, *, watched: bool) -> None:
        """Obey until the pipe closes. `watched`: driver calls can be counted, which slows every call."""
        if watched:
            self._trap.watch_threads()
        while True:
            try:
                order: Order = self._pipe.recv()
            except EOFError:
                return
            report: Report
            try:
                report = self._obey(order)
            except Exception as exc:  # noqa: BLE001 - whatever target code raises is reported
                report = Failed(fault_of(exc), hopeless=isinstance(exc, TargetError))
            self._pipe.send(report)

    def _obey(self, order: Order) -> Report:
        match order:
            case Open():
                self._subjects[order.slot] = self._opened(order)
                return self._subjects[order.slot].describe()
            case Close():
                if (subject := self._subjects.pop(order.slot, None)) is not None:
                    subject.close()
                return Ready()
            case Do():
                return self._do(order)
            case Duel():
                return self._duel(order)
            case Cancel():
                subject = self._subjects[order.slot]
                return subject.run(self._cancel(subject, order))
            case Limit():
                self._limit(order)
                return Ready()
            case Fork():
                return self._fork(order)
            case Power():
                return self._power(order)
            case Modules():
                return Loaded(tuple(name for name in sys.modules if name not in self._first_modules))
            case Tell():
                self._tell(order)
                return Ready()
        raise AssertionError(order)

    def _limit(self, order: Limit) -> None:
        soft, hard = self._first_limits[order.what]
        if order.value is not None:
            soft = order.value
            if order.what == "nofile":
                soft += 1 + max(filter(_is_open, [int(entry.name) for entry in Path("/dev/fd").iterdir()]))
        resource.setrlimit(_LIMITS[order.what], (soft, hard))

    def _tell(self, order: Tell) -> None:
        function = getattr(self._factory, order.what)
        known = inspect.signature(function).parameters
        first = () if order.session is None else (order.session,)
        options = {name: value for name, value in order.options.items() if name in known}
        result = function(Path(order.where), *first, **options)
        if inspect.isawaitable(result):
            self._loop.run(settled(result))

    def _opened(self, order: Open) -> Subject:
        if order.stop is not None:
            self._trap.arm(order.stop.n, self._at_stop(order.stop))
        try:
            return Subject(self._factory, self._offer, Path(order.where), order.options, self._loop)
        finally:
            self._trap.disarm()

    # --- lanes -------------------------------------------------------------------------------------------------------

    def _do(self, order: Do) -> Done:
        if order.stop is not None:
            self._trap.arm(order.stop.n, self._at_stop(order.stop))
        _wait_until(order.start_at)
        try:
            lanes = self._lanes(order)
        finally:
            passed = self._trap.disarm()
        if order.die:
            os.kill(os.getpid(), signal.SIGKILL)
        return Done(tuple(lanes), passed)

    def _lanes(self, order: Do) -> list[tuple[Outcome, ...]]:
        match order.mode:
            case "alone":
                subject = self._subjects[order.slot]
                return [self._run(subject, lane, order.record) for lane in order.lanes]
            case "tasks":
                return self._subjects[order.slot].run(self._tasks(order))
            case "threads":
                return self._threads(order)

    def _run(self, subject: Subject, lane: Lane, record: str | None) -> tuple[Outcome, ...]:
        recorder = self._recorders.of(record, lane.who)
        return tuple(subject.taken(step, recorder) for step in lane.steps)

    async def _taken(self, subject: Subject, lane: Lane, record: str | None) -> tuple[Outcome, ...]:
        recorder = self._recorders.of(record, lane.who)
        return tuple([await subject.take(step, recorder) for step in lane.steps])

    async def _tasks(self, order: Do) -> list[tuple[Outcome, ...]]:
        subject = self._subjects[order.slot]
        return await asyncio.gather(*(self._taken(subject, lane, order.record) for lane in order.lanes))

    def _threads(self, order: Do) -> list[tuple[Outcome, ...]]:
        ready = threading.Barrier(len(order.lanes))
        running = [_Thread(partial(self._in_thread, order, lane, ready)) for lane in order.lanes]
        return [thread.result() for thread in running]

    def _in_thread(self, order: Do, lane: Lane, ready: threading.Barrier) -> tuple[Outcome, ...]:
        with self._instance(order.slot, order.own) as subject:
            ready.wait(30)
            return self._run(subject, lane, order.record)

    @contextmanager
    def _instance(self, slot: str, own: Open | None) -> Iterator[Subject]:
        if own is None:
            yield self._subjects[slot]
            return
        subject = Subject(self._factory, self._offer, Path(own.where), own.options, Loop())
        try:
            yield subject
        finally:
            subject.close()

    def _at_stop(self, stop: Stop) -> Callable[[int, str], None]:
        def pause(n: int, name: str) -> None:
            self._pipe.send(Paused(n, name))
            self._pipe.recv()

        def die(_n: int, _name: str) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        return pause if stop.action == "pause" else die

    # --- two lanes, one of them stopped ------------------------------------------------------------------------------

    def _duel(self, order: Duel) -> Dueled:
        if order.by == "awaits":
            subject = self._subjects[order.slot]
            return subject.run(self._duel_of_tasks(subject, order))
        return self._duel_of_threads(order)

    async def _duel_of_tasks(self, subject: Subject, order: Duel) -> Dueled:
        b: asyncio.Task[tuple[Outcome, ...]] | None = None
        blocked = False

        async def between() -> None:
            nonlocal b, blocked
            b = asyncio.ensure_future(self._taken(subject, order.b, order.record))
            _, pending = await asyncio.wait({b}, timeout=order.patience)
            blocked = bool(pending)

        a = await Paced(self._taken(subject, order.a, order.record), order.n, between)
        at = None if b is None else f"suspension {order.n}"
        if b is None:
            b = asyncio.ensure_future(self._taken(subject, order.b, order.record))
        return Dueled(a, await b, at, blocked)

    async def _cancel(self, subject: Subject, order: Cancel) -> Done:
        async def now() -> None:
            task.cancel()  # as from outside: it takes effect where the coroutine awaits

        async def lane() -> tuple[tuple[Outcome, ...], int]:
            outcomes = await paced
            return outcomes, paced.passed

        paced = Paced(self._taken(subject, order.lane, order.record), order.n, now)
        task = asyncio.ensure_future(lane())
        outcomes, passed = await task
        return Done((outcomes,), passed)

    def _duel_of_threads(self, order: Duel) -> Dueled:
        stopped, go_on = threading.Event(), threading.Event()
        at: list[str] = []

        def at_stop(_n: int, name: str) -> None:
            at.append(name)
            stopped.set()
            go_on.wait()

        def run_a() -> tuple[Outcome, ...]:
            with self._instance(order.slot, order.own) as subject:
                if order.by == "opcodes":
                    self._trap.watch_instructions()
                else:
                    self._trap.watch_threads()
                self._trap.arm(order.n, at_stop)
                try:
                    return self._run(subject, order.a, order.record)
                finally:
                    self._trap.disarm()
                    self._trap.unwatch_instructions()
                    self._trap.unwatch()
                    stopped.set()

        def run_b() -> tuple[Outcome, ...]:
            with self._instance(order.slot, order.own) as subject:
                return self._run(subject, order.b, order.record)

        a = _Thread(run_a)
        stopped.wait()
        b = _Thread(run_b)
        b.join(order.patience if at else None)
        blocked = b.is_alive()
        go_on.set()
        return Dueled(a.result(), b.result(), at[0] if at else None, blocked)

    # --- power -------------------------------------------------------------------------------------------------------

    def _power(self, order: Power) -> Cut:
        from everturn.testing.faults.disks import (
            PowerLossVFS,  # imports apsw, which is safe beside a store that uses it
        )

        disk = PowerLossVFS(f"everturn-kit-{order.n}-{order.moment}")
        disk.cut_at(order.n, moment=order.moment)
        opening = msgspec.structs.replace(order.opening, options={**order.opening.options, "vfs": disk.name})
        try:
            subject = self._opened(opening)
        except Exception:
            if disk.is_on:
                raise
            return Cut(lost=True)
        self._run(subject, order.lane, order.record)
        lost = not disk.is_on
        if not lost:
            disk.cut()  # a store that syncs too seldom gets this far: now it shows
        return Cut(lost)

    # --- forks -------------------------------------------------------------------------------------------------------

    def _fork(self, order: Fork) -> Done:
        parent_done_read, parent_done_write = os.pipe()
        told, tells = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                os.close(parent_done_write)
                told.close()
                self._pipe.close()
                self._loop = Loop()  # the other's threads have not come along
                subject = self._opened(order.opening)
                tells.send(self._run(subject, order.child, order.record))
                os.read(parent_done_read, 1)
                tells.send(self._run(subject, order.after, order.record))
                subject.close()
            os._exit(0)
        os.close(parent_done_read)
        tells.close()
        try:
            parent = self._run(self._subjects[order.slot], order.parent, order.record)
            child = _heard(told)
            self._subjects.pop(order.slot).close()
        finally:
            os.close(parent_done_write)
            after = _heard(told)
            told.close()
            os.waitpid(pid, 0)
        return Done((parent, child, after))


def _heard(told: Connection) -> tuple[Outcome, ...]:
    """The outcomes that a child tells next; none if it has died."""
    try:
        outcomes: tuple[Outcome, ...] = told.recv()
    except (EOFError, OSError):
        return ()
    return outcomes


class _Thread(threading.Thread):
    """A thread whose function's result, or error, is had by waiting for it."""

    def __init__(self, function: Callable[[], tuple[Outcome, ...]]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._result: tuple[Outcome, ...] = ()
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as exc:  # noqa: BLE001 - handed to whoever waits
            self._error = exc

    def result(self) -> tuple[Outcome, ...]:
        self.join()
        if self._error is not None:
            raise self._error
        return self._result


def _is_open(descriptor: int) -> bool:
    """Whether it is open now: the one that the list was read by is in the list, and is not."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


class _Recorders:
    """The recorders of this process: one for each caller, kept, because a caller's calls are numbered."""

    def __init__(self) -> None:
        self._record: str | None = None
        self._kept: dict[str, Recorder] = {}
        self._lock = threading.Lock()

    def of(self, record: str | None, who: str) -> Recorder | None:
        if record is None:
            return None
        with self._lock:
            if record != self._record:
                for recorder in self._kept.values():
                    recorder.close()
                self._record, self._kept = record, {}
            if who not in self._kept:
                self._kept[who] = Recorder(record, who)
            return self._kept[who]


def _wait_until(moment: float) -> None:
    if (left := moment - time.monotonic()) > 0:
        time.sleep(left)
