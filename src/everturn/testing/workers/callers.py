"""Callers of a worker: they take their steps on the open instances, alone, as tasks or as threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from everturn.testing.kit.target import Offer
from everturn.testing.workers.fake_model import FakeModel
from everturn.testing.workers.instance import LocalInstance, Loop, Recorders
from everturn.testing.workers.messages import CallerSteps, Do, Open, Outcome


class Callers:
    """The open instances of a worker, by slot, and the callers that use them."""

    def __init__(self, factory: Callable[..., Any], offer: Offer, model: FakeModel) -> None:
        self._factory = factory
        self._offer = offer
        self._model = model
        self._recorders = Recorders()
        self.instances: dict[str, LocalInstance] = {}
        self.loop = Loop()

    def open(self, job: Open, loop: Loop | None = None) -> LocalInstance:
        """Open an instance, which runs its coroutines in this loop, or in that of all others."""
        where = Path(job.where)
        return LocalInstance(self._factory, self._offer, where, job.options, loop or self.loop, self._model)

    def run(self, job: Do) -> list[tuple[Outcome, ...]]:
        """Run the callers of a job: one, or several as tasks or threads. Returns the outcomes of each."""
        match job.mode:
            case "alone":
                instance = self.instances[job.slot]
                return [self.take_steps(instance, caller, job.record) for caller in job.callers]
            case "tasks":
                return self.instances[job.slot].run(self._run_tasks(job))
            case "threads":
                return self._run_threads(job)

    def take_steps(self, instance: LocalInstance, caller: CallerSteps, record: str | None) -> tuple[Outcome, ...]:
        """Take the steps of a caller, one after the other."""
        recorder = self._recorders.of(record, caller.who)
        return tuple(instance.taken(step, recorder) for step in caller.steps)

    async def take_steps_awaited(
        self, instance: LocalInstance, caller: CallerSteps, record: str | None
    ) -> tuple[Outcome, ...]:
        """Take the steps of a caller in the event loop of the instance."""
        recorder = self._recorders.of(record, caller.who)
        return tuple([await instance.take(step, recorder) for step in caller.steps])

    async def _run_tasks(self, job: Do) -> list[tuple[Outcome, ...]]:
        instance = self.instances[job.slot]
        return await asyncio.gather(*(self.take_steps_awaited(instance, caller, job.record) for caller in job.callers))

    def _run_threads(self, job: Do) -> list[tuple[Outcome, ...]]:
        ready = threading.Barrier(len(job.callers))
        running = [ResultThread(partial(self._in_thread, job, caller, ready)) for caller in job.callers]
        return [thread.result() for thread in running]

    def _in_thread(self, job: Do, caller: CallerSteps, ready: threading.Barrier) -> tuple[Outcome, ...]:
        with self.instance_for(job.slot, job.own) as instance:
            ready.wait(30)
            return self.take_steps(instance, caller, job.record)

    @contextmanager
    def instance_for(self, slot: str, own: Open | None) -> Iterator[LocalInstance]:
        """Lend the instance in a slot; or open one for this caller alone, and close it afterwards."""
        if own is None:
            yield self.instances[slot]
            return
        instance = self.open(own, Loop())
        try:
            yield instance
        finally:
            instance.close()


class ResultThread(threading.Thread):
    """A thread that runs a function."""

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
        """Wait for the function, and return its value or raise its error."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result
