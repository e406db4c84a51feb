"""Writes the source of a factory for a store that was named: `everturn check --init myapp.memory:Memory`.

The store's class or function is imported and looked at, and never called: its methods say which shape it has, the names
of its parameters say what to give them. What cannot be told from them is marked, for a person to fill in.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from everturn.testing.kit.target import TargetError
from everturn.testing.shapes import SHAPES, Shape, shape_of

Home: TypeAlias = Literal["files", "redis", "postgres", "memory"]
"""Storage of the store that was named: files (SQLite among them), a server, or the memory of its process."""

HOMES: tuple[Home, ...] = get_args(Home)
FILL_IN = "FILL IN"

_SESSION = {"session_id", "thread_id", "conversation_id", "chat_id"}
_FOLDER = {"dir", "directory", "folder", "root", "storage", "where"}
_FILE = {"path", "file", "filename", "filepath"}
_DATABASE = {"database", "db", "name"}  # a file, if the parameter's name says nothing else
_ADDRESS = {"url", "uri", "dsn", "conninfo", "string"}  # a "conn" is an object, which somebody has to make
_OBJECT = {"client", "pool", "connection", "factory"}
_PREFIX = {"prefix", "namespace", "schema"}
_GIVEN = ("ttl", "timeout")  # by the kit, if a factory takes them
_SERVER: dict[Home, str] = {"redis": "redis_url", "postgres": "postgres_url"}


class Store(msgspec.Struct, frozen=True):
    """A store that was named: `package.module:Class`, or a function that opens one. `shape` is None if it has none.

    `methods` are the public ones of the class, each with whether it is awaited. Empty: they could not be seen.
    """

    module: str
    name: str
    parameters: tuple[inspect.Parameter, ...]
    shape: type[Shape] | None = None
    methods: Mapping[str, bool] = {}
    by_address: bool = False  # it has a from_conn_string, and its own parameters cannot be filled
    has_setup: bool = False

    @property
    def per_session(self) -> bool:
        """Whether an object of it is one session."""
        own = any(one.name in _SESSION and one.default is inspect.Parameter.empty for one in self.parameters)
        return own or (self.shape is not None and self.shape.per_session)

    @property
    def is_adapted(self) -> bool:
        """Whether its own methods are called by a class to fill in: none of them has a name that the kit knows."""
        return self.shape is None and bool(self.methods) and not self.per_session


def look_at(text: str) -> Store:
    """Import what `package.module:Class` names, and look at its methods and parameters. Raises TargetError."""
    module_name, colon, name = text.partition(":")
    if not colon or not module_name or not name:
        raise TargetError(f"{text!r} is not package.module:Class, nor package.module:function_that_opens_it")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, name)
        parameters = tuple(inspect.signature(found).parameters.values())
    except ImportError as exc:
        raise TargetError(f"cannot import {module_name}: {exc}; is it on the path, and installed?") from exc
    except AttributeError as exc:
        raise TargetError(f"{module_name} has no {name}") from exc
    except (TypeError, ValueError) as exc:
        raise TargetError(f"{text} has no parameters that can be read: {exc}") from exc
    required = [one for one in parameters if _is_required(one)]
    unknown = any(_meaning(one.name) == "" and one.name not in _GIVEN for one in required)
    by_address = unknown and callable(getattr(found, "from_conn_string", None))
    has_setup = callable(getattr(found, "setup", None))
    return Store(module_name, name, parameters, *_seen_in(found), by_address, has_setup)


def home_of(store: Store) -> Home | None:
    """Tell what a store is kept in by the names of its parameters; None if they do not say."""
    words = {word for one in store.parameters for word in one.name.lower().split("_")}
    named = f"{store.module} {store.name}".lower()
    if "inmemory" in named:
        return "memory"
    if "redis" in words or "redis" in named or "valkey" in named:
        return "redis"
    if words & {"postgres", "pg", "dsn", "conninfo"} or "postgres" in named:
        return "postgres"
    if words & (_FILE | _FOLDER | {"database", "db"}) or "sqlite" in named:
        return "files"
    return None


def source(store: Store, home: Home) -> str:
    """Write a module with a factory for a store that is kept in `home`. Lines to complete are marked FILL IN."""
    call = _by_address(store, home) if store.by_address else _by_parameters(store, home)
    takes = ["where: Path"]
    if store.per_session:
        takes.append("session_id: str")
    if server := _SERVER.get(home):
        takes.append(f"{server}: str")
    # What a factory takes is tested, so it takes no more than it hands on.
    takes += [f"{name}: float | None = None" for name in _GIVEN if any(f"{name}=" in line for line in call)]
    if store.is_adapted:
        call = [call[0].replace("return", "store =", 1), *call[1:], "    return Adapted(store)"]
        shape = f"none of its methods has a name that the kit knows: {FILL_IN} the two methods below"
    elif store.shape is None:
        shape = f"{FILL_IN}: no shape was seen; it needs {_SHAPES}"
    else:
        shape = f"its shape is {store.shape.name}"
    head = f'"""Points the contract kit at {store.name}: everturn check memory_target:factory --quick\n\n'
    head += "\n".join(_wrapped(f"{shape[0].upper()}{shape[1:]}."))
    body = [
        f'{head}\n"""\n',
        "from pathlib import Path\n",
        f"from {store.module} import {store.name}\n\n",
        *([_adapter(store)] if store.is_adapted else []),
        f"def factory({', '.join(takes)}):",
        f'    """Open the store at `where`, {_ABOUT[home]}"""',
        *(f"    # {note}" for note in _notes(store, home, "\n".join(call))),
        *call,
    ]
    if home == "memory":
        body.append("\n\nfactory.processes = False  # it lives in the memory of one process, by nature")
    return "\n".join(body) + "\n"


