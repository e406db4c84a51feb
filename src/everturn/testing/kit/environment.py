"""The environment of a run on one target: fork server, private servers, directories, time limits.

It knows no clause. The caller of runner.py opens and closes it.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from copy import copy
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.faults.system_calls import can_watch
from everturn.testing.kit.call_limits import LONGEST_CALL, CallLimits
from everturn.testing.kit.clause import describe_step, is_not_offered
from everturn.testing.kit.shared_store import SharedPlace
from everturn.testing.kit.target import Target, TargetError
from everturn.testing.servers import dynamodb_server, postgres_server, valkey_cluster, valkey_sentinel, valkey_server
from everturn.testing.shapes import SentMessage
from everturn.testing.shapes.plain import PairShape, SingleShape
from everturn.testing.workers.controller import ForkServer, JobFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.messages import (
    CallerSteps,
    Close,
    Do,
    Done,
    FactoryHook,
    Loaded,
    Modules,
    Open,
    Opened,
    Step,
)

OPEN_PATIENCE = 60.0
SMOKE_PATIENCE = 15.0
STRINGS = (PairShape.name, SingleShape.name)  # shapes that are called with strings: no message is made
DICTS = "The kit passed dicts with role and content; if your store takes other objects, set factory.message."
_ROOM = 2**30


def _cluster() -> Any:
    return valkey_cluster(masters=3, replicas=0)


def _postgres() -> Any:
    # The server is killed but never loses power, so syncs would prove nothing, and they take a tenth of a run.
    return postgres_server(fsync=False, full_page_writes=False, autovacuum=False, jit=False)


_SERVER_GROUPS: dict[str, Any] = {"redis+cluster": _cluster, "redis+sentinel": valkey_sentinel}
_SERVERS: dict[str, Any] = {
    "redis_url": valkey_server,
    "postgres_url": _postgres,
    "dynamodb_endpoint": dynamodb_server,
}
_WANTED = {  # by a URL's scheme
    "redis": "redis_url",
    "postgresql": "postgres_url",
    "postgres": "postgres_url",
    "dynamodb": "dynamodb_endpoint",
}


def _address(server: Any) -> str:
    """Name where a server listens, as its clients do: a stand-in for DynamoDB has a URL for stores, too."""
    return str(getattr(server, "endpoint", server.url))


def _quick_disk() -> str | None:
    """Find a file system in memory with enough room; None if there is none. It survives kill -9, and syncs are free."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free >= _ROOM else None


