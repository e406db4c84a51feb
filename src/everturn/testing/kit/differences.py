"""How what came back differs from what was expected, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def difference(wanted: Sequence[tuple[str, Any]], got: Sequence[tuple[str, Any]]) -> str:
    """Where two histories part, in one line."""
    for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
        if one != other:
            counts = f"{len(got)} came back, {len(wanted)} expected"
            return f"message {index + 1} is {_shown(other)}, not {_shown(one)} ({counts})"
    if len(got) < len(wanted):
        return f"{len(got)} of {len(wanted)} came back; the first missing is {_shown(wanted[len(got)])}"
    return f"{len(got)} came back, {len(wanted)} expected; the first too many is {_shown(got[len(wanted)])}"


def _shown(message: tuple[str, Any]) -> str:
    role, content = message
    text = ascii(content)
    return f"{role}: {text if len(text) <= 60 else f'{text[:50]}... ({len(text)} characters)'}"
