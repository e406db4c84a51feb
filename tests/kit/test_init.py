"""`everturn check --init`: the factory of a store that was named runs as it is written, for every shape."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.testing.kit.factory_text import FILL_IN, blank, home_of, look_at, source
from everturn.testing.kit.target import TargetError
from everturn.testing.shapes import SHAPES
from tests.kit.sound import shapes
from tests.kit.test_command import ROOT, Check, check

__all__ = ["check"]

OF_SHAPE = {
    "LangGraph BaseCheckpointSaver": shapes.LangGraph,
    "Google ADK BaseSessionService": shapes.Adk,
    "LlamaIndex BaseChatStore": shapes.LlamaIndex,
    "OpenAI Agents Session": shapes.Agents,
    "add_messages/get_history": shapes.Lists,
    "save_context/load_memory": shapes.Pairs,
    "add_message/get_conversation": shapes.Singles,
    "LangChain BaseChatMessageHistory": shapes.LangChain,
    "Agent Framework HistoryProvider": shapes.History,
    "Agent Framework CheckpointStorage": shapes.Workflows,
    "Strands SessionRepository": shapes.Strands,
    "LangGraph BaseStore": shapes.Items,
}
PER_SESSION = {shape.name for shape in SHAPES if shape.per_session}
STORE = """
from pathlib import Path

from tests.kit.sound import shapes
from tests.kit.sound.core import Core


class Memory(shapes.{sound}):
    def __init__(self, {session}path: str, timeout: float | None = None) -> None:
        super().__init__(Core(Path(path).parent, None, timeout){given})
"""


def write_store(folder: Path, shape: str) -> str:
    """Write a package with a store of this shape, and return `package.module:Class`. A process imports it once."""
    package = f"app_{list(OF_SHAPE).index(shape)}"
    (folder / package).mkdir()
    session, given = ("session_id: str, ", ", session_id") if shape in PER_SESSION else ("", "")
    text = STORE.format(sound=OF_SHAPE[shape].__name__, session=session, given=given)
    (folder / package / "memory.py").write_text(text, "utf-8")
    return f"{package}.memory:Memory"


def test_there_is_a_store_here_for_every_shape() -> None:
    assert set(OF_SHAPE) == {shape.name for shape in SHAPES}


@pytest.mark.parametrize("shape", OF_SHAPE)
def test_a_named_store_gets_a_factory_that_runs(check: Check, tmp_path: Path, shape: str) -> None:
    done = check("--init", write_store(tmp_path, shape))
    assert (done.returncode, f"Memory: {shape}\n" in done.stdout) == (0, True), done.stdout + done.stderr
    assert FILL_IN not in (tmp_path / "memory_target.py").read_text("utf-8")
    assert done.stdout.endswith("Next: everturn check memory_target:factory --quick\n")
    words = ("--quick", "--clause", "store-and-retrieve", "--clause", "another-process")
    done = check("memory_target:factory", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 clauses offered, all hold" in done.stdout


STORES = """
class ByUrl:
    def __init__(self, redis_url: str, key_prefix: str = "", ttl: int | None = None): ...
    def add_messages(self, session_id, messages): ...
    def get_history(self, session_id): ...

class ByFolder(ByUrl):
    def __init__(self, storage_dir, *, db_options=None): ...

class ByDatabase(ByUrl):
    def __init__(self, db_name: str, db_options=None): ...

class ByClient(ByUrl):
    def __init__(self, client, options): ...

class InMemory(ByUrl):
    def __init__(self): ...

class Anything:
    def __init__(self, dsn): ...

class ByString(ByUrl):
    def __init__(self, conn, ttl=None): ...
    @classmethod
    def from_conn_string(cls, text): ...

def opened(path) -> ByUrl: ...