def blank(shape: type[Shape] | None) -> str:
    """Write a module with a factory to fill in, for a store of this shape, or of any."""
    takes = "where: Path, session_id: str" if shape is not None and shape.per_session else "where: Path"
    called = f"It calls {' and '.join(shape.calls)}" if shape else f"It looks for {_SHAPES}"
    text = f"Points the contract kit at our memory store: everturn check memory_target:factory. {called}."
    if shape is None or not shape.per_session:
        text += " For a store that is one object per session, add session_id: str to the parameters."
    return BLANK.format(about="\n".join(_wrapped(text)), takes=takes)


BLANK = '''"""{about}
"""

from pathlib import Path


def factory({takes}):
    """Open the store at `where`, a fresh directory. Called again, also in other processes, with the same one.

    Ask for more by name, and more is tested: redis_url, postgres_url or dynamodb_endpoint (a private server that the
    kit starts, and breaks), ttl, timeout, vfs.
    """
    raise NotImplementedError("open your store here, and return it")


# More attributes that the kit reads; `everturn docs contract` says where the list is.
# factory.share_threads = True     one instance may be used by several threads
# factory.processes = False        it lives in memory, and in one process, by nature
# factory.message = MyMessage      called with role and content, makes what the store takes
'''


ADAPTER = '''class Adapted:
    """{name} under names that the kit knows. If yours stores several messages in one call, name the methods
    add_messages(self, session_id, messages) and get_history(self, session_id) instead: messages are dicts then, too.
    """

    def __init__(self, store):
        self.store = store  # it has {methods}

    {define} add_message(self, session_id, role, content):
        raise NotImplementedError("FILL IN: store this message by a method of self.store")

    {define} get_conversation(self, session_id):
        raise NotImplementedError("FILL IN: return the messages, oldest first, as dicts with role and content")
{close}
'''
CLOSE = """
    {define} close(self):
        {word}self.store.close()
"""


def _adapter(store: Store) -> str:
    """Write a class that calls a store's own methods, to fill in."""
    awaits = {True: ("async def", "await "), False: ("def", "")}
    closes = store.methods.get("close")
    close = "" if closes is None else CLOSE.format(define=awaits[closes][0], word=awaits[closes][1])
    define = awaits[any(store.methods.values())][0]
    return ADAPTER.format(name=store.name, methods=", ".join(store.methods), define=define, close=close)


def _notes(store: Store, home: Home, call: str) -> Iterator[str]:
    """Yield the words that a person has to read: on what the call does not say."""
    server = _SERVER.get(home)
    if home == "files" and "where" not in call:
        yield f"{FILL_IN}: nothing below says that it keeps its files in `where`."
    if server and server not in call:
        yield f"{FILL_IN}: nothing below connects it to `{server}`."
    if server and "where" not in call:
        yield f"{FILL_IN}: all places are on one server, and need a prefix or a schema each: `where.name`."
    if store.per_session and "session_id" not in call:
        yield f"{FILL_IN}: nothing below says which session it is: `session_id`."
    if store.has_setup:
        yield "It has a method setup(): call it first, if its documentation says so."


