"""The stores that are compared, and the three verbs each one is driven by.

A contender turns the workload's plain messages into its own kind before the clock starts, because making
them is the caller's work. Encoding and writing is the store's work and is timed. Each store keeps its
default settings, except that the bare driver is set to the durability everturn promises (WAL,
synchronous=FULL).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

Place: TypeAlias = Path | str
"""Where a contender keeps what it is given: an empty directory, or the URL of a server."""


class Contender(Protocol):
    """One store in one place."""

    def __init__(self, place: Place) -> None:
        """Open or make the database there."""

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """Append `turns` turns of two messages, numbered from `first`; seconds each one took."""

    def load(self, session_id: str) -> tuple[float, int]:
        """Read the whole session as the store's own objects: seconds, and how many messages came."""

    def close(self) -> None:
        """Let go of the file or the server."""


class Flooder(Contender, Protocol):
    """A store on a server, which many tasks of one event loop can use at once."""

    def flood(self, ids: Sequence[str], *, turns: int) -> float:
        """Append `turns` turns to each of these sessions, a task for each, all at once: the seconds for all of it."""


@dataclass(frozen=True)
class Entrant:
    """Where to find a contender without importing it here: some take seconds to import."""

    title: str
    target: str
    distributions: tuple[str, ...]


EVERTURN = Entrant("everturn", "everturn.bench.contenders.ours:Everturn", ("everturn", "apsw"))
EVERTURN_ASYNC = Entrant("everturn async", "everturn.bench.contenders.ours:AsyncEverturn", ("everturn", "apsw"))
BARE = Entrant("bare apsw, 2 rows", "everturn.bench.contenders.bare:Bare", ("apsw",))
BARE_SAME_ROWS = Entrant("bare apsw, same rows", "everturn.bench.contenders.bare:BareSameRows", ("apsw",))
TWIN = Entrant("its twin", "everturn.bench.contenders.bare:BareSameRows", ("apsw",))  # to see the noise of the method
PEERS = (
    Entrant("OpenAI Agents SQLiteSession", "everturn.bench.contenders.openai_agents:OpenAIAgents", ("openai-agents",)),
    Entrant(
        "LangChain SQLChatMessageHistory",
        "everturn.bench.contenders.langchain:LangChain",
        ("langchain-community", "SQLAlchemy"),
    ),
    Entrant(
        "LangGraph SqliteSaver",
        "everturn.bench.contenders.langgraph:LangGraph",
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Entrant("ADK SqliteSessionService", "everturn.bench.contenders.google_adk:GoogleADK", ("google-adk", "aiosqlite")),
)
