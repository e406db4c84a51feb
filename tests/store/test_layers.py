"""Imports go one way: pure modules know no backend, drivers stay in their backends, `import everturn` stays light."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import everturn
from everturn import connect
from tests.store.speech import in_another_process

ROOT = Path(everturn.__file__).parent
MODULES = {
    ".".join(("everturn", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}
DRIVERS = {"apsw", "sqlite3", "redis", "valkey", "psycopg", "psycopg_pool", "fakeredis"}
# The parts that each part may import; a name stands for all that is below it.
CORE = ["everturn.errors", "everturn.model", "everturn.core"]
EVENTS = ["everturn.events", "everturn.telemetry"]
PROTOCOLS = ["everturn.backend", "everturn.transfer.protocol", "everturn.transfer.session_lines"]
# Whose subject is a bare driver, or a file that is not ours: to be measured, shown losing turns, brought in.
BARE = ("everturn.bench", "everturn.cli.demo.stores", "everturn.cli.foreign.read_sqlite")
WORDS = ("JSON", "MESSAGE", "Entry")
MAY_IMPORT = {
    "everturn.errors": [],
    "everturn.model": ["everturn.errors", "everturn._pydantic", "everturn.model"],
    "everturn._pydantic": ["everturn.model"],
    "everturn.core": CORE,
    "everturn.private_files": ["everturn.errors"],
    "everturn.telemetry": [],
    "everturn.events": ["everturn.core", "everturn.telemetry"],
    "everturn.backend": [*CORE, "everturn.transfer.protocol", "everturn.transfer.session_lines"],
    "everturn.transfer.protocol": [*CORE, "everturn.transfer.session_lines"],
    "everturn.transfer.session_lines": CORE,
    "everturn.backends": [*CORE, *EVENTS, *PROTOCOLS, "everturn.private_files", "everturn.backends"],
    "everturn.store": [*CORE, *EVENTS, *PROTOCOLS, "everturn.store"],
    "everturn.ui": [*CORE, "everturn.ui"],
    "everturn.transfer": [
        *CORE,
        *PROTOCOLS,
        "everturn.store",
        "everturn.connect",
        "everturn.private_files",
        "everturn.transfer",
    ],
}


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, anywhere in it, but for type checkers. Read once: several tests ask for it."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= submodules or {node.module}
    return frozenset(found)


def within(module: str, *parts: str) -> bool:
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def part_of(module: str) -> str | None:
    return next((part for part in MAY_IMPORT if within(module, part)), None)


def test_the_layers_are_about_modules_that_exist() -> None:
    assert all(any(within(module, part) for module in MODULES) for part in MAY_IMPORT)


def offending(modules: Iterable[str], look: Callable[[str], AbstractSet[str]]) -> dict[str, AbstractSet[str]]:
    """Say which modules import what they should not. (A test for each of them would take longer than the look.)"""
    chosen = list(modules)
    assert chosen
    return {module: found for module in chosen if (found := look(module))}


def test_a_module_imports_only_what_is_below_it() -> None:
    def look(module: str) -> AbstractSet[str]:
        allowed = MAY_IMPORT[part_of(module) or ""]
        return {name for name in imports(MODULES[module]) if within(name, "everturn") and not within(name, *allowed)}

    assert offending(filter(part_of, MODULES), look) == {}


def test_an_adapter_stands_on_the_public_names_alone() -> None:
    """As anybody's would; and on the words of the model that annotations and kinds of entries need."""
    public = {f"everturn.{name}" for name in everturn.__all__} | {f"everturn.model.{name}" for name in WORDS}

    def look(module: str) -> AbstractSet[str]:
        named = {
            f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(ast.parse(MODULES[module].read_text("utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        return {name for name in named if within(name, "everturn") and not within(name, "everturn.adapters")} - public

    assert offending((module for module in MODULES if within(module, "everturn.adapters")), look) == {}


def test_the_kit_needs_neither_the_command_nor_the_inspector() -> None:
    def look(module: str) -> AbstractSet[str]:
        return {name for name in imports(MODULES[module]) if within(name, "everturn.cli", "everturn.web")}

    assert offending((module for module in MODULES if within(module, "everturn.testing")), look) == {}


def test_drivers_are_imported_in_backends_only() -> None:
    def look(module: str) -> AbstractSet[str]:
        return {name for name in imports(MODULES[module]) if name.partition(".")[0] in DRIVERS}

    others = (m for m in MODULES if not within(m, "everturn.backends", "everturn.testing", *BARE))
    assert offending(others, look) == {}


def test_the_pure_modules_know_no_clock_no_chance_and_no_disk() -> None:
    impure = {"time", "random", "secrets", "uuid", "os", "io", "pathlib", "socket", "threading", "asyncio", "datetime"}
    pure = (module for module in MODULES if within(module, *CORE, "everturn.transfer.session_lines"))
    assert offending(pure, lambda module: imports(MODULES[module]) & impure) == {}


def test_importing_everturn_imports_no_driver_no_numpy_and_no_event_loop() -> None:
    heavy = ["apsw", "sqlite3", "redis", "psycopg", "numpy", "asyncio", "pydantic", "pydantic_core", "typer", "rich"]
    script = "import everturn; print(*(name for name in argv if name in sys.modules))"
    assert in_another_process(script, *heavy).split() == []


def test_opening_a_sqlite_store_imports_no_other_driver() -> None:
    script = """
        import everturn
        with everturn.open("sqlite://") as store:
            store.add_messages("a", [everturn.ChatMessage("user", "x")])
            store.get_history("a")
        print(*(name for name in argv if name in sys.modules))
    """
    assert in_another_process(script, "redis", "psycopg", "numpy", "pydantic").split() == []


def test_our_backends_are_those_that_are_registered() -> None:
    registered = entry_points(group=connect.GROUP)
    assert {found.name: found.value for found in registered if within(found.value, "everturn")} == connect.OURS


def test_opening_a_file_looks_through_nothing_that_is_installed(tmp_path: Path) -> None:
    """It took longer than opening the file, in every process."""
    everturn.open(f"sqlite:///{tmp_path}/memory.db").close()
    script = """
        import everturn
        everturn.open(f"sqlite:///{argv[0]}/memory.db").close()
        print("importlib.metadata" in sys.modules)
    """
    assert in_another_process(script, tmp_path) == "False\n"


@pytest.mark.parametrize(("backend", "driver"), [("redis", "hiredis"), ("postgres", "psycopg")])
def test_a_driver_is_imported_before_the_time_of_a_call_begins(backend: str, driver: str) -> None:
    script = """
        import importlib, everturn
        scheme, driver = argv
        module = importlib.import_module(f"everturn.backends.{scheme}")
        def look(*_):
            print(driver in sys.modules)
            sys.exit()
        print(driver in sys.modules)
        module.open = look
        everturn.open(f"{scheme}://localhost")
    """
    assert in_another_process(script, backend, driver).split() == ["False", "True"]
