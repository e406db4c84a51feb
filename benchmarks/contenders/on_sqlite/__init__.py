"""Peers on SQLite."""

from everturn.bench.contenders import Entrant

PEERS = (
    Entrant(
        "OpenAI Agents SQLiteSession",
        "benchmarks.contenders.on_sqlite.openai_agents:OpenAISQLiteSession",
        ("openai-agents",),
    ),
    Entrant(
        "LangChain SQLChatMessageHistory",
        "benchmarks.contenders.on_sqlite.langchain:LangChainSQLHistory",
        ("langchain-community", "SQLAlchemy"),
    ),
    Entrant(
        "LangGraph SqliteSaver",
        "benchmarks.contenders.on_sqlite.langgraph:LangGraphSqliteSaver",
        ("langgraph", "langgraph-checkpoint-sqlite"),
    ),
    Entrant(
        "ADK SqliteSessionService",
        "benchmarks.contenders.on_sqlite.google_adk:AdkSqliteService",
        ("google-adk", "aiosqlite"),
    ),
)
