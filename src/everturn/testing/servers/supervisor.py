"""Supervisor: a process outside the test's that starts its servers, watches them, and removes them.

Runs as a script. `Supervisor` in server.py starts it and talks to it, one JSON line each way. It imports the standard
library only. When the test's process is gone, for whatever reason, it removes the servers, their children and their
files.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_LOOK_AFTER_PARENT = 0.2  # seconds. The pipe's end is not enough: a forked child of the parent may hold it open.
_PATIENCE = 10.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_IPC_RMID = 0
_STOPPED = ("T", "t", "Z", "X")


class ServerProcesses:
    """The servers started so far, by pid. Each method acts on a server and all its children at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        self._statuses: dict[int, int] = {}

    def start(self, argv: list[str], log: str, owner: list[int] | None) -> int:
        """Start a program in a session of its own, as user and group `owner`; its output is appended to `log`."""
        uid, gid = owner or (None, None)
        with Path(log).open("ab") as output:
            started = subprocess.Popen(  # noqa: S603 - the harness says what to start
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                user=uid,
                group=gid,
                extra_groups=[] if owner else None,
                preexec_fn=_die_with_the_supervisor,  # noqa: PLW1509 - the supervisor has no threads while it starts
            )
        self._started[started.pid] = started
        self._statuses.pop(started.pid, None)  # of an earlier program with this pid
        return started.pid

    def status(self, pid: int) -> int | None:
        """Return the exit status of a started program, or None while it runs."""
        self.reap()
        return self._statuses.get(pid)

    def family(self, pid: int) -> list[int]:
        """List the program and all its descendants, parents first; empty if it has ended."""
        self.reap()
        return [] if pid in self._statuses else _family(pid, _running())

    def pause(self, pid: int) -> None:
        """Stop the whole family. On return none of it runs."""
        # PostgreSQL's children lead groups of their own, so killpg would miss them.
        self._freeze([pid])  # it can start no more now
        self._freeze(self.family(pid))

    def resume(self, pid: int) -> None:
        """Let the whole family run on."""
        for member in reversed(self.family(pid)):
            _signal(member, signal.SIGCONT)

    def kill(self, pid: int) -> None:
        """SIGKILL the whole family. On return all of it is gone and reaped, so its port is free."""
        self.pause(pid)
        family = self.family(pid)
        for member in family:
            _signal(member, signal.SIGKILL)
        _wait(lambda: self._all(family, ("Z", "X")))
        _wait(lambda: self.status(pid) is not None)

    def stop(self, pid: int, name: str) -> None:
        """Ask the program to end, with the signal of this name, and wait until it has."""
        _signal(pid, signal.Signals[name])
        _wait(lambda: self.status(pid) is not None)

    def reap(self) -> None:
        """Reap every child that has ended, adopted orphans included."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if started := self._started.get(ended[0]):
                    started.returncode = self._statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def close(self) -> None:
        """Kill every server, and remove its shared memory and files."""
        for pid in self._started:
            if pid not in self._statuses:
                self.kill(pid)
        for lock_file in self.directory.glob("*/data/postmaster.pid"):
            _release_shared_memory(lock_file)
        _remove(self.directory)

    def _freeze(self, members: list[int]) -> None:
        for member in members:
            _signal(member, signal.SIGSTOP)
        _wait(lambda: self._all(members, _STOPPED))

    def _all(self, members: list[int], states: tuple[str, ...]) -> bool:
        self.reap()
        running = _running()
        return all(running[member][1] in states for member in members if member in running)


def _die_with_the_supervisor() -> None:
    # If the supervisor itself is killed with -9, the servers end too. Linux only.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _release_shared_memory(lock_file: Path) -> None:
    # A PostgreSQL killed with -9 leaves its System V segment to the next one on the same directory, which never comes.
    with contextlib.suppress(OSError, ValueError, IndexError):
        segment = int(lock_file.read_text().splitlines()[6].split()[1])
        ctypes.CDLL(None).shmctl(segment, _IPC_RMID, None)


def _remove(directory: Path) -> None:
    # In threads: on a disk that trims on delete each file takes 2 ms, and PostgreSQL has a thousand.
    files = [Path(place, name) for place, _, names in os.walk(directory) for name in names]
    with ThreadPoolExecutor(16) as threads:
        for file in files:
            threads.submit(file.unlink, missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _family(root: int, running: dict[int, tuple[int, str]]) -> list[int]:
    family = [root] if root in running else []
    for member in family:  # grows on the way
        family.extend(pid for pid, (parent, _) in running.items() if parent == member)
    return family


def _running() -> dict[int, tuple[int, str]]:
    """Map each process of the machine to its parent and its state."""
    if Path("/proc/self/stat").exists():
        return dict(_running_by_proc())
    table = subprocess.run(
        ["/bin/ps", "-axo", "pid=,ppid=,state="], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    rows = (line.split() for line in table.splitlines())
    return {int(pid): (int(parent), state[0]) for pid, parent, state in rows}


def _running_by_proc() -> Iterator[tuple[int, tuple[int, str]]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all we need, often
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The command, in brackets, may itself hold spaces and brackets.
                fields = Path("/proc", name, "stat").read_text("latin-1").rpartition(")")[2].split()
                yield int(name), (int(fields[1]), fields[0])


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.002)


def _lines(parent: int) -> Iterator[str]:
    """Yield the lines that the parent writes, until it closes the pipe or is gone."""
    pending = b""
    while os.getppid() == parent:
        if select.select([0], [], [], _LOOK_AFTER_PARENT)[0]:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, pending = (pending + read).split(b"\n")
            yield from (line.decode() for line in lines)


def _run_request(processes: ServerProcesses, verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"result": getattr(processes, verb)(**arguments)}
    except (OSError, subprocess.SubprocessError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(base: str, parent: int) -> None:
    """Run servers for `parent`, in a new directory under `base`, until the parent is gone or closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if sys.platform == "linux":
        # PostgreSQL's orphaned children become ours, so that we notice when they are gone.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    processes = ServerProcesses(Path(tempfile.mkdtemp(prefix="everturn-", dir=base)))
    try:
        processes.directory.chmod(0o711)  # a server run as another user must reach its own directory in here
        sys.stdout.write(json.dumps({"result": str(processes.directory)}) + "\n")
        sys.stdout.flush()
        for line in _lines(parent):
            request = json.loads(line)
            sys.stdout.write(json.dumps(_run_request(processes, request.pop("verb"), request)) + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the parent is gone: nobody reads replies, also at exit
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        processes.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
