"""Reads the .sql files beside it, for the schema a store was opened with. It holds no SQL of its own.

The files are written for the schema `everturn`; for another one, its name takes that place.
"""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from everturn.errors import InvalidInput

_HEADING = re.compile(r"^-- (\w+): .+$", re.MULTILINE)
_NAMED = re.compile(r"\beverturn(?=\.)|(?<=CREATE SCHEMA )everturn\b")
_BODY = re.compile(r"AS \$\$$", re.MULTILINE)  # of a function in a string, not behind RETURN
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def checked_schema(value: object) -> str:
    """The name of a schema. Raises InvalidInput unless it can stand in SQL as it is."""
    if not isinstance(value, str) or not _SCHEMA.fullmatch(value) or value.startswith("pg_"):
        raise InvalidInput(
            f"is up to 63 lower-case letters, digits and _, beginning with a letter, not {value!r}", path="schema"
        )
    return value


def load(filename: str, schema: str) -> dict[str, str]:
    """The statements of one file by name: `-- name: purpose` lines, each followed by one statement."""
    _, *parts = _HEADING.split(read(files(__package__).joinpath(filename), schema))
    return {name: " ".join(sql.split()) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def migration(found: int, current: int, schema: str) -> list[str]:
    """The scripts that make schema version `current`, in order: tables, functions, and what needs functions."""
    missing = range(found + 1, current + 1)
    return [
        "".join(_step("tables", number, schema) for number in missing),
        _functions(schema),
        "".join(_step("after_functions", number, schema) for number in missing),
    ]


def _functions(schema: str) -> str:
    """The script that creates every function, each with the settings that all have."""
    folder = files(__package__).joinpath("schema")
    lines = folder.joinpath("function_settings.sql").read_text("utf-8").splitlines()
    settings = " ".join(line for line in lines if not line.startswith("--"))
    in_order = sorted(folder.joinpath("functions").iterdir(), key=lambda script: script.name)
    return _BODY.sub(rf"{settings} \g<0>", "\n".join(read(script, schema) for script in in_order))


def _step(folder: str, number: int, schema: str) -> str:
    file = files(__package__).joinpath(f"schema/{folder}/{number:03}.sql")
    return read(file, schema) if file.is_file() else ""


def read(file: Traversable, schema: str) -> str:
    """A file of SQL with the schema's name in place of `everturn`."""
    return _NAMED.sub(f'"{schema}"', file.read_text("utf-8"))
