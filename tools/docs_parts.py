"""Parts of pages that the code knows best: a line `<!-- everturn: cli -->` in a page is replaced by one of these.

They are filled in when the site is built, so no generated text is in git and none can be stale. The page says what a
reader of the repository can do instead.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
TYPES = ("JSON", "Entry", "CopyOutcome", "Outcome")  # that annotations need: last
BACKENDS = {"SQLite": "sqlite", "Redis": "redis", "PostgreSQL": "postgres", "DynamoDB": "dynamodb"}


def cli() -> str:
    """The command: its first page of help, then the help of every command."""
    import click
    from typer.main import get_command

    from everturn.cli.app import app

    group = get_command(app)
    root = click.Context(group, info_name="everturn", terminal_width=88, max_content_width=88)
    lines = ["```text", group.get_help(root).rstrip(), "```", ""]
    for name, command in commands(group, root):
        context = click.Context(command, info_name=name, parent=root, terminal_width=88, max_content_width=88)
        lines += [f"## {name}", "", "```text", command.get_help(context).rstrip(), "```", ""]
    return "\n".join(lines)


def commands(group: object, context: object) -> Iterator[tuple[str, object]]:
    """Yield every command below a group, with its whole name: `golden diff`."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        if hasattr(command, "list_commands"):
            yield from ((f"{name} {below}", found) for below, found in commands(command, context))
        else:
            yield name, command


def options() -> str:
    """One table of all options: which backends have one, and its meaning, from the docstring of `everturn.open`."""
    import everturn
    from everturn.store.options import COMMON

    told = dict(re.findall(r"^    (\w+): (.+?)(?=^    \w|\Z)", _arguments(everturn.open), re.MULTILINE | re.DOTALL))
    known = {title: import_module(f"everturn.backends.{name}").OPTIONS for title, name in BACKENDS.items()}
    named = [name for name in inspect.signature(everturn.open).parameters if name not in ("url", "options")]
    rows = ["| option | of | meaning |", "|---|---|---|"]
    for name in named:
        having = [title for title, own in known.items() if name in COMMON or name in own]
        of = "all" if len(having) == len(known) else ", ".join(having)
        meaning = " ".join(told[name].split())
        meaning = re.sub(r"^(?:Every backend|SQLite|Redis and PostgreSQL|Redis|PostgreSQL): ", "", meaning)
        rows.append(f"| `{name}` | {of} | {meaning[0].upper()}{meaning[1:]} |")
    passed = [name for name in known["PostgreSQL"] if name not in named]
    rows += ["", "PostgreSQL also takes these parameters of libpq, and hands them on as they are:", ""]
    return "\n".join([*rows, ", ".join(f"`{name}`" for name in passed) + ".", ""])


def _arguments(function: Callable[..., object]) -> str:
    found = re.search(r"^Args:\n(.*?)(?=^\S)", inspect.getdoc(function) or "", re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def names() -> str:
    """The names of the package `everturn`, each with a link to its place in the API reference."""
    groups: dict[str, list[str]] = {"Functions": [], "Stores": [], "Errors": [], "Values": []}
    errors = set(listed("everturn.errors"))
    for name in listed("everturn"):
        kind = "Functions" if name[0].islower() else "Stores" if name.endswith("MemoryStore") else ""
        groups[kind or ("Errors" if name in errors else "Values")].append(f"[`{name}`][everturn.{name}]")
    rows = [f"| {kind} | {', '.join(found)} |" for kind, found in groups.items()]
    return "\n".join(["| | |", "|---|---|", *rows, ""])


def public_names() -> list[str]:
    """Every public name, with its module, by the table of docs/public.md."""
    page = (ROOT / "docs/public.md").read_text("utf-8")
    modules = re.findall(r"^\| `(everturn[\w.]*)` \|", page, re.MULTILINE)
    return [f"{module}.{name}" for module in modules for name in listed(module)]


def file_of(module: str) -> Path:
    """The file of one of our modules."""
    place = ROOT.joinpath("src", *module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def listed(module: str) -> list[str]:
    """The names in a module's `__all__`, without importing it or its framework."""
    for node in ast.parse(file_of(module).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def members(module: str, level: str = "2") -> str:
    """The public names of a module for mkdocstrings, classes and functions first; fields of a class in one block."""
    found = sorted(listed(module), key=lambda name: (name.isupper(), name in TYPES))
    return "\n".join(line for name in found for line in _member(module, name, int(level)))


def _member(module: str, name: str, level: int) -> Iterator[str]:
    node, source = definition(module, name)
    # A function in a module of its own name: the name alone would be the module.
    inside = f"{module}.{name}.{name}" if file_of(f"{module}.{name}").is_file() else f"{module}.{name}"
    yield f"::: {inside}\n    options:\n      heading_level: {level}"
    body = node.body if node else []
    fields = [field for field in body if isinstance(field, ast.AnnAssign)]
    if not fields:
        yield ""
        return
    yield "      members: false\n"
    lines = source.splitlines()
    yield "\n".join(["```python", f"class {name}:", *(lines[field.lineno - 1] for field in fields), "```", ""])
    for method in body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
            yield f"::: {module}.{name}.{method.name}\n    options:\n      heading_level: {level + 1}\n"


def definition(module: str, name: str) -> tuple[ast.ClassDef | None, str]:
    """Find the class of a name, through imports, with the source it stands in; None for anything else."""
    source = file_of(module).read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node, source
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("everturn")
        if ours and name in [alias.name for alias in node.names]:
            return definition(node.module, name)
    return None, source


def part(name: str, about: str | None) -> str:
    """Return the part of this name; `members` is told of which module, and at which level."""
    return members(*about.split()) if name == "members" and about else PARTS[name]()


PARTS: dict[str, Callable[[], str]] = {"cli": cli, "options": options, "names": names}
