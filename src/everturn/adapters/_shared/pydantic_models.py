"""Pydantic models built from stored fields without validation: they were validated before they were stored."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)

# Slots of a model, set directly: BaseModel.__setattr__ checks names and takes ten times as long.
_set_fields, _set_names, _set_extra, _set_private = (
    vars(BaseModel)[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def build_model(
    kind: type[M], fields: dict[str, Any], extra: dict[str, Any] | None, names: set[str] | None = None
) -> M:
    """Build a model with these fields, unchanged. `names`: its `model_fields_set`; None: all fields.

    Validation would take most of the time of loading a history, and some validators change the values they see.
    """
    model = object.__new__(kind)
    _set_fields(model, fields)
    _set_names(model, set(fields) if names is None else names)
    _set_extra(model, extra)
    _set_private(model, None)
    return model
