"""The base of all servers: start and stop, faults, and waiting with a deadline.

Kinds of server are in valkey.py and postgres.py; their processes belong to supervisor.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

from everturn.testing.servers import supervisor as supervisor_script
from everturn.testing.servers.binaries import LOOPBACK, Owner, ServerError, base_directory, free_port

Setting: TypeAlias = str | int | float | bool

_START_PATIENCE = 30.0
_START_ATTEMPTS = 5
_LOG_TAIL = 2_000


class Supervisor:
    """The supervisor process of the servers of one `with` block. When the block ends, it removes them and their files.

    Any thread of the process that made it may use it. A forked child may connect to a server, but not kill it.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        command = [sys.executable, "-I", "-S", supervisor_script.__file__, str(base_directory()), str(self._owner)]
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            # A session of its own: neither Ctrl-C nor the kill of a process group may end the supervisor.
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self.directory = Path(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._owner:
            return
        with self._lock, self._process:
            pass  # closes the pipe, which ends the supervisor, and waits for it

    def ask(self, verb: str, **arguments: object) -> Any:
        """Call a method of `supervisor.ServerProcesses` in the supervisor. Returns its result, raises ServerError."""
        if os.getpid() != self._owner:
            raise ServerError(
                f"this server belongs to process {self._owner}; process {os.getpid()} may only connect to it"
            )
        with self._lock:
            if self._process.stdin is None or self._process.stdin.closed:
                raise ServerError(f"cannot {verb} a server after the end of its `with` block")
            try:
                self._process.stdin.write(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            except BrokenPipeError:
                pass  # no answer comes either, and that is said below
            return self._answer()

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout else b""
        if not line:
            raise ServerError(
                f"the supervisor of the servers, process {self._process.pid}, has died and taken them along"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise ServerError(answer["error"])
        return answer["result"]

    def run(self, argv: Sequence[str], log: Path, owner: Owner | None) -> None:
        """Run a program to its end. Raises ServerError with its output if it fails."""
        pid = self.ask("start", argv=argv, log=str(log), owner=owner)
        wait_until(lambda: self.ask("status", pid=pid) is not None, f"{argv[0]} has ended")
        if self.ask("status", pid=pid) != 0:
            raise ServerError(f"{' '.join(argv)} failed:\n{tail(log)}")


class Server(ABC):
    """One server on a loopback port, with a directory of its own. Faults are made by real signals.

    `kill`, `pause` and `resume` reach the server's children too, and are in force when they return.
    """

    def __init__(self, supervisor: Supervisor, name: str, *, owner: Owner | None = None) -> None:
        self.name = name
        self.port = 0
        self._supervisor = supervisor
        self._owner = owner
        self._pid: int | None = None
        self._paused = False
        self.directory = supervisor.directory / name
        self.directory.mkdir(mode=0o700)
        if owner:
            os.chown(self.directory, *owner)

    def __repr__(self) -> str:
        state = "down" if not self.running else "paused" if self._paused else "up"
        return f"<{type(self).__name__} {self.name} on port {self.port}, {state}>"

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients."""

    @property
    def address(self) -> str:
        """The address of the server, as host:port."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the server's process is there, paused or not."""
        return self._pid is not None and self._supervisor.ask("status", pid=self._pid) is None

    @property
    def answering(self) -> bool:
        """Whether the server's process is there and not paused."""
        return not self._paused and self.running

    @property
    def pids(self) -> list[int]:
        """The server's process and its children, as they are now; empty when it is down."""
        return [] if self._pid is None else list(self._supervisor.ask("family", pid=self._pid))

    @property
    def log(self) -> str:
        """The whole log of the server."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start the server on a free port, and return when it takes connections."""
        for _ in range(_START_ATTEMPTS):
            self.port = free_port()
            self._configure()
            self._log.unlink(missing_ok=True)
            self._launch()
            if not self._came_up() and "in use" in self.log:
                continue  # between our look and the server's, somebody took the port
            return self._check_up()
        raise ServerError(f"{self.name}: no free port in {_START_ATTEMPTS} attempts:\n{tail(self._log)}")

    def kill(self) -> None:
        """SIGKILL the server and its children. Does nothing if it is down."""
        if self._pid is not None:
            self._supervisor.ask("kill", pid=self._pid)
        self._pid, self._paused = None, False

    def stop(self) -> None:
        """Shut the server down in good order. Does nothing if it is down."""
        if self.running:
            self.resume()
            self._supervisor.ask("stop", pid=self._pid, name=self._stop_signal)
        self.kill()

    def pause(self) -> None:
        """SIGSTOP the server and its children: connections stay open, nothing answers."""
        if not self.running:
            raise ServerError(f"{self!r} is not running: it cannot be paused")
        self._supervisor.ask("pause", pid=self._pid)
        self._paused = True

    def resume(self) -> None:
        """Let a paused server go on. Does nothing if it is not paused."""
        if self._paused:
            self._supervisor.ask("resume", pid=self._pid)
            self._paused = False

    def restart(self) -> None:
        """Start the server again, on the same port and data, and return when it is up. Kills it first if need be."""
        self.kill()
        self._launch()
        self._came_up()
        self._check_up()

    @property
    def _log(self) -> Path:
        return self._supervisor.directory / f"{self.name}.log"

    def _launch(self) -> None:
        self._pid = self._supervisor.ask("start", argv=self._argv(), log=str(self._log), owner=self._owner)

    def _came_up(self) -> bool:
        wait_until(
            lambda: not self.running or self._is_up(), lambda: f"{self!r} is up:\n{tail(self._log)}", _START_PATIENCE
        )
        return self.running

    def _check_up(self) -> None:
        if not self.running:
            raise ServerError(f"{self.name} did not start:\n{tail(self._log)}")

    _stop_signal = "SIGTERM"

    @abstractmethod
    def _configure(self) -> None:
        """Write the settings, `self.port` among them."""

    @abstractmethod
    def _argv(self) -> list[str]:
        """Return the command that runs the server in the foreground."""

    @abstractmethod
    def _is_up(self) -> bool:
        """Whether the server takes commands now; does not wait."""


def wait_until(condition: Callable[[], bool], what: str | Callable[[], str], timeout: float = _START_PATIENCE) -> None:
    """Return as soon as the condition holds. Raises TimeoutError after `timeout` seconds, naming `what`."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s in vain until {what if isinstance(what, str) else what()}")
        time.sleep(0.01)


def tail(log: Path) -> str:
    """Read the end of a log, for an error message."""
    return log.read_text(errors="replace")[-_LOG_TAIL:].strip() if log.exists() else "(it said nothing)"
