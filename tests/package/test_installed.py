"""The built wheel in empty environments, one for each extra, used far from the checkout: `make dist` runs this.

Needs a package index. Servers are started here and used from there.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from everturn.cli.app import COMMANDS
from everturn.testing.servers import dynamodb_server, postgres_server, valkey_server
from everturn.testing.servers.dynamodb import CREDENTIALS

WHEEL = os.environ.get("EVERTURN_WHEEL", "")
pytestmark = pytest.mark.skipif(not WHEEL, reason="needs a package index; make dist runs it on the wheel it has built")

STORE = """
import asyncio, everturn
store = everturn.open("sqlite:///memory.db")
"""
USES = {
    "vectors": STORE
    + """
import numpy
from everturn import Summary
store.add_summary("a", Summary("b", [0.0, 1.0], covers=(1, 1)))
assert store.search_summaries("a", numpy.array([0.0, 1.0]))[0].score == 1.0
""",
    "telemetry": STORE
    + """
import opentelemetry.metrics, opentelemetry.trace
store.save_context("a", "b", "c")
""",
    "servers": """
from everturn.testing.servers import postgres_server, valkey_server
with valkey_server() as one, postgres_server() as other:
    print(one.url, other.url)
""",
    "langchain": STORE
    + """
from everturn.adapters.langchain import EverturnChatMessageHistory
from langchain_core.messages import AIMessage
history = EverturnChatMessageHistory("a", store)
history.add_messages([AIMessage("b")])
assert history.messages == [AIMessage("b")]
""",
    "langgraph": STORE
    + """
from everturn.adapters.langgraph import EverturnSaver
from langgraph.graph import START, MessagesState, StateGraph
builder = StateGraph(MessagesState)
builder.add_node("bot", lambda state: {"messages": [("ai", "b")]})
builder.add_edge(START, "bot")
graph = builder.compile(checkpointer=EverturnSaver(store))
graph.invoke({"messages": [("user", "a")]}, {"configurable": {"thread_id": "a"}}, durability="sync")
assert [message.text for message in store.get_history("a")] == ["a", "b"]
""",
    "llama-index": STORE
    + """
from everturn.adapters.llama_index import EverturnDBChatStore
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
memory = Memory.from_defaults(session_id="a", chat_store=EverturnDBChatStore(store))
memory.put_messages([ChatMessage("b")])
assert [message.content for message in memory.get()] == ["b"]
""",
    "openai-agents": STORE
    + """
from everturn.adapters.openai_agents import EverturnSession
session = EverturnSession("a", store)
asyncio.run(session.add_items([{"role": "user", "content": "b"}]))
assert asyncio.run(session.get_items()) == [{"role": "user", "content": "b"}]
""",
    "google-adk": STORE
    + """
from everturn.adapters.google_adk import EverturnSessionService
service = EverturnSessionService(store)
of = {"app_name": "shop", "user_id": "ann", "session_id": "42"}
asyncio.run(service.create_session(**of, state={"b": 1}))
assert asyncio.run(service.get_session(**of)).state == {"b": 1}
""",
    "pydantic-ai": STORE
    + """
from everturn.adapters.pydantic_ai import EverturnConversationStore
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
async def main():
    conversations = EverturnConversationStore(store)
    result = await Agent("test").run("a", conversation=Conversation(conversation_id="a"))
    await conversations.save(result)
    assert len((await conversations.load("a")).messages) == 2
asyncio.run(main())
""",
    "fastapi": """
from everturn.adapters.fastapi import STORE_ERRORS, get_store, store_lifespan
from fastapi import FastAPI
app = FastAPI(lifespan=store_lifespan("sqlite:///memory.db"), exception_handlers=STORE_ERRORS)
""",
}
PROJECT = """
import sqlite3
import everturn
from everturn.testing import MemoryContract

def factory(where):
    return everturn.open(f"sqlite:///{where}/memory.db")

class TestOurStore(MemoryContract):
    target = staticmethod(factory)

def test_golden(snapshot_db):
    db = sqlite3.connect(snapshot_db.path)
    db.execute("CREATE TABLE t (a)")
    db.close()
"""

Environment = Callable[[str], Path]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Make an empty environment with the wheel and these extras, and return its folder of programs."""
    made: dict[str, Path] = {}

    def make(extras: str) -> Path:
        if extras not in made:
            folder = tmp_path_factory.mktemp("environment")
            venv.create(folder, with_pip=False, symlinks=True)
            wanted = f"everturn[{extras}] @ {Path(WHEEL).resolve().as_uri()}"
            words = ["--disable-pip-version-check", "--python", str(folder / "bin/python"), "install", "-q"]
            done = subprocess.run(
                [sys.executable, "-m", "pip", *words, "--no-compile", wanted],
                capture_output=True,
                text=True,
                check=False,
                timeout=1800,
            )
            assert done.returncode == 0, done.stderr
            made[extras] = folder / "bin"
        return made[extras]

    return make


