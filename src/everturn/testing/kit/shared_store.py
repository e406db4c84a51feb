"""One place that clauses share, and the instances open there, which wait for the next clause.

Opening a store takes most of the time of a short clause. A clause that only looks at sessions of its own can use an
instance that another clause has opened. A clause that fails closes the place, so that no later clause meets its data.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec

from everturn.testing.workers.controller import JobFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.messages import Close, Open, Opened

if TYPE_CHECKING:
    from pathlib import Path

    from everturn.testing.kit.environment import Environment

CLOSE_PATIENCE = 5.0  # seconds; no clause judges how a store closes here


class SharedWorker(msgspec.Struct):
    """A worker, and the instances that it has open at the shared place, by slot."""

    worker: WorkerProcess
    slots: dict[str, Opened]


class SharedPlace:
    """The shared place of one environment. Nothing is made before the first clause asks."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._place: Path | None = None
        self._waiting: list[SharedWorker] = []
        self._slots = count(1)

    @property
    def path(self) -> Path:
        if self._place is None:
            self._place = self._environment.new_place()
        return self._place

    def take_worker(self, *, watched: bool) -> SharedWorker:
        """Take a worker that waits, with its open instances; or a new one, with none."""
        for index, shared in enumerate(self._waiting):
            if shared.worker.watched == watched:
                return self._waiting.pop(index)
        return SharedWorker(self._environment.fork_server.worker(watched=watched), {})

    def opening(self) -> tuple[str, Open]:
        """Make the job that opens one more instance. Returns its slot and the job."""
        slot = f"shared {next(self._slots)}"
        return slot, Open(slot, str(self.path), self._environment.urls)

    def give_back(self, shared: SharedWorker) -> None:
        """Let a worker wait for the next clause, unless it cannot be used again."""
        if shared.worker.idle:
            self._waiting.append(shared)
        else:
            self._environment.fork_server.rest(shared.worker)

    def close(self) -> None:
        """Close every waiting instance and remove the place. The next clause begins at a new one."""
        for shared in self._waiting:
            try:
                for slot in shared.slots:
                    shared.worker.ask(Close(slot), min(CLOSE_PATIENCE, self._environment.patience.seconds()))
            except (JobFailed, StillBusy, WorkerDied):
                shared.worker.usable = False
            self._environment.fork_server.rest(shared.worker)
        self._waiting.clear()
        if self._place is not None:
            self._environment.clean(self._place)
            self._place = None
