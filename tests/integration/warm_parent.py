"""Forks the children of tests from a process that has imported their modules: a child costs a fork, not its imports.

A framework takes one to three seconds of processor to import, and a backend, which a store imports when it is opened,
0.1 to 0.5. Run as a script by `WarmParent`, once for each process of pytest. It runs nothing of a module but its
import, opens nothing, and starts no thread. When pytest is gone, it ends its children and itself.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
_SIZE = 4  # bytes of the length in front of a job, and of an exit code
# Modules of the backends that are imported when a URL is opened: each child would import them anew.
_OPENED = (
    "everturn.backends.sqlite.async_backend",
    "everturn.backends.redis.backend",
    "everturn.backends.postgres.async_backend",
    "everturn.store.aio",
)


class Job(NamedTuple):
    """A function by name, its arguments, and the environment of the child."""

    module: str
    name: str
    args: tuple[str, ...]
    environment: dict[str, str]
    imports: tuple[str, ...] = ()  # more modules to import before the fork


class WarmParent:
    """The process that children are forked from, as pytest sees it. Started when the first child is."""

    def __init__(self) -> None:
        self._one = threading.Lock()
        self._line, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.integration.warm_parent", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, job: Job, descriptors: list[int]) -> int:
        """Fork a child with these as stdin, stdout and stderr; its exit code goes to the last. Returns its id."""
        text = pickle.dumps(job)
        with self._one:  # tests start children from several threads
            socket.send_fds(self._line, [len(text).to_bytes(_SIZE, "big")], descriptors)
            self._line.sendall(text)
            return int.from_bytes(_received(self._line, _SIZE), "big")

    def close(self) -> None:
        self._line.close()
        self._process.wait()


def _received(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = line.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _serve(line: socket.socket) -> Job:
    """Fork a child for every job, and tell how each ended. Returns in the children only, each with its job."""
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    codes: dict[int, int] = {}  # where the exit code of each child goes
    gc.disable()  # imports make little garbage, and are looked through many times
    for module in _OPENED:
        importlib.import_module(module)
    while True:
        if woken in select.select([line, woken], [], [])[0]:
            woken.recv(4096)
            _tell_ends(codes)
            continue
        header, descriptors, *_ = socket.recv_fds(line, _SIZE, 4)
        if not header:
            for pid in codes:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            sys.exit()
        job: Job = pickle.loads(_received(line, int.from_bytes(header, "big")))
        for module in (job.module, *job.imports):
            with contextlib.suppress(Exception):  # then the child fails, and tells why
                importlib.import_module(module)
        gc.freeze()  # else a child that ends looks through all that was imported, and so copies it: up to two seconds
        pid = os.fork()
        if not pid:
            gc.enable()
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (line, woken, wake):
                inherited.close()
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            for descriptor in [*descriptors, *codes.values()]:
                os.close(descriptor)
            return job
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        codes[pid] = descriptors[3]
        line.sendall(pid.to_bytes(_SIZE, "big"))


def _tell_ends(codes: dict[int, int]) -> None:
    """Reap the children that have ended."""
    while codes:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        descriptor = codes.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(descriptor, os.waitstatus_to_exitcode(status).to_bytes(_SIZE, "big", signed=True))
        os.close(descriptor)


if __name__ == "__main__":
    from tests.integration import warm_parent  # the one that pickle knows

    _job: Any = warm_parent._serve(socket.socket(fileno=int(sys.argv[1])))
    os.environ.clear()
    os.environ.update(_job.environment)
    _result = getattr(importlib.import_module(_job.module), _job.name)(*_job.args)
    if asyncio.iscoroutine(_result):
        asyncio.run(_result)
    # As Python ends, but for its modules: to take six frameworks apart takes two seconds.
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, and for those of executors
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
