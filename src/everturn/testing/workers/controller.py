"""Controls worker processes from the kit's side: forks them, sends jobs, waits for reports.

No target code runs in this process. worker.py is the other side.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Protocol, Self

from everturn.testing.kit.target import Offer, Target, TargetError
from everturn.testing.workers.messages import Failed, Job, Paused, Report, Resume

IMPORT_PATIENCE = 120.0


class WorkerDied(Exception):
    """A worker's process ended during a job. `status` is as of subprocess: -9 for a kill."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the worker process ended with status {status}")
        self.status = status


class StillBusy(Exception):
    """A worker did not report in time."""


class JobFailed(Exception):
    """A worker could not run a job; `report` says why."""

    def __init__(self, report: Failed) -> None:
        super().__init__(str(report.fault))
        self.report = report


class WorkerProcess:
    """One worker. After WorkerDied or StillBusy it cannot be used again: `end` it."""

    def __init__(self, fork_server: ForkServer, pid: int, pipe: Connection, *, watched: bool) -> None:
        self._fork_server = fork_server
        self.pid = pid
        self._pipe = pipe
        self.watched = watched
        self.usable = True
        self.used_up = False  # whether it must not serve another clause: its clock is wrong, or it is watched
        self._owed = 0  # reports that are still to come: one for each job
        self.sent: Job = Resume()  # the latest job
        self.paused = False  # whether it waits for `resume`

    @property
    def idle(self) -> bool:
        """Whether another clause may have it: every job is done and reported."""
        return self.usable and not self.used_up and not self._owed

    @property
    def busy(self) -> bool:
        """Whether a report is still to come."""
        return self._owed > 0

    def send(self, job: Job) -> None:
        """Send a job without waiting. Raises WorkerDied."""
        try:
            self._pipe.send(job)
        except OSError as exc:
            raise self._died() from exc
        if isinstance(job, Resume):
            self.paused = False
        else:
            self._owed += 1
            self.sent = job

    def poll(self, seconds: float) -> bool:
        """Whether a report, or the worker's end, comes within this time."""
        return self._pipe.poll(seconds)

    def report(self, patience: float) -> Report:
        """Wait for the next report. Raises WorkerDied, StillBusy, JobFailed."""
        if not self._pipe.poll(max(patience, 0)):
            self.usable = False
            raise StillBusy(f"no answer within {patience:.1f} s")
        try:
            report: Report = self._pipe.recv()
        except (EOFError, OSError) as exc:
            raise self._died() from exc
        self.paused = isinstance(report, Paused)
        self._owed -= not self.paused  # a pause is not the end of a job
        if isinstance(report, Failed):
            raise JobFailed(report)
        return report

    def ask(self, job: Job, patience: float) -> Report:
        """Send a job and wait for its report. Raises WorkerDied, StillBusy, JobFailed."""
        self.send(job)
        return self.report(patience)

    def stack(self) -> str:
        """Find where a worker hangs: the innermost frames of its main thread. Ends the worker."""
        log = self._fork_server.log
        before = log.stat().st_size if log.exists() else 0
        self.usable = False
        os.kill(self.pid, signal.SIGABRT)  # not yet reaped, so the id is still its own; faulthandler writes to the log
        self._pipe.poll(2.0)
        self._fork_server.end(self.pid)
        with log.open("rb") as file:
            file.seek(before)
            lines = file.read().decode(errors="replace").splitlines()
        frames = [line.strip() for line in _after(lines, "Current thread") if line.startswith("  File")]
        return "; ".join(frames[:3])

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Stop the process with SIGSTOP for the time of the block. Jobs that are sent meanwhile are run afterwards."""
        os.kill(self.pid, signal.SIGSTOP)  # not yet reaped, so the id is still its own
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def resume(self, *, clock: float | None = None) -> None:
        """Let it go on after a pause, with a clock that differs by so many seconds from the machine's."""
        self.send(Resume(clock))

    def end(self) -> int:
        """Kill it if it runs, and reap it. Returns its status."""
        self.usable = False
        self._pipe.close()
        return self._fork_server.end(self.pid)

    def _died(self) -> WorkerDied:
        self.usable = False
        return WorkerDied(self._fork_server.end(self.pid))


def _after(lines: list[str], start: str) -> list[str]:
    first = next((number for number, line in enumerate(lines) if line.startswith(start)), len(lines))
    return lines[first + 1 :]