_SHAPES = " or ".join(shape.methods() for shape in SHAPES)
_ABOUT: dict[Home, str] = {
    "files": "a fresh directory. Called again, also in other processes, with the same one.",
    "redis": "on a private server. `where.name` is unique: two places must not see each other.",
    "postgres": "on a private server. `where.name` is unique: two places must not see each other.",
    "memory": "which a store in memory does not need.",
}


def _by_address(store: Store, home: Home) -> list[str]:
    address = _SERVER.get(home, 'str(where / "memory.db")')
    return [f"    return {store.name}.from_conn_string({address})"]


def _by_parameters(store: Store, home: Home) -> list[str]:
    """Write the call of the class, one argument a line if one of them needs a word."""
    given: list[tuple[str, str]] = []
    placed = False
    for one in store.parameters:
        is_place = _meaning(one.name) in _PLACES
        value = None if placed and is_place and not _is_required(one) else _value(one, home)
        if value is not None:
            placed = placed or is_place
            word = "" if one.kind is inspect.Parameter.POSITIONAL_ONLY else f"{one.name}="
            given.append((f"{word}{value}", f"  # {FILL_IN}: {one.name}" if value == "..." else ""))
    line = f"    return {store.name}({', '.join(value for value, _ in given)})"
    if len(line) <= 110 and not any(note for _, note in given):
        return [line]
    return [f"    return {store.name}(", *(f"        {value},{note}" for value, note in given), "    )"]


def _value(one: inspect.Parameter, home: Home) -> str | None:
    """Choose what to give a parameter: `...` for one to fill in, None for one to leave out."""
    if one.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        return None
    annotation = str(one.annotation)
    if one.name in _GIVEN:
        whole = "int" in annotation and "float" not in annotation
        return f"None if {one.name} is None else int({one.name})" if whole else one.name
    found = _VALUES.get((_meaning(one.name), home))
    if found is not None:
        wants_text = "str" in annotation and "Path" not in annotation
        return f"str({found})" if wants_text and found.startswith("where") and home == "files" else found
    return "..." if _is_required(one) else None


def _meaning(name: str) -> str:
    words = set(name.lower().split("_"))
    if name in _SESSION:
        return "session"
    if words & _OBJECT and not words & _ADDRESS:
        return ""
    kinds = (("address", _ADDRESS), ("folder", _FOLDER), ("prefix", _PREFIX), ("table", {"table"}), ("file", _FILE))
    found = next((kind for kind, its in kinds if words & its), "")
    return "file" if not found and words <= _DATABASE and words != {"name"} else found


_VALUES: dict[tuple[str, Home], str] = {
    **{("session", home): "session_id" for home in HOMES},
    ("folder", "files"): "where",
    ("file", "files"): 'where / "memory.db"',
    ("address", "files"): 'f"sqlite:///{where}/memory.db"',
    ("address", "redis"): "redis_url",
    ("address", "postgres"): "postgres_url",
    ("prefix", "redis"): "where.name",
    ("prefix", "postgres"): "where.name",
    ("table", "files"): '"messages"',
    ("table", "postgres"): "where.name",
}
_PLACES = {"address", "folder", "file"}  # one of them is enough


def _is_required(one: inspect.Parameter) -> bool:
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return one.default is inspect.Parameter.empty and one.kind not in varying


def _seen_in(found: Callable[..., Any]) -> tuple[type[Shape] | None, dict[str, bool]]:
    """Find the shape of the objects of a class, by an empty one, and its public methods: whether each is awaited.

    A function says by its annotation what it returns. No methods are told of an abstract class, or of one whose
    attributes need __init__: a run may recognise it all the same.
    """
    made: Any = found if inspect.isclass(found) else getattr(found, "__annotations__", {}).get("return")
    if not inspect.isclass(made):
        return None, {}
    try:
        shape = shape_of(object.__new__(made))
    except Exception:  # noqa: BLE001 - whatever it is, it is no empty object
        return None, {}
    named = inspect.getmembers(made, inspect.isfunction)
    return shape, {name: inspect.iscoroutinefunction(method) for name, method in named if not name.startswith("_")}


def _wrapped(text: str) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > 110:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
