"""A world on PostgreSQL: the real functions on a real private server, one request at a time, over a simulated network.

The time of the server is simulated beneath: everturn.now_v1 tells what the world says. Each schedule has a namespace of
its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import psycopg

from everturn.backend import Backend, drive
from everturn.backends.postgres import arrays, errors
from everturn.backends.postgres.backend import PostgresBackend
from everturn.backends.postgres.executor import BlockingExecutor, GivenClient, Rows, SqlCall
from everturn.backends.postgres.timed_connections import cursor_on
from everturn.errors import MemoryStoreBackendError
from everturn.testing.servers import postgres_server
from tests.simulation.hosts import EPOCH, Clock, Host
from tests.simulation.leases import LeaseRow, Served
from tests.simulation.network import Attempt, Network
from tests.simulation.schedules import Fault, Schedule
from tests.simulation.world import World

WHERE = "PostgreSQL"
SERVER = "server"
_NOW = """
    CREATE OR REPLACE FUNCTION everturn.now_v1(given double precision) RETURNS double precision
    LANGUAGE sql VOLATILE PARALLEL SAFE
    RETURN coalesce(given, pg_catalog.current_setting('everturn.simulated_now')::double precision)
"""
_FACTS = """
    SELECT pg_catalog.set_config('everturn.simulated_now', %s, false), (
        SELECT life || ' ' || version FROM everturn.sessions WHERE namespace = %s AND session_id = %s AND NOT ended)
"""

_LEASE = "SELECT token, holder, until, life FROM everturn.leases WHERE namespace = %s AND session_id = %s"


class Database:
    """A server with the schema in it, for any number of schedules."""

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        server = self._stack.enter_context(postgres_server(fsync="off", synchronous_commit="off"))
        self.connection: psycopg.Connection[Any] = self._stack.enter_context(
            psycopg.connect(server.url, autocommit=True)
        )
        arrays.register(self.connection)
        executor = BlockingExecutor(GivenClient(self.connection, WHERE), WHERE)
        drive(PostgresBackend(executor, warnings=False).prepare(float("inf")))
        self.connection.execute(_NOW)
        self._count = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def new_namespace(self) -> str:
        self._count += 1
        return f"schedule {self._count}"

    def run(self, call: SqlCall) -> Rows:
        """Carry out one request. Raises MemoryStoreBackendError."""
        with errors.translated(WHERE) as fault:
            fault.sent = call.writes
            cursor = cursor_on(self.connection)
            cursor.execute(call.statement, call.parameters, prepare=True)
            return cursor.fetchall()

    def facts(self, now: float, namespace: str, name: str) -> str | None:
        """Set the server's clock; life and version of a session."""
        row = self.connection.execute(_FACTS, (repr(now), namespace, name), prepare=True).fetchone()
        assert row is not None
        return row[1]  # type: ignore[no-any-return]


class SimulatedExecutor:
    """The connections of one process: every request is the network's."""

    name = WHERE

    def __init__(self, world: PostgresWorld, host: Host) -> None:
        self._world = world
        self._host = host

    async def run(self, call: SqlCall, deadline: float) -> Rows:
        world = self._world
        rows: Rows = await world.network.exchange(
            self._host, SERVER, call, world.names.get(call.statement, "a statement"), deadline, change=call.writes
        )
        return rows

    async def run_script(self, scripts: list[SqlCall], deadline: float) -> Rows:
        raise AssertionError("the schema is there already")

    async def close(self) -> None: ...


class ObservingExecutor(SimulatedExecutor):
    """The observer's connection: no network, no time."""

    async def run(self, call: SqlCall, deadline: float) -> Rows:
        self._world.facts("")
        return self._world.database.run(call)


class SimulatedBackend(PostgresBackend):
    """The real backend; while it waits, others run."""

    def __init__(self, world: PostgresWorld, executor: SimulatedExecutor, host: Host) -> None:
        super().__init__(executor, namespace=world.namespace, warnings=False)
        self._host = host
        self._ready = True
        world.names.update({statement: name for name, statement in self._sql.items()})

    async def _pause(self, seconds: float) -> None:
        await self._host.sleep(seconds)


class PostgresWorld(World):
    """Clients, a network, one server."""

    def __init__(self, schedule: Schedule, database: Database) -> None:
        server = schedule.servers[0]
        self.clock = Clock(EPOCH + server.ahead, server.rate)
        super().__init__(schedule)
        self.database = database
        self.namespace = database.new_namespace()
        self.names: dict[str, str] = {}
        self.network = Network(self.scheduler, self.deliveries, self._deliver, _gone, _unsent, self.tell)
        self._observer = SimulatedBackend(self, ObservingExecutor(self, self.observer), self.observer)

    def backend_for(self, host: Host) -> Backend:
        return SimulatedBackend(self, SimulatedExecutor(self, host), host)

    def observe(self) -> Backend:
        return self._observer

    def store_time(self, moment: float) -> float:
        return self.clock.at(moment)

    def clock_steps(self, first: float, last: float) -> list[float]:
        return self.clock.steps_between(first, last)

    def facts(self, name: str) -> str | None:
        return self.database.facts(self.store_time(self.scheduler.now), self.namespace, name)

    def lease_row(self, name: str) -> LeaseRow | None:
        found = self.database.connection.execute(_LEASE, (self.namespace, name), prepare=True).fetchone()
        return None if found is None else LeaseRow(*found)

    def _deliver(self, server: Any, attempt: Attempt, call: SqlCall, most: int | None) -> Rows:
        op = attempt.op
        name = op.target if op.kind == "fork" else op.session
        before, lease = self.facts(name), self.judge.leases.note(name)
        try:
            return self.database.run(call)
        finally:
            after = self.facts(name) if call.writes else before
            if self.has_leases:
                facts = (None if one is None else one.split() for one in (before, after))
                self.judge.served(attempt, name, Served(lease, *facts))
            if after != before:
                self.tell(SERVER, f"applies {attempt.name} of {attempt.host.name}")
                continues = before is not None and after is not None and before.split()[0] == after.split()[0]
                self.judge.applied(attempt, name, continues=continues)

    def inject(self, fault: Fault) -> None:
        now = self.scheduler.now
        match fault.kind:
            case "unreachable":
                host = self.hosts[fault.who % len(self.hosts)]
                self.tell(host.name, f"reaches nobody for {fault.seconds:.3f} s")
                self.network.unreachable[host.name] = now + fault.seconds
            case "pause":
                self.tell(SERVER, f"is paused for {fault.seconds:.3f} s")
                self.network.until[SERVER] = now + fault.seconds
            case "step":
                back = now if fault.lose < 0 else now + fault.seconds if fault.seconds else None
                if back is not None:
                    self.judge.relaxed_from = min(self.judge.relaxed_from, back)
                self.step(SERVER, self.clock, fault)

    def quiet(self) -> None: ...

    def close(self) -> None: ...


def _gone(exc: BaseException, *, change: bool) -> MemoryStoreBackendError:
    if isinstance(exc, TimeoutError):
        outcome = errors.translated(WHERE)
        outcome.sent = change
        try:
            with outcome:
                raise errors.TimeUp
        except MemoryStoreBackendError as error:
            return error
    return errors.from_driver(psycopg.OperationalError(str(exc)), WHERE, sent=change)


def _unsent(exc: BaseException) -> MemoryStoreBackendError:
    return errors.from_driver(psycopg.OperationalError(str(exc)), WHERE, sent=False)