class Started(Protocol):
    """A process that was started, as subprocess.Popen has it."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """End it."""


def start(target: Target, line: int, log: int) -> Started:  # noqa: ARG001 - tests start one that has imported it
    """Start the script fork_server.py, to be talked to over the socket `line`; what it says goes to `log`."""
    return start_interpreter(line, log)


def start_interpreter(line: int, log: int, *, hash_seed: str | None = None) -> Started:
    """Start fork_server.py in an interpreter of its own, whose hashes of texts have this seed."""
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-X", "faulthandler", "-m", "everturn.testing.workers.fork_server", str(line)],
        pass_fds=(line,),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=None if hash_seed is None else {**os.environ, "PYTHONHASHSEED": hash_seed},
    )


class ForkServer:
    """The process that imported the target, and the workers forked from it. One per run, for all its environments."""

    def __init__(self, target: Target, root: Path, *, stranger: bool = False) -> None:
        """Start it and import the target. Raises TargetError if that fails.

        Output of target code goes to a log in `root`. If this process is killed, the fork server removes `root`. A
        `stranger` shares nothing with another fork server: neither what was imported, nor the seed of its hashes.
        """
        self.log = root / "target.log"
        self._target, self._root = target, root
        self._stranger: ForkServer | None = None
        ours, theirs = socket.socketpair()
        with theirs, self.log.open("ab") as log:
            if stranger:
                seed = str(1 + secrets.randbelow(2**32 - 1))
                self._process = start_interpreter(theirs.fileno(), log.fileno(), hash_seed=seed)
            else:
                self._process = start(target, theirs.fileno(), log.fileno())
        self._line = ours
        self._pipe = Connection(os.dup(ours.fileno()))
        self._lock = Lock()  # held for a request and its reply: parallel environments share the pipe
        self._idle: list[WorkerProcess] = []
        self._all: list[WorkerProcess] = []
        self._ended: dict[int, int] = {}
        self.offer = self._import(target, root)

    def _import(self, target: Target, root: Path) -> Offer:
        started = time.monotonic()
        self._pipe.send(([str(Path.cwd()), *sys.path], target, str(root)))
        kind, answer = "failed", f"importing {target.module} took more than {IMPORT_PATIENCE:.0f} s"
        try:
            if self._pipe.poll(IMPORT_PATIENCE):
                kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            answer = f"the process that imports {target.module} died; see: python -c 'import {target.module}'"
        if kind == "failed":
            self.close()
            raise TargetError(answer)
        self.import_seconds = time.monotonic() - started
        offer: Offer = answer  # type: ignore[assignment]  # what the fork server sends with "offer"
        return offer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def worker(self, *, watched: bool = False) -> WorkerProcess:
        """Get a worker: an idle one, or a new one."""
        with self._lock:
            for index, idle in enumerate(self._idle):
                if idle.watched == watched:
                    return self._idle.pop(index)
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                self._pipe.send(("fork", watched))
                socket.send_fds(self._line, [b"f"], [theirs.fileno()])
                pid: int = self._pipe.recv()
            except (EOFError, OSError) as exc:
                ours.close()
                raise TargetError("the process that workers are forked from has died; was it killed?") from exc
        worker = WorkerProcess(self, pid, Connection(ours.detach()), watched=watched)
        self._all.append(worker)
        return worker

    def stranger(self) -> WorkerProcess:
        """Get a worker that was not forked from this process, but from one that was started apart. It serves once.

        The first call starts an interpreter and imports the target. Raises TargetError if that fails.
        """
        with self._lock:
            if self._stranger is None:
                self._stranger = ForkServer(self._target, self._root, stranger=True)
        worker = self._stranger.worker()
        worker.used_up = True
        return worker

    def rest(self, worker: WorkerProcess) -> None:
        """Take back a worker. One that cannot be used again, or still has a job, is ended."""
        if worker.idle:
            self._idle.append(worker)
        else:
            worker.end()

    def preload(self, names: tuple[str, ...]) -> None:
        """Import these modules in the fork server, so that no later worker has to."""
        with self._lock:
            self._pipe.send(("import", names))
            self._pipe.recv()

    def end(self, pid: int) -> int:
        """Kill and reap the process of a worker. Returns its status, also when asked again."""
        with self._lock:
            if pid not in self._ended:
                try:
                    self._pipe.send(("end", pid))
                    self._ended[pid] = self._pipe.recv()
                except (EOFError, OSError):
                    self._ended[pid] = -signal.SIGKILL  # it ended with the fork server
            return self._ended[pid]

    def close(self) -> None:
        """End every worker and the fork server. Does nothing the second time."""
        if self._stranger is not None:
            self._stranger.close()
        self._pipe.close()
        self._line.close()
        for worker in self._all:
            worker.usable = False
            worker._pipe.close()  # noqa: SLF001 - its own
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
