"""One run of the kit on one target: its nursery, its private servers, its directories, its clock.

It knows no clause. Started and ended by runner.py.
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
from everturn.testing.kit.clause import is_not_offered, said
from everturn.testing.kit.shared_store import Common
from everturn.testing.kit.target import Target, TargetError
from everturn.testing.servers import postgres_server, valkey_cluster, valkey_sentinel, valkey_server
from everturn.testing.shapes import Said
from everturn.testing.workers.controller import Nursery, OrderFailed, StillBusy, WorkerDied, WorkerProcess
from everturn.testing.workers.messages import Close, Do, Done, Lane, Loaded, Modules, Open, Opened, Step, Tell

LONGEST_CALL = 30.0  # seconds after which a call counts as one that never returns
NEXT_LONGEST = 5.0  # the same, once a call of this run did not return
OPEN_PATIENCE = 60.0
SMOKE_PATIENCE = 15.0
_ROOM = 2**30


def _cluster() -> Any:
    return valkey_cluster(masters=3, replicas=0)


def _postgres() -> Any:
    # It is killed, and never loses its power: syncs would prove nothing here, and they take a tenth of a run.
    return postgres_server(fsync=False, full_page_writes=False, autovacuum=False, jit=False)


_FLEETS: dict[str, Any] = {"redis+cluster": _cluster, "redis+sentinel": valkey_sentinel}
_SERVERS: dict[str, Any] = {"redis_url": valkey_server, "postgres_url": _postgres}
_WANTED = {"redis": "redis_url", "postgresql": "postgres_url", "postgres": "postgres_url"}  # by a URL's scheme


def _quick_disk() -> str | None:
    """A file system in memory, if it has room: kill -9 leaves it as it is, and syncs cost nothing there."""
    memory = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free >= _ROOM else None


class Run:
    """What all clauses of a run share."""

    def __init__(self, target: Target, *, seed: int, quick: bool) -> None:
        """Import the target, start its servers, open it once. Raises TargetError if any of it cannot be done."""
        self.target = target
        self.seed = seed
        self.quick = quick
        self.sessions = count(1)  # one number for all clauses: they share a place, or think that they do not
        self.turns = count(1)
        self._folders = count(1)
        self._ends = time.monotonic() + 10**6
        self._hangs: list[float] = []  # shared by all lanes
        self._stack = ExitStack()
        try:
            self.root = Path(tempfile.mkdtemp(prefix="everturn-kit-", dir=_quick_disk()))
            self._stack.callback(shutil.rmtree, self.root, ignore_errors=True)
            self._ahead = self._start_ahead()
            self.nursery = self._stack.enter_context(Nursery(target, self.root))
            self.offer = self.nursery.offer
            self._furnish()
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

    def beside(self) -> Run:
        """A second lane of this run: the same nursery, but servers and a shared place of its own. Closed with the run.

        Raises ServerError if its servers do not start.
        """
        lane = copy(self)
        lane._stack = self._stack.enter_context(ExitStack())  # noqa: SLF001 - it is this class's own
        lane._furnish()  # noqa: SLF001
        return lane

    def _furnish(self) -> None:
        """What clauses use one at a time."""
        self.urls: dict[str, str] = {}
        self.servers: dict[str, Any] = {}
        self.proxies: dict[str, FaultProxy] = {}
        self.shared: dict[str, Any] = {}  # what one clause made and others look at, too
        self._start_servers()
        self.common = Common(self)
        self._stack.callback(self.common.retire)

    def _start_ahead(self) -> dict[str, Future[Any]]:
        """Start the server that a URL will need for sure, while the target is imported."""
        option = None if self.target.use_server else _WANTED.get((self.target.url or "").partition("://")[0])
        if option is None:
            return {}
        servers = self._stack.enter_context(ExitStack())
        hand = self._stack.enter_context(ThreadPoolExecutor(1))  # which is waited for before `servers` end
        return {option: hand.submit(lambda: servers.enter_context(_SERVERS[option]()))}

    def _start_servers(self) -> None:
        for option, start in _SERVERS.items():
            if option in self.offer.options:
                fleet = _FLEETS.get((self.target.url or "").partition("://")[0])
                if fleet is not None:  # its servers tell clients where they are: no proxy can come between
                    self.urls[option] = self._stack.enter_context(fleet()).url
                    continue
                ahead = self._ahead.pop(option, None)
                self.servers[option] = server = ahead.result() if ahead else self._stack.enter_context(start())
                self.proxies[option] = proxy = self._stack.enter_context(FaultProxy(server.url))
                self.urls[option] = proxy.url

    def _probe(self) -> Opened:
        """Open an instance once, to see what shape it has."""
        worker = self.nursery.worker()
        place = self.new_place()
        began = time.monotonic()
        try:
            opened = worker.ask(Open("probe", str(place), self.urls), OPEN_PATIENCE)
            assert isinstance(opened, Opened)  # noqa: S101 - the worker's protocol
            self.open_seconds = time.monotonic() - began
            self._preload(worker)
            self.smoke = self._smoke_test(worker, opened)
            if self.smoke is None:
                worker.ask(Close("probe"), OPEN_PATIENCE)
        except OrderFailed as exc:
            raise TargetError(
                str(exc) if exc.report.hopeless else f"the factory does not open: {exc}\n{exc.report.fault.trace}"
            ) from exc
        except StillBusy:
            raise TargetError(f"the factory had not opened a store after {OPEN_PATIENCE:.0f} s") from None
        except WorkerDied as exc:
            raise TargetError(f"the factory took its process along: status {exc.status}") from exc
        finally:
            self.nursery.rest(worker)
            self.clean(place)
        return opened

    def _smoke_test(self, worker: WorkerProcess, opened: Opened) -> str | None:
        """Append one turn and read it back: why that cannot be done at all, or None. Contents are not judged."""
        turn = (Said("user", "smoke 1"), Said("assistant", "smoke 2"))[: 1 if opened.unit == "message" else 2]
        for step in (Step("append", "smoke", (turn,)), Step("read", "smoke")):
            try:
                done = worker.ask(Do("probe", (Lane("smoke", (step,)),)), SMOKE_PATIENCE)
            except StillBusy:
                return f"{said(step)} had not returned after {SMOKE_PATIENCE:.0f} s; it is at {worker.stack()}"
            except WorkerDied as exc:
                return f"{said(step)} took its process along: status {exc.status}"
            if isinstance(done, Done) and (fault := done.lanes[0][0].fault) is not None and not is_not_offered(fault):
                return f"{said(step)} raised {fault}"
        return None

    def _preload(self, worker: WorkerProcess) -> None:
        """Import in the nursery what opening the store imported: no other worker need do it again."""
        loaded = worker.ask(Modules(), OPEN_PATIENCE)
        if isinstance(loaded, Loaded):
            self.nursery.preload(loaded.names)

    def _offered(self) -> frozenset[str]:
        offered = set(self.opened.operations) | set(self.offer.options)
        if self.opened.unit != "message":
            offered.add("whole_turns")
        if self.opened.unit == "turn":
            offered.add("lists")
        if "checkpoints" not in offered:
            offered.add("appends")  # concurrent appends are the store's business, and not the caller's
        if self.offer.processes:
            offered.add("processes")
            if not self.urls and not self.target.use_server:
                offered.add("files")
        if self.opened.awaited:
            offered.add("tasks")
        elif self.offer.share_threads:
            offered.add("threads")
        if self.opened.twins:
            offered.add("twins")
        if self.offer.corrupt:
            offered.add("corrupt")
        if self.proxies:
            offered.add("server")
        if not self.target.use_server:
            offered.add("private")
        return frozenset(offered)

    # --- time --------------------------------------------------------------------------------------------------------

    def end_at(self, moment: float) -> None:
        """Let no call wait beyond this moment (monotonic)."""
        self._ends = moment

    def patience(self) -> float:
        """How long a call may take from now on: not long, once another did not return, or a run would take an hour."""
        return max(min(NEXT_LONGEST if self._hangs else LONGEST_CALL, self._ends - time.monotonic()), 0.05)

    def saw_hang(self) -> None:
        """Note that a call did not return in time."""
        self._hangs.append(time.monotonic())

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
        """Remove what was left at a place, on a server too, where the factory knows how."""
        if self.offer.cleanup:
            worker = self.nursery.worker()
            try:
                worker.ask(Tell("cleanup", str(place)), LONGEST_CALL)
            except (OrderFailed, StillBusy, WorkerDied):
                worker.usable = False
            self.nursery.rest(worker)
        shutil.rmtree(place, ignore_errors=True)