def ran(
    bin_: Path, words: str | list[str], folder: Path, codes: tuple[int, ...] = (0,)
) -> subprocess.CompletedProcess[str]:
    """Run a program of an environment, as a person far from the checkout does."""
    program, *rest = shlex.split(words) if isinstance(words, str) else words
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))}
    variables = kept | {"PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [str(bin_ / program), *rest],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("extra", USES)
def test_an_extra_brings_what_it_needs(extra: str, environment: Environment, tmp_path: Path) -> None:
    ran(environment(extra), ["python", "-c", USES[extra]], tmp_path)


@pytest.mark.parametrize(
    ("extra", "server"), [("redis", valkey_server), ("postgres", postgres_server), ("dynamodb", dynamodb_server)]
)
def test_a_driver_reaches_its_server(
    extra: str, server: object, environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():  # of DynamoDB's stand-in
        monkeypatch.setenv(name, value)
    code = """
import asyncio, sys, warnings, everturn
warnings.simplefilter("ignore", everturn.errors.HostileSetting)
with everturn.open(sys.argv[1]) as store:
    store.save_context("a", "b", "c")
async def main():
    async with await everturn.open_async(sys.argv[1]) as store:
        assert await store.load_memory("a") == [{"human": "b", "ai": "c"}]
asyncio.run(main())
"""
    with server() as running:  # type: ignore[operator]
        ran(environment(extra), ["python", "-c", "import everturn.errors\n" + code, running.url], tmp_path)


COMMAND_LINES = (
    ("demo", "demo --keep demo"),
    ("init", "init sqlite:///fourth.db"),
    ("sessions", "sessions memory.db"),
    ("show", "show memory.db a"),
    ("log", "log memory.db a"),
    ("snapshots", "snapshots memory.db a"),
    ("diff", "diff memory.db a 1"),
    ("tail", "tail memory.db a -n 2"),
    ("snapshot", "snapshot memory.db a again"),
    ("trim", "trim memory.db a 2 --yes"),
    ("undo", "undo memory.db a --yes"),
    ("rollback", "rollback memory.db a again --yes"),
    ("fork", "fork memory.db a b"),
    ("clear", "clear memory.db b --yes"),
    ("set-ttl", "set-ttl memory.db a 3600"),
    ("compact", "compact memory.db"),
    ("export", "export memory.db -o memory.jsonl"),
    ("import", "import sqlite:///other.db memory.jsonl"),
    ("copy", "copy memory.db sqlite:///third.db"),
    ("backup", "backup memory.db backup.db"),
    ("verify", "verify memory.db"),
    ("doctor", "doctor memory.db"),
    ("bench", "bench sqlite:///bench.db --quick"),
    ("check", "check sqlite:///memory.db --quick --layers sequential"),
    ("check", "check --list"),
    ("check", "check --init"),
    ("golden", "golden show memory.db"),
    ("golden", "golden diff memory.db backup.db"),
    ("docs", "docs"),
    ("effects", "effects memory.db a"),
    ("retain", "retain memory.db --older-than 90d --dry-run"),
    ("erase", "erase memory.db a --confirm a"),
)
FINDS = {"diff": (0, 1), "doctor": (0, 1)}  # 1: there is a difference, a risk


def test_every_command_is_run_here() -> None:
    assert {name for name, _ in COMMAND_LINES} == set(COMMANDS) - {"serve"}


def test_every_command_works_without_the_checkout(environment: Environment, tmp_path: Path) -> None:
    bin_ = environment("cli")
    code = "import everturn\nwith everturn.open('sqlite:///memory.db') as store:\n"
    lines = "\n".join(f"    store.save_context('a', '{n}', '{n}')" for n in range(3))
    ran(bin_, ["python", "-c", code + lines], tmp_path)
    for name, line in COMMAND_LINES:
        ran(bin_, f"everturn {line}", tmp_path, codes=FINDS.get(name, (0,)))
    assert re.match(r"everturn \d", ran(bin_, "everturn --version", tmp_path).stdout)
    asked = {"_EVERTURN_COMPLETE": "complete_bash", "COMP_WORDS": "everturn s", "COMP_CWORD": "1"}
    complete = (
        f"import os, sys; os.environ.update({asked}); sys.argv = ['everturn']; from everturn.cli import main; main()"
    )
    assert "snapshots" in ran(bin_, ["python", "-c", complete], tmp_path).stdout
    refused = ran(bin_, "everturn serve backup.db --no-open", tmp_path, codes=(2,))
    assert "pip install 'everturn[web]'" in refused.stderr


def test_the_inspector_is_served(environment: Environment, tmp_path: Path) -> None:
    bin_ = environment("cli,web")
    ran(
        bin_,
        ["python", "-c", "import everturn; everturn.open('sqlite:///memory.db').save_context('a', 'b', 'c')"],
        tmp_path,
    )
    command = [str(bin_ / "everturn"), "serve", "memory.db", "--no-open"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            page = opener.open(address, timeout=30).read().decode()
        finally:
            process.terminate()
    assert "<html" in page
    assert "inspector.css" in page


def test_the_kit_and_the_fixture_run_in_a_project(environment: Environment, tmp_path: Path) -> None:
    bin_ = environment("test")
    (tmp_path / "test_memory.py").write_text(PROJECT)
    ran(bin_, "pytest -q -p no:cacheprovider --snapshot-update -k golden", tmp_path)
    assert "1 passed" in ran(bin_, "pytest -q -p no:cacheprovider -k golden", tmp_path).stdout
    assert re.search(r"\d+ passed", ran(bin_, "pytest -q -p no:cacheprovider -k 'Store and append'", tmp_path).stdout)
    target = "pytest -q -p no:cacheprovider --memory-target test_memory:factory -k 'append'"
    assert re.search(r"\d+ passed", ran(bin_, target, tmp_path).stdout)


def test_every_extra_is_tried_here() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    section = pyproject.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = ", section, re.MULTILINE))
    assert extras == {*USES, "redis", "postgres", "dynamodb", "cli", "web", "test"}
