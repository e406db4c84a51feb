"""Other stores' files come in whole, once, and are left as they were."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import apsw
import pytest
from agents.memory import SQLiteSession
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)

import everturn
from everturn.adapters.langchain import messages as langchain
from everturn.adapters.openai_agents import EverturnSession
from tests.cli.conftest import Run

ITEMS = [
    {"role": "user", "content": "Where is it?"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "in Bern"},
]
MESSAGES: list[BaseMessage] = [
    SystemMessage("You help."),
    HumanMessage("Where is it?", id="h1", additional_kwargs={"x": 1}),
    AIMessage(
        "",
        id="a1",
        tool_calls=[{"name": "track", "args": {"order": 1234}, "id": "c1", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "m"},
    ),
    ToolMessage("in Bern", tool_call_id="c1", status="error", name="track"),
    AIMessageChunk("It is "),
    FunctionMessage("f", name="g"),
    ChatMessage("other", role="critic"),
    HumanMessage([{"type": "text", "text": "Thanks"}]),
]


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    """Written by the SDK itself."""

    async def fill() -> None:
        for name in ("one", "two"):
            session = SQLiteSession(name, tmp_path / "agents.db")
            for _ in range(3):
                await session.add_items(ITEMS)
            session.close()

    asyncio.run(fill())
    return tmp_path / "agents.db"


@pytest.fixture
def langchain_file(tmp_path: Path) -> Path:
    """As SQLChatMessageHistory lays it out."""
    path = tmp_path / "langchain.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)")
    for name in ("a", "b"):
        for message in MESSAGES:
            row = (name, json.dumps(message_to_dict(message)))
            db.execute("INSERT INTO message_store (session_id, message) VALUES (?, ?)", row)
    db.close()
    return path


def fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_of_openai_agents(run: Run, agents_file: Path, tmp_path: Path) -> None:
    before, url = fingerprint(agents_file), f"sqlite:///{tmp_path / 'memory.db'}"
    ran = run("import", url, agents_file, "--from", "openai-agents")
    assert (ran.code, ran.out) == (0, "2 imported\n"), ran.err
    assert run("import", url, agents_file, "--from", "openai-agents").out == "2 already there\n"
    assert fingerprint(agents_file) == before
    with everturn.open(url) as store:
        assert asyncio.run(EverturnSession("one", store).get_items()) == ITEMS * 3
        assert store.verify().ok


def test_a_file_of_langchain(run: Run, langchain_file: Path, tmp_path: Path) -> None:
    before, url = fingerprint(langchain_file), f"sqlite:///{tmp_path / 'memory.db'}"
    assert run("import", url, langchain_file, "--from", "langchain").out == "2 imported\n"
    assert fingerprint(langchain_file) == before
    with everturn.open(url) as store:
        read = [langchain.from_entry(entry, lambda value: value) for entry in store.get_history("a")]
    assert [kind(**{k: v for k, v in fields.items() if k != "type"}) for kind, fields in read] == MESSAGES


def test_long_sessions_come_in_portions(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "agents.db"

    async def fill() -> None:
        session = SQLiteSession("long", path)
        await session.add_items([{"role": "user", "content": str(number)} for number in range(1234)])
        session.close()

    asyncio.run(fill())
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    assert run("import", url, path, "--from", "openai-agents").code == 0
    with everturn.open(url) as store:
        assert [message.text for message in store.get_history("long")] == [str(number) for number in range(1234)]


def test_a_session_that_is_another_is_left_alone(run: Run, agents_file: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        store.save_context("one", "mine", "yes")
    ran = run("import", url, agents_file, "--from", "openai-agents")
    assert ran.code == 1
    assert "conflict: 'one'" in ran.out
    with everturn.open(url) as store:
        assert len(store.get_history("one")) == 2
        assert len(store.get_history("two")) == 12


def test_files_that_are_none(run: Run, agents_file: Path, langchain_file: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    text = tmp_path / "notes.txt"
    text.write_text("notes " * 400)
    for words, told in [
        ([langchain_file, "--from", "openai-agents"], "its tables are message_store"),
        ([agents_file, "--from", "langchain"], "agent_messages"),
        ([langchain_file, "--from", "langchain", "--table", "nope"], "no such table"),
        ([text, "--from", "langchain"], "not a SQLite file"),
        ([tmp_path / "nowhere.db", "--from", "langchain"], "is not a file"),
        ([agents_file, "--from", "mem0"], "openai-agents or langchain"),
        (["--from", "langchain"], "needs a file"),
    ]:
        ran = run("import", url, *words)
        assert ran.code == 2
        assert told in ran.err
        assert len(ran.err.splitlines()) == 1
