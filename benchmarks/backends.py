"""The servers that stores are compared on: how each is started, its durability, and its contenders.

One server for all contenders of a backend, so its settings are the same for everyone.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from everturn.bench.contenders import Entrant
from everturn.testing.servers import postgres_server, valkey_server


@dataclass(frozen=True)
class Running:
    """A server that is up. `seconds` returns the processor seconds that all its processes have used so far."""

    url: str
    version: str
    seconds: Callable[[], float]
    pids: Sequence[int]


@dataclass(frozen=True)
class MeasuredBackend:
    """One kind of server, and its contenders."""

    name: str
    durability: str
    run: Callable[[], AbstractContextManager[Running]]
    ours: Entrant
    ours_async: Entrant
    bare: Entrant
    twin: Entrant  # of the bare driver: to see the noise of the method
    peers: tuple[Entrant, ...]
    read_bar: float  # of the 20 latest messages, over the bare driver

    @property
    def everyone(self) -> tuple[Entrant, ...]:
        """Every contender, everturn first."""
        return self.ours, self.ours_async, self.bare, self.twin, *self.peers


@contextmanager
def _valkey() -> Iterator[Running]:
    with valkey_server(appendonly=True, appendfsync="everysec") as server:
        about = server.info("server")
        name = "valkey" if "valkey_version" in about else "redis"
        yield Running(
            server.url, f"{name.title()} {about[f'{name}_version']}", lambda: _seconds_of(server.pids), server.pids
        )


@contextmanager
def _postgres() -> Iterator[Running]:
    import psycopg

    with postgres_server() as server:
        with psycopg.connect(server.url) as connection:
            [(version,)] = connection.execute("SHOW server_version").fetchall()
        yield Running(server.url, f"PostgreSQL {version}", lambda: _seconds_of(server.pids), server.pids)


@contextmanager
def apart(server: Running) -> Iterator[None]:
    """Give the server a processor of its own, and the others to processes that are started meanwhile.

    Otherwise the kernel puts one contender on the server's processor and the next on another, and a round trip is twice
    as fast for one of them. Does nothing on a machine with one processor.
    """
    if not hasattr(os, "sched_setaffinity") or len(all_ := os.sched_getaffinity(0)) < 2:
        yield
        return
    its_own = {max(all_)}
    for process in server.pids:
        with suppress(ProcessLookupError):  # one of PostgreSQL's that has ended
            os.sched_setaffinity(process, its_own)
    os.sched_setaffinity(0, all_ - its_own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_)


def _seconds_of(processes: Sequence[int]) -> float:
    """Processor seconds of these, and of the children they have waited for. 0 where there is no /proc."""
    ticks = 0
    for process in processes:
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue  # it has ended: its parent has its seconds
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _home(target: str) -> str:
    """The package of a contender: bare drivers are in the wheel, for `everturn bench`."""
    return "everturn.bench.contenders" if target.startswith("bare:") else "benchmarks.contenders"


def _on_redis(title: str, target: str, *distributions: str) -> Entrant:
    return Entrant(title, f"{_home(target)}.on_redis.{target}", (*distributions, "redis", "hiredis"))


def _on_postgres(title: str, target: str, *distributions: str) -> Entrant:
    return Entrant(title, f"{_home(target)}.on_postgres.{target}", (*distributions, "psycopg", "psycopg-pool"))


_OURS = Entrant("everturn", "everturn.bench.contenders.everturn_store:Everturn", ("everturn",))
_OURS_ASYNC = Entrant("everturn async", "everturn.bench.contenders.everturn_store:AsyncEverturn", ("everturn",))

REDIS = MeasuredBackend(
    "Redis",
    "appendonly yes, appendfsync everysec",
    _valkey,
    ours=_OURS,
    ours_async=_OURS_ASYNC,
    bare=_on_redis("bare RPUSH", "bare:BareRedis"),
    twin=_on_redis("its twin", "bare:BareRedis"),
    peers=(
        _on_redis("OpenAI Agents RedisSession", "openai_agents:OpenAIRedisSession", "openai-agents"),
        _on_redis("LangChain RedisChatMessageHistory", "langchain:LangChainRedisHistory", "langchain-community"),
    ),
    read_bar=1.5,
)

POSTGRES = MeasuredBackend(
    "PostgreSQL",
    "as it comes: fsync and synchronous_commit on",
    _postgres,
    ours=_OURS,
    ours_async=_OURS_ASYNC,
    bare=_on_postgres("bare INSERT", "bare:BarePostgres"),
    twin=_on_postgres("its twin", "bare:BarePostgres"),
    peers=(
        _on_postgres(
            "LangChain PostgresChatMessageHistory", "langchain:LangChainPostgresHistory", "langchain-postgres"
        ),
        _on_postgres(
            "LangGraph PostgresSaver", "langgraph:LangGraphPostgresSaver", "langgraph", "langgraph-checkpoint-postgres"
        ),
    ),
    read_bar=1.3,
)

BACKENDS = (REDIS, POSTGRES)
