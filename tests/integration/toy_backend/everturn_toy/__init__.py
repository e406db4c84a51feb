"""A third party's backend: `toy://NAME` is kept in the memory of this process, as long as the process runs.

It has what everturn.backend asks for and nothing more. An entry point of the group `everturn.backends` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everturn_toy.backend import ToyBackend
from everturn_toy.lives import Memory

OPTIONS = {"namespace": str}

_memories: dict[str, Memory] = {}


def open(url: str, options: Mapping[str, Any], deadline: float) -> ToyBackend:  # noqa: A001 - the protocol's name
    return ToyBackend(_memories.setdefault(url, Memory()), options.get("namespace", ""))


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> ToyBackend:
    return open(url, options, deadline)  # it never waits, so it holds up no event loop
