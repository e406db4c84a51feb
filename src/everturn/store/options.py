"""Options of a store: Settings has those of every store; a backend's own are read by the functions in its OPTIONS.

connect.py has the keywords that users write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from everturn.backend import Opener
from everturn.core.validation import shown
from everturn.errors import InvalidInput

LONGEST = 10**11  # seconds: three thousand years


class Settings(msgspec.Struct, frozen=True):
    """The options every store has, whatever its backend."""

    ttl: float | None = None
    timeout: float = 5.0
    max_message_bytes: int = 16 * 2**20
    place: str = ""  # the URL without its password, for events


class _NotGiven:
    """Marks an option that was left out, which is not the same as None: the URL or the backend has its value."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options among a function's arguments: those that have a name, and those under `options`."""
    others: dict[str, Any] = arguments["options"]
    named = {name: value for name, value in arguments.items() if name not in ("url", "client", "options")}
    return others | {name: value for name, value in named.items() if value is not NOT_GIVEN}


def _positive(path: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # whatever it is, float says whether it is a number
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 < number <= LONGEST:
            raise InvalidInput(f"is a number above 0 and up to {LONGEST:,}, not {shown(value)}", path=path)
        return number

    return read


LARGEST_LIMIT = 2**29  # bytes: Redis takes no longer text, and SQLite and PostgreSQL none twice as long


def _ttl(value: object) -> float | None:
    return None if value is None else _positive("ttl")(value)


def _bytes(value: object) -> int:
    size = math.ceil(_positive("max_message_bytes")(value))
    if size > LARGEST_LIMIT:
        raise InvalidInput(f"is at most {LARGEST_LIMIT:,}, not {shown(value)}", path="max_message_bytes")
    return size


COMMON: Mapping[str, Callable[[Any], Any]] = {
    "ttl": _ttl,
    "timeout": _positive("timeout"),
    "max_message_bytes": _bytes,
}


def read_options(backend: Opener, options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """Return the options that every store has, and the backend's own, each read from what was given."""
    known = dict(COMMON) | dict(backend.OPTIONS)
    for name in options:
        if name not in known:
            raise InvalidInput(f"is not an option here; these are: {', '.join(sorted(known))}", path=name)
    read = {name: known[name](value) for name, value in options.items()}
    settings = Settings(**{name: value for name, value in read.items() if name in COMMON})
    return settings, {name: value for name, value in read.items() if name not in COMMON}
