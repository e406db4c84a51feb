"""Stores that are opened read-only: their backend refuses everything that writes, before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from everturn.errors import Unsupported

B = TypeVar("B")
WRITES = ("change", "fork", "erase", "compact", "stage", "restore", "lease")
"""The operations of Backend and Portable that write."""


def refuse_changes(backend: B, name: str) -> B:
    """Have a backend raise Unsupported for everything that writes. Returns the backend."""

    for operation in WRITES:
        if hasattr(backend, operation):
            setattr(backend, operation, _refusal(getattr(backend, operation), name))
    return backend


def _refusal(operation: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Make what takes the place of one. Its signature stays: the store asks whether `erase` takes a version."""

    @wraps(operation)
    def refuse(*_: Any, **__: Any) -> Coroutine[Any, Any, Any]:
        raise Unsupported(f"{name} is opened read-only; open it without read_only to change it")

    return refuse
