"""A turn and 1,000 messages through each adapter, beside the framework's own store on the same backend."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.backends import POSTGRES, REDIS, MeasuredBackend, apart
from benchmarks.plan import Bar, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.rows.append import append_round
from benchmarks.rows.load import MESSAGES, load_round
from benchmarks.stats import ratio
from everturn.bench.contenders import Entrant, Place
from everturn.bench.contenders.process import ContenderError, ContenderProcess

TURNS = 10
FEW = 4  # turns of a round on a thread that has 1,000 messages: they make it longer
AHEAD = Bar(">=", 1.0)


@dataclass(frozen=True)
class AdapterPair:
    """An adapter of ours, and the framework's own store. `grows`: an append costs more the longer the history is, so it
    is measured at 1,000 messages, too."""

    ours: Entrant
    theirs: Entrant
    grows: bool = False


def _ours(title: str, target: str, *distributions: str) -> Entrant:
    return Entrant(title, f"benchmarks.contenders.frameworks.{target}", ("everturn", *distributions))


def _theirs(title: str, target: str, *distributions: str) -> Entrant:
    return Entrant(title, f"benchmarks.contenders.{target}", distributions)


_LANGCHAIN = _ours("EverturnChatMessageHistory", "langchain:EverturnUnderLangChain", "langchain-core")
_AGENTS = _ours("EverturnSession", "openai_agents:EverturnUnderOpenAIAgents", "openai-agents")
_MEMORY = _ours("EverturnDBChatStore", "llama_index:EverturnUnderLlamaIndex", "llama-index-core")
_BY_MESSAGE = _ours("EverturnChatStore", "llama_index:EverturnByMessage", "llama-index-core")
_SQLALCHEMY = _theirs(
    "LlamaIndex SQLAlchemyChatStore",
    "frameworks.llama_index:LlamaIndexSQLAlchemyStore",
    "llama-index-core",
    "SQLAlchemy",
)


def _redis_chat_store(name: str) -> Entrant:
    return _theirs(
        "LlamaIndex RedisChatStore", f"frameworks.llama_index:{name}", "llama-index-storage-chat-store-redis", "redis"
    )


_ADK = _ours("EverturnSessionService", "google_adk:EverturnUnderADK", "google-adk")
_ADK_DATABASE = _theirs(
    "ADK DatabaseSessionService", "frameworks.google_adk:AdkDatabaseService", "google-adk", "SQLAlchemy"
)
_LANGGRAPH = _ours("EverturnSaver", "langgraph:EverturnUnderLangGraph", "langgraph", "langgraph-checkpoint")

ON_SQLITE = (
    AdapterPair(
        _LANGCHAIN,
        _theirs(
            "LangChain SQLChatMessageHistory",
            "on_sqlite.langchain:LangChainSQLHistory",
            "langchain-community",
            "SQLAlchemy",
        ),
    ),
    AdapterPair(
        _AGENTS, _theirs("OpenAI Agents SQLiteSession", "on_sqlite.openai_agents:OpenAISQLiteSession", "openai-agents")
    ),
    AdapterPair(_MEMORY, _SQLALCHEMY),
    AdapterPair(
        _ADK, _theirs("ADK SqliteSessionService", "on_sqlite.google_adk:AdkSqliteService", "google-adk", "aiosqlite")
    ),
    AdapterPair(_ADK, _ADK_DATABASE),
    AdapterPair(
        _LANGGRAPH,
        _theirs(
            "LangGraph SqliteSaver",
            "on_sqlite.langgraph:LangGraphSqliteSaver",
            "langgraph",
            "langgraph-checkpoint-sqlite",
        ),
        grows=True,
    ),
)
ON_REDIS = (
    AdapterPair(
        _LANGCHAIN,
        _theirs(
            "LangChain RedisChatMessageHistory",
            "on_redis.langchain:LangChainRedisHistory",
            "langchain-community",
            "redis",
        ),
    ),
    AdapterPair(
        _AGENTS,
        _theirs("OpenAI Agents RedisSession", "on_redis.openai_agents:OpenAIRedisSession", "openai-agents", "redis"),
    ),
    AdapterPair(_MEMORY, _redis_chat_store("LlamaIndexRedisStoreAsync")),
    AdapterPair(_BY_MESSAGE, _redis_chat_store("LlamaIndexRedisStore")),
    AdapterPair(
        _ADK, _theirs("ADK RedisSessionService", "frameworks.google_adk:AdkRedisService", "google-adk", "redis")
    ),
    AdapterPair(
        _LANGGRAPH,
        _theirs(
            "LangGraph ValkeySaver",
            "frameworks.langgraph:LangGraphValkeySaver",
            "langgraph",
            "langgraph-checkpoint-aws",
            "valkey",
        ),
        grows=True,
    ),
)
ON_POSTGRES = (
    AdapterPair(
        _LANGCHAIN,
        _theirs(
            "LangChain PostgresChatMessageHistory",
            "on_postgres.langchain:LangChainPostgresHistory",
            "langchain-postgres",
        ),
    ),
    AdapterPair(
        _AGENTS,
        _theirs(
            "OpenAI Agents SQLAlchemySession",
            "frameworks.openai_agents:OpenAISQLAlchemySession",
            "openai-agents",
            "SQLAlchemy",
        ),
    ),
    AdapterPair(_MEMORY, _SQLALCHEMY),
    AdapterPair(_ADK, _ADK_DATABASE),
    AdapterPair(
        _LANGGRAPH,
        _theirs(
            "LangGraph PostgresSaver",
            "on_postgres.langgraph:LangGraphPostgresSaver",
            *("langgraph", "langgraph-checkpoint-postgres", "psycopg"),
        ),
        grows=True,
    ),
)


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline: the framework's own store with its defaults, through the same interface. Ratios say how much faster
    the adapter is."""
    yield from _operations(plan, "SQLite", ON_SQLITE, None)
    for backend, pairs in ((REDIS, ON_REDIS), (POSTGRES, ON_POSTGRES)):
        yield from _on_server(plan, backend, pairs)


