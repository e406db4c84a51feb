"""Nested metadata is kept flat, its names joined by dots, and made deep again when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.kit.sound.core import Core, Receipt
from tests.kit.sound.shapes import made

CAUGHT_BY = ("nested-metadata",)


class Broken(Core):
    def append(self, session: str, messages: Sequence[Any], **options: Any) -> Receipt:
        return super().append(session, [with_metadata(message, flat) for message in messages], **options)

    def read(self, session: str, limit: int | None = None) -> list[Any]:
        return [with_metadata(message, deep) for message in super().read(session, limit)]


def with_metadata(message: Any, change: Any) -> Any:
    metadata = message.get("metadata")
    return {**message, "metadata": change(metadata)} if isinstance(metadata, dict) else message


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    found: dict[str, Any] = {}
    for name, held in value.items():
        found |= flat(held, f"{path}.{name}" if path else name)
    return found


def deep(values: dict[str, Any]) -> dict[str, Any]:
    made_deep: dict[str, Any] = {}
    for path, value in values.items():
        *names, last = path.split(".")
        at = made_deep
        for name in names:
            at = at.setdefault(name, {})
        at[last] = value
    return made_deep


factory = made(Broken)
