"""A world on SQLite: several processes on one real file, on one machine whose clock is set and whose disk fills.

Every call of the real backend runs to its end at once; before and behind each is a moment in which others run, or the
process dies.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

import everturn
from everturn.backend import Backend
from everturn.backends.sqlite.backend import SqliteBackend
from everturn.backends.sqlite.database import Database
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.leases import LeaseRow, Served
from tests.simulation.network import Attempt
from tests.simulation.schedules import Fault, Schedule
from tests.simulation.world import Outcome, World

DISK = "everturn-simulated-disk"
MEMORY = Path("/dev/shm")  # where the system has it: thousands of files a minute are no work for a disk
FILE = "store.db"
SLACK = 0.1  # seconds by which a session may expire early: what a backend allows for readings of two clocks
_FACTS = "SELECT life, version FROM sessions WHERE session_id = ? AND ended = 0"
_LEASE = "SELECT token, holder, until, life FROM leases WHERE session_id = ?"


class FullDisk(apsw.VFS):
    """The default VFS, on which nothing can be written while it `is_full`."""

    def __init__(self) -> None:
        self.is_full = False
        super().__init__(DISK, base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: FullDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        if self._disk.is_full:
            raise apsw.FullError("simulated")
        super().xWrite(data, offset)


class Files:
    """A folder with an empty store, which each schedule gets a copy of.

    On a disk that fills, one without page checksums: those would need the VFS that this disk is instead of.
    """

    def __enter__(self) -> Self:
        self.disk = FullDisk()
        self._folder = tempfile.mkdtemp(prefix="everturn-simulation-", dir=MEMORY if MEMORY.is_dir() else None)
        self._empty, self._plain = Path(self._folder) / "empty.db", Path(self._folder) / "plain.db"
        everturn.open(f"sqlite:///{self._empty}", synchronous="off").close()
        everturn.open(f"sqlite:///{self._plain}", synchronous="off", page_checksums=False).close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder)
        self.disk.unregister()

    def new(self, *, fills: bool) -> str:
        path = Path(self._folder) / FILE
        for old in Path(self._folder).glob(f"{FILE}*"):
            old.unlink()
        shutil.copyfile(self._plain if fills else self._empty, path)
        return str(path)


class Process:
    """The backend of one process: every call of the real one, with a moment before it and one behind it."""

    def __init__(self, world: SqliteWorld, host: Host) -> None:
        self._world = world
        self._host = host
        self._backend: Any = None
        self._counts: dict[int, int] = {}

    def open(self) -> None:
        if self._backend is None:
            self._backend = self._world.opened(self._host)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any) -> Any:
            return await self._run(name, args)

        return call

    async def _run(self, name: str, args: tuple[Any, ...]) -> Any:
        world, host = self._world, self._host
        task = world.scheduler.task
        assert task is not None
        op = task.tag
        number = self._counts[op.id] = self._counts.get(op.id, 0) + 1
        delivery = world.deliveries.of(f"{op.id} {name} {number}")
        await host.sleep(delivery.out)
        self.open()
        session = op.target if op.kind == "fork" else op.session
        attempt = Attempt(op, host, f"{name} {number}", world.scheduler.now, host.true(args[-1]))
        before, lease = world.facts(session), world.judge.leases.note(session)
        try:
            return await getattr(self._backend, name)(*args)
        finally:
            after = world.facts(session)
            if world.has_leases:
                world.judge.served(attempt, session, Served(lease, before, after))
            if after != before:
                world.tell("file", f"has {op.id} {name} {number} of {host.name}")
                continues = before is not None and after is not None and before[0] == after[0]
                world.judge.applied(attempt, session, continues=continues)
            if delivery.kind == "dies":
                world.tell(host.name, "is killed")
                host.kill()
                # Never awake again: a killed process neither returns nor raises.
            await host.sleep(delivery.back)


class SqliteWorld(World):
    """Processes of one machine on one file."""

    def __init__(self, schedule: Schedule, files: Files) -> None:
        self.wall = Clock(EPOCH)
        super().__init__(schedule)
        self._files = files
        self._fills = any(fault.kind == "full" for fault in schedule.faults)
        self._path = files.new(fills=self._fills)
        self._databases: list[Database] = []
        for host in self.hosts:
            host.wall, host.monotonic_clock = self.wall, Clock(host.monotonic_clock.at(0.0))
        self._looking = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)
        self._observer: Any = None
        self.judge.early, self.judge.late = SLACK, float("inf")
        self.judge.leases.early, self.judge.leases.late = SLACK, float("inf")

    def run(self) -> Outcome:
        """Run, and leave out of what is told where this run had its file: the next has it elsewhere."""
        outcome = super().run()
        story = tuple((at, who, what.replace(self._path, FILE)) for at, who, what in outcome.story)
        findings = tuple(replace(one, text=one.text.replace(self._path, FILE)) for one in outcome.findings)
        return replace(outcome, story=story, findings=findings)

    def backend_for(self, host: Host) -> Backend:
        process: Any = Process(self, host)
        if not self.schedule.clients[self.hosts.index(host)].opens_late:
            process.open()
        return process  # type: ignore[no-any-return]

    def opened(self, host: Host) -> SqliteBackend:
        """Open the file in a process. Its time is the machine's; the observer's stands still, so that it sees all."""
        vfs = DISK if self._fills else None
        database = Database(self._path, namespace="", synchronous="OFF", vfs=vfs)
        database.open(host.clock() + self.schedule.timeout)
        if self.wall.error(self.scheduler.now):
            self.judge.misled.add(host.name)
        self._databases.append(database)
        backend: Any = SqliteBackend(database)
        scheduler = self.scheduler
        if host is self.observer:
            backend._clock = lambda: 0.0
        elif hasattr(backend, "_time"):
            backend._time = type(backend._time)(lambda: host.wall.at(scheduler.now), host.clock)
        else:
            backend._clock = lambda: host.wall.at(scheduler.now)
        return backend  # type: ignore[no-any-return]

    def facts(self, name: str) -> tuple[Any, ...] | None:
        return self._looking.execute(_FACTS, (name,)).fetchone()

    def lease_row(self, name: str) -> LeaseRow | None:
        found = self._looking.execute(_LEASE, (name,)).fetchone()
        return None if found is None else LeaseRow(*found)

    def observe(self) -> Backend:
        if self._observer is None:
            self._observer = self.opened(self.observer)
        return self._observer  # type: ignore[no-any-return]

    def store_time(self, moment: float) -> float:
        return EPOCH + moment

    def step(self, who: str, clock: Clock, fault: Fault) -> None:
        super().step("machine", self.wall, fault)

    def inject(self, fault: Fault) -> None:
        if fault.kind == "full":
            self.tell("disk", f"is full for {fault.seconds:.3f} s")
            self._files.disk.is_full = True
            self.scheduler.at(self.scheduler.now + fault.seconds, self.quiet)

    def quiet(self) -> None:
        self._files.disk.is_full = False

    def close(self) -> None:
        self.quiet()
        self._looking.close()
        for database in self._databases:
            database.close()
