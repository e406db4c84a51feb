"""Reads the .sql files beside it. Each belongs to the module of the same name.

A file is a list of `-- name: purpose` lines, each followed by one statement.
"""

from __future__ import annotations

import re
from importlib.resources import files

_HEADING = re.compile(r"^-- (\w+): .+$", re.MULTILINE)


def load(filename: str) -> dict[str, str]:
    """Load the statements of one file, by name."""
    _, *parts = _HEADING.split(files(__package__).joinpath(filename).read_text("utf-8"))
    return {name: " ".join(sql.split()) for name, sql in zip(parts[::2], parts[1::2], strict=True)}
