"""Refusal of NaN and infinity, which JSON does not have. Pydantic would silently store null instead. Pure."""

from __future__ import annotations

from math import isfinite
from typing import Any

from everturn import InvalidInput


def refuse_non_finite(fields: object, path: str) -> None:
    """Check the attributes of an object, but not objects inside it. Raises InvalidInput with the path of the number."""
    for name, value in vars(fields).items():
        if type(value) in _HOLDING:
            refuse_non_finite_in(value, f"{path}.{name}")


_HOLDING = frozenset({float, dict, list, tuple})


def refuse_non_finite_in(value: Any, path: str) -> None:
    """Check a value and everything inside it. Raises InvalidInput with the path of the number."""
    if isinstance(value, float):
        if not isfinite(value):
            raise InvalidInput(f"is {value}, which cannot be stored as JSON", path=path)
    elif isinstance(value, dict):
        for name, item in value.items():
            refuse_non_finite_in(item, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            refuse_non_finite_in(item, f"{path}[{index}]")