def _on_server(plan: RunPlan, backend: MeasuredBackend, pairs: Sequence[AdapterPair]) -> Iterator[TableRow]:
    with backend.run() as server, apart(server):
        yield from _operations(plan, backend.name, pairs, server.url)


def _operations(plan: RunPlan, backend: str, pairs: Sequence[AdapterPair], url: str | None) -> Iterator[TableRow]:
    for pair in pairs:
        with ExitStack() as stack:
            started: dict[Entrant, ContenderProcess] = {}
            for entrant in (pair.ours, pair.theirs):
                place: Place = (
                    plan.path(f"adapters/{backend}/{pair.theirs.title}/{entrant.title}") if url is None else url
                )
                started[entrant] = stack.enter_context(ContenderProcess(entrant, place))
            pool = stack.enter_context(ThreadPoolExecutor(len(started)))  # filling is not timed
            filled = [pool.submit(contender.append, "long", turns=MESSAGES // 2) for contender in started.values()]
            progress(f"writing {MESSAGES:,} messages to {pair.ours.title} and {pair.theirs.title}")
            try:
                for each in filled:
                    each.result()
            except ContenderError as exc:
                yield TableRow(f"{backend}: {pair.ours.title} and {pair.theirs.title}", "", str(exc))
                continue
            yield from _rows(plan, backend, pair, started)


def _rows(
    plan: RunPlan, backend: str, pair: AdapterPair, started: dict[Entrant, ContenderProcess]
) -> Iterator[TableRow]:
    appends = {entrant: append_round(contender, turns=TURNS) for entrant, contender in started.items()}
    loads = {entrant: load_round(contender, messages=MESSAGES) for entrant, contender in started.items()}
    work = [("append a turn", appends, plan.pick(40, 20)), ("load 1,000 messages", loads, plan.pick(20, 6))]
    if pair.grows:
        longer = {entrant: _longer_round(contender) for entrant, contender in started.items()}
        work.append(("append a turn at 1,000 messages", longer, plan.pick(20, 6)))  # last: it makes `long` longer
    for name, rounds, number in work:
        taken = interleave(rounds, rounds=number)
        yield TableRow(
            f"{backend}, {pair.ours.title}: {name}: times faster than {pair.theirs.title}",
            duration(statistics.median(taken[pair.ours])),
            duration(statistics.median(taken[pair.theirs])),
            ratio(taken[pair.theirs], taken[pair.ours]),
            bar=AHEAD,
        )


def _longer_round(contender: ContenderProcess) -> Callable[[], float]:
    """A round of appends to the session `long`: the median of the seconds each took."""
    numbers = itertools.count(MESSAGES // 2, FEW)
    return lambda: statistics.median(contender.append("long", turns=FEW, first=next(numbers)))
