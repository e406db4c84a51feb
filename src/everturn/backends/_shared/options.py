"""Options of `open` that several backends have: read and checked. Each raises InvalidInput that names the option."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from everturn.errors import InvalidInput


def namespace(value: object) -> str:
    """Check a namespace: up to 512 bytes of UTF-8 without NUL, which every backend can keep beside a session_id."""
    if isinstance(value, str) and "\0" not in value:
        with suppress(UnicodeEncodeError):
            if len(value.encode()) <= 512:
                return str.__str__(value)  # a member of a string enumeration becomes plain text
    raise InvalidInput(f"is a string of up to 512 bytes without NUL, not {value!a}", path="namespace")


def whole_number(path: str, least: int) -> Callable[[object], int]:
    """Make a reader of whole numbers of at least `least`. `path` names the option in errors."""

    def read(value: object) -> int:
        try:
            number = int(value)  # type: ignore[call-overload]  # int itself refuses other types
        except (TypeError, ValueError, OverflowError):
            number = least - 1
        if number < least:
            raise InvalidInput(f"is a whole number of at least {least}, not {value!r}", path=path)
        return int(number)

    return read


def switch(path: str) -> Callable[[object], bool]:
    """Make a reader of on or off, as bools or as texts in a URL. `path` names the option in errors."""

    def read(value: object) -> bool:
        if str(value).lower() not in ("true", "false", "1", "0", "on", "off"):
            raise InvalidInput(f"is on or off, not {value!r}", path=path)
        return str(value).lower() in ("true", "1", "on")

    return read