class Environment:
    """Everything that the clauses of a run share. `parallel` makes one more, for clauses that run at the same time."""

    def __init__(self, target: Target, *, seed: int, quick: bool) -> None:
        """Import the target, start its servers, open it once. Raises TargetError if any of it cannot be done."""
        self.target = target
        self.seed = seed
        self.quick = quick
        self.sessions = count(1)  # one count for all clauses, because some share a place
        self.turns = count(1)
        self._folders = count(1)
        self.patience = CallLimits()  # shared with parallel environments
        self._stack = ExitStack()
        try:
            self.root = Path(tempfile.mkdtemp(prefix="everturn-kit-", dir=_quick_disk()))
            self._stack.callback(shutil.rmtree, self.root, ignore_errors=True)
            self._ahead = self._start_ahead()
            self.fork_server = self._stack.enter_context(ForkServer(target, self.root))
            self.offer = self.fork_server.offer
            self._prepare()
            self.opened = self._probe()
        except BaseException:
            self._stack.close()
            raise
        self.offered = self._offered()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and server of the run, and remove its directories. Does nothing the second time."""
        self._stack.close()

    def parallel(self) -> Environment:
        """Make a second environment of this run: the same fork server, but its own servers and shared place.

        It is closed with this one. Raises ServerError if its servers do not start.
        """
        second = copy(self)
        second._stack = self._stack.enter_context(ExitStack())  # noqa: SLF001 - of this class
        second._prepare()  # noqa: SLF001
        return second

    def _prepare(self) -> None:
        """Start the servers and make the shared place, which only one clause uses at a time."""
        self.urls: dict[str, str] = {}
        self.servers: dict[str, Any] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self.shared_results: dict[str, Any] = {}  # made by one clause and used by others too, by name
        self._start_servers()
        self.shared_place = SharedPlace(self)
        self._stack.callback(self.shared_place.close)

    def _start_ahead(self) -> dict[str, Future[Any]]:
        """Start the server that a URL is sure to need, while the target is imported."""
        option = None if self.target.use_server else _WANTED.get((self.target.url or "").partition("://")[0])
        if option is None:
            return {}
        servers = self._stack.enter_context(ExitStack())
        thread = self._stack.enter_context(ThreadPoolExecutor(1))  # closed, and so waited for, before `servers`
        return {option: thread.submit(lambda: servers.enter_context(_SERVERS[option]()))}

    def _start_servers(self) -> None:
        for option, start in _SERVERS.items():
            if option in self.offer.options:
                group = _SERVER_GROUPS.get((self.target.url or "").partition("://")[0])
                if group is not None:  # its nodes tell clients their own addresses, so no proxy can stand between
                    self.urls[option] = self._stack.enter_context(group()).url
                    continue
                ahead = self._ahead.pop(option, None)
                self.servers[option] = server = ahead.result() if ahead else self._stack.enter_context(start())
                self.proxies[option] = proxy = self._stack.enter_context(FaultProxy(_address(server)))
                self.urls[option] = proxy.url

    def _probe(self) -> Opened:
        """Open an instance once, to find its shape. Raises TargetError."""
        worker = self.fork_server.worker()
        place = self.new_place()
        began = time.monotonic()
        try:
            opened = worker.ask(Open("probe", str(place), self.urls), OPEN_PATIENCE)
            assert isinstance(opened, Opened)  # noqa: S101 - the worker's protocol
            self.open_seconds = self.patience.usual = time.monotonic() - began
            self._preload(worker)
            self.smoke = self._smoke_test(worker, opened)
            if self.smoke is None:
                worker.ask(Close("probe"), OPEN_PATIENCE)
        except JobFailed as exc:
            raise TargetError(
                str(exc) if exc.report.hopeless else f"the factory does not open: {exc}\n{exc.report.fault.trace}"
            ) from exc
        except StillBusy:
            raise TargetError(f"the factory had not opened a store after {OPEN_PATIENCE:.0f} s") from None
        except WorkerDied as exc:
            raise TargetError(f"the factory took its process along: status {exc.status}") from exc
        finally:
            self.fork_server.rest(worker)
            self.clean(place)
        return opened

    def _smoke_test(self, worker: WorkerProcess, opened: Opened) -> str | None:
        """Append one turn and read it back. Returns why that fails, or None; contents are not judged."""
        turn = (SentMessage("user", "smoke 1"), SentMessage("assistant", "smoke 2"))[
            : 1 if opened.unit == "message" else 2
        ]
        for step in (Step("append", "smoke", (turn,)), Step("read", "smoke")):
            try:
                done = worker.ask(Do("probe", (CallerSteps("smoke", (step,)),)), SMOKE_PATIENCE)
            except StillBusy:
                return f"{describe_step(step)} had not returned after {SMOKE_PATIENCE:.0f} s; it is at {worker.stack()}"
            except WorkerDied as exc:
                return f"{describe_step(step)} took its process along: status {exc.status}"
            if (
                isinstance(done, Done)
                and (fault := done.outcomes[0][0].fault) is not None
                and not is_not_offered(fault)
            ):
                passed_dicts = step.op == "append" and not self.offer.message and opened.shape not in STRINGS
                return f"{describe_step(step)} raised {fault}" + (f". {DICTS}" if passed_dicts else "")
        return None

    def _preload(self, worker: WorkerProcess) -> None:
        """Import in the fork server what opening the store imported, so that no other worker has to."""
        loaded = worker.ask(Modules(), OPEN_PATIENCE)
        if isinstance(loaded, Loaded):
            self.fork_server.preload(loaded.names)

    def _offered(self) -> frozenset[str]:
        offered = set(self.opened.operations) | set(self.offer.options)
        if self.opened.unit != "message":
            offered.add("whole_turns")
        if self.opened.unit == "turn":
            offered.add("lists")
        if "caller_orders" not in offered:
            offered.add("appends")  # it is the store that orders concurrent appends, not the caller
        if self.offer.processes:
            offered.add("processes")
            if not self.urls and not self.target.use_server:
                offered.add("files")
                if can_watch():
                    offered.add("system_calls")
        if self.opened.awaited:
            offered.add("tasks")
        elif self.offer.share_threads:
            offered.add("threads")
        if self.opened.twins:
            offered.add("twins")
        if self.offer.pays_once:
            offered.add("pays_once")
        if self.offer.corrupt:
            offered.add("corrupt")
        if self.proxies:
            offered.add("server")
        if not self.target.use_server:
            offered.add("private")
        return frozenset(offered)

    # --- directories -------------------------------------------------------------------------------------------------

    def new_place(self) -> Path:
        place = self.root / f"p{next(self._folders)}_{secrets.token_hex(4)}"
        place.mkdir()
        return place

    def new_folder(self, name: str) -> Path:
        folder = self.root / f"{name}_{next(self._folders)}"
        folder.mkdir()
        return folder

    def clean(self, place: Path) -> None:
        """Remove a place; if the factory has `cleanup`, also what it left on a server."""
        if self.offer.cleanup:
            worker = self.fork_server.worker()
            try:
                worker.ask(FactoryHook("cleanup", str(place)), LONGEST_CALL)
            except (JobFailed, StillBusy, WorkerDied):
                worker.usable = False
            self.fork_server.rest(worker)
        shutil.rmtree(place, ignore_errors=True)
