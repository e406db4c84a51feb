"""Python values as JSON and back. A value that would not come back equal is refused.

JSON's own types are stored as they are, so that people can read them. Anything else is an object whose "!" names its
type: `{"!": "tuple", "of": [1, 2]}`. Frameworks add types in subclasses. No pickle, and nothing is imported by name.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from everturn.model import JSON

TAG = "!"  # the key that holds the type of a value that JSON does not have


class RoundTripError(ValueError):
    """A value cannot be stored so that it comes back equal, or a stored one cannot be restored.

    `path`: the place inside the value, if known. The caller adds the thread, message or channel.
    """

    def __init__(self, text: str, *, path: str = "") -> None:
        super().__init__(text)
        self.path = path


class ValueCodec:
    """Encodes values as JSON and decodes them. Subclasses add types in `_encode_other` and `_decode_other`."""

    def encode(self, value: Any) -> JSON:
        """Return the value as JSON. Raises RoundTripError if `decode` would not return an equal value."""
        return self._encode(value)

    def _encode(self, value: Any) -> JSON:
        kind = type(value)
        if kind is str:
            return value if value.isascii() else checked(value)
        if kind is bool or value is None:
            return value
        if kind is list:
            return [self._encode(item) for item in value]
        if kind is dict:
            if TAG not in value and _TEXT.issuperset(map(type, value)):
                return {name if name.isascii() else checked(name): self._encode(item) for name, item in value.items()}
            return {TAG: "dict", "of": [[self._encode(name), self._encode(item)] for name, item in value.items()]}
        if is_json(value):
            return value
        if kind in _COLLECTIONS:
            return {TAG: kind.__name__, "of": [self._encode(item) for item in value]}
        if kind is int:
            return {TAG: "int", "of": str(value)}
        if kind is bytes:
            if value.isascii():  # mostly an image in base64
                return {TAG: "ascii", "of": value.decode("ascii")}
            return {TAG: "bytes", "of": b64encode(value).decode("ascii")}
        if (tell := _TELL.get(kind)) is not None and (told := tell(value)) is not None:
            return {TAG: kind.__name__, "of": told}
        return self._encode_other(value)

    def _encode_other(self, value: Any) -> JSON:
        if base := base_of(value):
            return self._encode(base(value))
        return self._encode_unknown(value)

    def _encode_unknown(self, value: Any) -> JSON:
        raise RoundTripError(
            f"{type(value).__qualname__} {short(value)} cannot be stored as JSON and come back as it is"
        )

    def decode(self, node: JSON) -> Any:
        """Return the value. Raises RoundTripError if its type is unknown, missing here or not allowed."""
        return self._decode(node)

    def _decode(self, node: JSON) -> Any:
        kind = type(node)
        if kind is list:
            return [self._decode(item) if type(item) in _NESTED else item for item in node]
        if kind is not dict:
            return node
        if TAG not in node:
            return {name: self._decode(item) if type(item) in _NESTED else item for name, item in node.items()}
        what, of = node[TAG], node["of"]
        match what:
            case "dict":
                return {self._decode(name): self._decode(item) for name, item in of}
            case "int":
                return int(of)
            case "ascii":
                return of.encode("ascii")
            case "bytes":
                return b64decode(of)
        if made := _BY_NAME.get(what):
            return made(self._decode(item) for item in of)
        if (read := _READ.get(what)) is not None:
            return read(of)
        return self._decode_other(what, of)

    def _decode_other(self, what: str, of: JSON) -> Any:  # noqa: ARG002 - subclasses use it
        raise RoundTripError(f"{what!r} is a form this version does not know; it was written by a newer everturn")


_TEXT = frozenset({str})
_NESTED = frozenset({dict, list})
_COLLECTIONS = (tuple, set, frozenset)
_BY_NAME = {kind.__name__: kind for kind in _COLLECTIONS}


# --- times and numbers -----------------------------------------------------------------------------------------------


def _told_time(value: datetime | time) -> JSON:
    """Return a time as text, with the name of its zone if needed; None if its zone has no name."""
    text = value.isoformat()
    if repr(type(value).fromisoformat(text)) == repr(value):  # repr, not ==: two zones with one offset are equal
        return text
    zone = value.tzinfo
    if type(zone) is ZoneInfo and zone.key is not None:
        return [value.replace(tzinfo=None).isoformat(), zone.key, value.fold]
    return None


def _read_time(kind: type[datetime | time], of: JSON) -> datetime | time:
    if type(of) is str:
        return kind.fromisoformat(of)
    text, key, fold = of
    try:
        return kind.fromisoformat(text).replace(tzinfo=ZoneInfo(key), fold=fold)
    except (ZoneInfoNotFoundError, OSError, ValueError) as exc:
        raise RoundTripError(f"the time zone {key!r} is not known here: {exc}") from exc


_TELL: Mapping[type, Callable[[Any], JSON]] = {
    datetime: _told_time,
    time: _told_time,
    date: date.isoformat,
    timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    Decimal: lambda value: None if value.is_snan() else str(value),  # a signaling NaN cannot even be compared
    UUID: str,
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "datetime": lambda of: _read_time(datetime, of),
    "time": lambda of: _read_time(time, of),
    "date": date.fromisoformat,
    "timedelta": lambda of: timedelta(*of),
    "Decimal": Decimal,
    "UUID": UUID,
}


# --- faithfulness ----------------------------------------------------------------------------------------------------


def is_json(value: Any) -> bool:
    """Whether a value has only JSON's own types all the way down, and numbers that come back equal."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return bool(-(2**63) <= value < 2**64)
    if kind is float:
        return isfinite(value)
    if kind is list:
        return all(map(is_json, value))
    return kind is dict and all(type(name) is str and is_json(item) for name, item in value.items())


def place_of(value: Any, encode: Callable[[Any], JSON]) -> str:
    """Return the path of the first part of a value that `encode` refuses; empty if it is the value itself."""
    is_named = isinstance(value, dict)
    for name, item in value.items() if is_named else enumerate(value) if isinstance(value, list | tuple) else ():
        try:
            encode(item)
        except RoundTripError:
            return (f".{name}" if is_named else f"[{name}]") + place_of(item, encode)
    return ""


def equal(implied: Any, value: Any) -> bool:
    """Whether two values are equal and of the same types all the way down. 1 differs from True and from 1.0."""
    if type(implied) is not type(value):
        return False
    if type(value) is list or type(value) is tuple:
        return len(implied) == len(value) and all(map(equal, implied, value))
    if type(value) is dict:
        return list(implied) == list(value) and all(equal(implied[name], item) for name, item in value.items())
    return bool(implied == value)


def base_of(value: Any) -> type | None:
    """Return the JSON type that a subclass's value equals (a `defaultdict`, LangChain's `message.text`), or None."""
    bases: tuple[type[Any], ...] = (str, int, float, list, dict)
    if isinstance(value, Enum) or type(value) in bases:
        return None
    return next((base for base in bases if isinstance(value, base) and value == base(value)), None)


_SURROGATE = re.compile("[\ud800-\udfff]")


def checked(text: str) -> str:
    """Return the text. Raises RoundTripError for a lone surrogate, which UTF-8 cannot store."""
    if not text.isascii() and (found := _SURROGATE.search(text)):
        raise RoundTripError(f"the lone surrogate U+{ord(found[0]):04X} at {found.start()} cannot be stored")
    return text


def short(value: Any) -> str:
    """Return the repr of a value, cut to what fits into an error."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
