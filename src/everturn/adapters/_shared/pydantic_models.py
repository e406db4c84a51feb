"""Pydantic models put together from fields that were checked when they were first made. Knows no framework."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

# Where a model keeps what it holds. Its own __setattr__ is for users: it checks names, and takes ten times as long.
_set_fields, _set_names, _set_extra, _set_private = (
    vars(BaseModel)[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def build_model(
    kind: type[M], fields: dict[str, Any], extra: dict[str, Any] | None, names: set[str] | None = None
) -> M:
    """A model that holds these fields (and this set of their names), as they are.

    Checking them again would take most of the time that loading a history takes, and some checks change what they see.
    """
    model = object.__new__(kind)
    _set_fields(model, fields)
    _set_names(model, set(fields) if names is None else names)
    _set_extra(model, extra)
    _set_private(model, None)
    return model
