"""An example of a backend: `toy://NAME` keeps sessions in the memory of this process, for as long as it runs.

backend.py     the operations of everturn.backend.Backend
apply_plan.py  changes: planned by everturn, written here
stored.py      the stored values, in plain dicts and lists
contract.py    a factory for `everturn check`

This module is the Opener that the entry point `toy` names (pyproject.toml).
"""

# ruff: noqa: ARG001 - nothing here waits, so that no deadline is needed
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everturn_toy.backend import ToyBackend
from everturn_toy.stored import Memory

OPTIONS = {"namespace": str}  # each with the function that reads its value

_memories: dict[str, Memory] = {}


def open(url: str, options: Mapping[str, Any], deadline: float) -> ToyBackend:  # noqa: A001 - the protocol's name
    """Open the backend that `everturn.open` asks for."""
    return ToyBackend(_memories.setdefault(url, Memory()), options.get("namespace", ""))


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> ToyBackend:
    """Open the backend that `everturn.open_async` asks for. It never waits, so it can be the same."""
    return open(url, options, deadline)
