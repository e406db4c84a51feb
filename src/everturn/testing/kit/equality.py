"""Compares a value that was stored with the one that came back, as JSON compares them.

JSON knows one kind of number and no order of names, so a store that keeps parsed JSON (PostgreSQL's jsonb) may return 1
for 1.0, 0 for -0.0, and names in another order. It may not return another number, nor a number for a truth.
"""

from __future__ import annotations

from typing import Any


def comes_back(sent: Any, found: Any) -> bool:
    """Whether `found` is the same value as `sent`, at every level. A value that is no JSON needs the same type, too."""
    pairs = [(sent, found)]
    while pairs:
        sent, found = pairs.pop()
        if isinstance(sent, dict):
            if not isinstance(found, dict) or sent.keys() != found.keys():
                return False
            pairs += ((sent[name], found[name]) for name in sent)
        elif isinstance(sent, list):
            if not isinstance(found, list) or len(sent) != len(found):
                return False
            pairs += zip(sent, found, strict=True)
        elif _is_number(sent):
            if not _is_number(found) or not _same_number(sent, found):
                return False
        elif type(sent) is not type(found) or sent != found:
            return False
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_number(sent: float, found: float) -> bool:
    if sent != sent or found != found:  # noqa: PLR0124 - NaN
        return repr(sent) == repr(found)
    if isinstance(sent, int):
        return sent == found  # exact, also between an integer and a float
    try:
        return sent == float(found)  # an integer of 300 digits stands for the float that is nearest to it
    except OverflowError:
        return False