constant = 1
"""


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "some_stores", raising=False)
    (tmp_path / "some_stores.py").write_text(STORES, "utf-8")
    return "some_stores"


@pytest.mark.parametrize(
    ("name", "home", "call"),
    [
        ("ByUrl", "redis", "ByUrl(redis_url=redis_url, key_prefix=where.name, ttl=None if ttl is None else int(ttl))"),
        ("ByFolder", "files", "ByFolder(storage_dir=where)"),
        ("ByDatabase", "files", 'ByDatabase(db_name=str(where / "memory.db"))'),
        ("InMemory", "memory", "InMemory()"),
        ("Anything", "postgres", "Anything(dsn=postgres_url)"),
        ("ByString", None, 'ByString.from_conn_string(str(where / "memory.db"))'),
        ("opened", "files", 'opened(path=where / "memory.db")'),
    ],
)
def test_parameters_are_given_what_their_names_say(stores: str, name: str, home: str | None, call: str) -> None:
    store = look_at(f"{stores}:{name}")
    assert home_of(store) == home
    text = source(store, home_of(store) or "files")
    assert f"    return {call}\n" in text
    compile(text, name, "exec")


def test_what_cannot_be_told_is_marked_and_never_guessed(stores: str) -> None:
    text = source(look_at(f"{stores}:ByClient"), "redis")
    assert "client=...,  # FILL IN: client" in text
    assert "options=...,  # FILL IN: options" in text
    assert "nothing below connects it to `redis_url`" in text
    assert "need a prefix or a schema each" in text
    compile(text, "ByClient", "exec")
    assert "no shape was seen" in source(look_at(f"{stores}:Anything"), "postgres")


def test_a_factory_takes_no_option_that_it_does_not_hand_on(stores: str) -> None:
    """Expiry would be tested, and found missing, of a store that was never told its ttl."""
    assert "ttl" not in source(look_at(f"{stores}:ByString"), "files")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere_at_all:X", "cannot import nowhere_at_all"),
        ("some_stores:None_", "has no None_"),
        ("some_stores:constant", "no parameters that can be read"),
        ("x", "package.module:Class"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(stores: str, name: str, says: str) -> None:
    with pytest.raises(TargetError, match=says):
        look_at(name)


@pytest.mark.parametrize("shape", [None, *SHAPES], ids=lambda shape: getattr(shape, "name", "any"))
def test_without_a_name_the_factory_is_one_to_fill_in(shape: type[shapes.Any] | None) -> None:
    text = blank(shape)
    compile(text, "blank", "exec")
    assert ("session_id: str):" in text) == (shape is not None and shape.name in PER_SESSION)


def test_at_a_terminal_it_asks_what_the_store_looks_like(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "everturn.cli", "check", "--init"]
    with subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as asking:
        os.write(ours, b"\n4\n")  # no class yet; an OpenAI Agents session
        said, _ = asking.communicate(timeout=60)
    os.close(ours), os.close(its)
    assert "OpenAI Agents Session" in said
    text = (tmp_path / "memory_target.py").read_text("utf-8")
    assert "add_items(" in text
    assert "def factory(where: Path, session_id: str):" in text


def test_a_home_that_is_none_is_refused(check: Check, stores: str) -> None:
    done = check("--init", f"{stores}:ByUrl", "--kept-in", "paper")
    assert (done.returncode, "files, redis, postgres, memory; not 'paper'" in done.stderr) == (2, True), done.stderr
    assert not (ROOT / "memory_target.py").exists()


OWN_NAMES = """
import json
from abc import ABC, abstractmethod


class Notes:
    def __init__(self, path: str) -> None:
        self.path = path

    def push(self, chat: str, message: dict) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps([chat, message]) + "\\n")

    def pull(self, chat: str) -> list:
        with open(self.path, "a+") as file:
            file.seek(0)
            return [message for named, message in map(json.loads, file) if named == chat]


class Abstract(Notes, ABC):
    @abstractmethod
    def push(self, chat, message): ...


class Awaited(Notes):
    async def push(self, chat, message): ...
    async def close(self): ...
"""


def test_a_store_with_names_of_its_own_gets_a_class_to_fill_in(check: Check, tmp_path: Path) -> None:
    (tmp_path / "own_names.py").write_text(OWN_NAMES, "utf-8")
    done = check("--init", "own_names:Notes")
    assert "Notes: none of its methods has a name that the kit knows\n" in done.stdout
    target = tmp_path / "memory_target.py"
    text = target.read_text("utf-8")
    assert "# it has pull, push" in text
    for says, filled in (
        ("FILL IN: store", 'self.store.push(session_id, {"role": role, "content": content})'),
        ("FILL IN: return", "return self.store.pull(session_id)"),
    ):
        (line,) = (line for line in text.splitlines() if says in line)
        text = text.replace(line.strip(), filled)
    target.write_text(text, "utf-8")
    done = check("memory_target:factory", "--quick", "--clause", "store-and-retrieve", "--clause", "another-process")
    assert "2 clauses offered, all hold" in done.stdout, done.stdout + done.stderr


def test_a_class_that_cannot_be_looked_at_is_left_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_abstract_names.py").write_text(OWN_NAMES, "utf-8")
    text = source(look_at("own_abstract_names:Abstract"), "files")
    assert "no shape was seen" in text
    assert "Adapted" not in text


def test_a_class_to_fill_in_awaits_and_closes_as_the_store_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_awaited_names.py").write_text(OWN_NAMES, "utf-8")
    text = source(look_at("own_awaited_names:Awaited"), "files")
    compile(text, "Awaited", "exec")
    assert "    async def add_message(self, session_id, role, content):\n" in text
    assert "    async def close(self):\n        await self.store.close()\n" in text
