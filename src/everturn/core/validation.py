"""Checks values before they are stored: only JSON that comes back equal is taken. Refusals name the path to the value.

Pure. codec.py writes and reads the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import NoReturn

import msgspec

from everturn.errors import InvalidInput
from everturn.model import JSON

MAX_NESTING = 200
LONGEST_SHOWN = 200  # characters of a value in an error message


def check(value: JSON, path: str) -> None:
    """Raise InvalidInput, with the path to it, for the first part of a value that would not come back equal."""
    if type(value) is str and value.isascii():
        return  # as most are
    if not _are_plain((value,)):
        _look(value, path, 0)


def check_list(values: object, path: str) -> None:
    """Check a value that must be a list. Raises InvalidInput."""
    if not isinstance(values, list):
        raise InvalidInput(f"must be a list, not {name_of(values)}", path=path)
    check(values, path)


def check_dict(values: object, path: str) -> None:
    """Check a value that must be a dict. Raises InvalidInput."""
    if not isinstance(values, dict):
        raise InvalidInput(f"must be a dict, not {name_of(values)}", path=path)
    if values:
        check(values, path)


def _are_plain(values: Iterable[JSON], depth: int = 0) -> bool:
    """Whether there is clearly nothing to refuse. Unusual values are looked at again by _look, which knows their path.

    It takes many values at once, so that only nested ones cost a call.
    """
    for value in values:
        kind = type(value)
        if kind is str:
            if not value.isascii() and not _is_encodable(value):
                return False
        elif kind is int:
            if not -(2**63) <= value < 2**64:
                return False
        elif kind is float:
            if not math.isfinite(value):
                return False
        elif kind is dict:
            for key in value:
                if type(key) is not str or not key.isascii():
                    return False
            if depth >= MAX_NESTING or not _are_plain(value.values(), depth + 1):
                return False
        elif kind is list:
            if depth >= MAX_NESTING or not _are_plain(value, depth + 1):
                return False
        elif kind is not bool and value is not None:
            return False
    return True


def _look(value: JSON, path: str, depth: int) -> None:
    kind = type(value)
    if kind is str:
        _check_encodable(value, path)
    elif kind is bool or value is None:
        pass
    elif kind is int:
        if not -(2**63) <= value < 2**64:
            _check_carried(value, path)
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidInput(f"{_spelt(value)} cannot be stored", path=path)
    elif isinstance(value, list):
        _check_depth(depth, path)
        for index, item in enumerate(value):
            _look(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        _check_depth(depth, path)
        for key, item in value.items():
            _look_at_key(key, path)
            _look(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, Enum) and isinstance(value, str | int):
        _look(value.value, path, depth)
    else:
        refuse(value, path)


def _look_at_key(key: object, path: str) -> None:
    if not isinstance(key, str):
        raise InvalidInput(f"the key {shown(key)} is {name_of(key)}; JSON keys are strings", path=path)
    _check_encodable(str(key), f"{path}.{key!a}" if not key.isascii() else f"{path}.{key}")


def _check_depth(depth: int, path: str) -> None:
    if depth >= MAX_NESTING:
        raise InvalidInput(f"nested more than {MAX_NESTING} deep", path=f"{path[:60]}...")


def check_text(value: object, path: str, *, longest: int | None = None) -> None:
    """Check a value that must be a string: of 1 to `longest` characters, if that is given. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(f"must be a string, not {name_of(value)}", path=path)
    check(value, path)
    if longest is not None and not 0 < len(value) <= longest:
        raise InvalidInput(f"must have 1 to {longest} characters, not {len(value)}", path=path)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_encodable(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        surrogate = f"U+{ord(text[exc.start]):04X}"
        raise InvalidInput(
            f"the lone surrogate {surrogate} at {exc.start} cannot be stored", path=_printable(path)
        ) from None


def _check_carried(number: int, path: str) -> None:
    try:
        carried = msgspec.json.decode(msgspec.json.encode(number)) == number
    except (ValueError, OverflowError, msgspec.MsgspecError):
        carried = False
    if not carried:
        raise InvalidInput(f"an integer of {number.bit_length()} bits cannot be stored", path=path)


def refuse(value: object, path: str) -> NoReturn:
    """Raise InvalidInput for a value of a type that JSON does not have."""
    raise InvalidInput(f"{name_of(value)} cannot be stored; only JSON values come back as they went in", path=path)


def _spelt(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def shown(value: object) -> str:
    """Show a value in an error message: as Python writes it, cut off where that is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than some thousand digits
        return f"a {name_of(value)} of very many digits"
    except Exception:  # noqa: BLE001 - of an odd object, which is refused all the same
        return f"a {name_of(value)}"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def name_of(value: object) -> str:
    """Name the type of a value, for an error message."""
    return "None" if value is None else type(value).__name__


def _printable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
