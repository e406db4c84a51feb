"""Numbers that JSON has no form for, refused by name: Pydantic makes null of them in silence. Pure."""

from __future__ import annotations

from math import isfinite
from typing import Any

from everturn import InvalidInput


def refuse_non_finite(fields: object, path: str) -> None:
    """Look through what an object holds, but not into other objects. Raises InvalidInput, naming the value."""
    for name, value in vars(fields).items():
        if type(value) in _HOLDING:
            refuse_non_finite_in(value, f"{path}.{name}")


_HOLDING = frozenset({float, dict, list, tuple})


def refuse_non_finite_in(value: Any, path: str) -> None:
    """Look through a value, and through what it holds. Raises InvalidInput, naming the number."""
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidInput(f"is {value}, which cannot be stored as JSON", path=path)
    elif isinstance(value, dict):
        for name, item in value.items():
            refuse_non_finite_in(item, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_non_finite_in(item, f"{path}[{index}]")
