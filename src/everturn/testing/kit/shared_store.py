"""The place that clauses share, and the instances opened at it that wait for the next clause.

Opening a store is most of what a short clause takes; one that only cares what becomes of sessions of its own can use
what another has opened. A clause that was not kept takes the place along: nobody after it meets what it left there.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import msgspec

from everturn.testing.workers.controller import OrderFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.messages import Close, Open, Opened

if TYPE_CHECKING:
    from pathlib import Path

    from everturn.testing.kit.environment import Run

CLOSE_PATIENCE = 5.0  # seconds; what a store does when it is closed here is not judged


class Staff(msgspec.Struct):
    """A worker, and the instances that it has open at the shared place."""

    worker: WorkerProcess
    slots: dict[str, Opened]


class Common:
    """The shared place of one run. Nothing is made before the first clause asks."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._place: Path | None = None
        self._waiting: list[Staff] = []
        self._slots = count(1)

    @property
    def place(self) -> Path:
        if self._place is None:
            self._place = self._run.new_place()
        return self._place

    def hire(self, *, watched: bool) -> Staff:
        """A worker that waits, with what it has open; or a new one, with nothing."""
        for index, staff in enumerate(self._waiting):
            if staff.worker.watched == watched:
                return self._waiting.pop(index)
        return Staff(self._run.nursery.worker(watched=watched), {})

    def opening(self) -> tuple[str, Open]:
        """The order to open one more instance, and the slot it will be in."""
        slot = f"common {next(self._slots)}"
        return slot, Open(slot, str(self.place), self._run.urls)

    def give_back(self, staff: Staff) -> None:
        """Let a worker wait for the next clause, unless it cannot be used again."""
        if staff.worker.idle:
            self._waiting.append(staff)
        else:
            self._run.nursery.rest(staff.worker)

    def retire(self) -> None:
        """Close all that is open at the place, and forget it: the next clause begins at a new one."""
        for staff in self._waiting:
            try:
                for slot in staff.slots:
                    staff.worker.ask(Close(slot), min(CLOSE_PATIENCE, self._run.patience()))
            except (OrderFailed, StillBusy, WorkerDied):
                staff.worker.usable = False
            self._run.nursery.rest(staff.worker)
        self._waiting.clear()
        if self._place is not None:
            self._run.clean(self._place)
            self._place = None
