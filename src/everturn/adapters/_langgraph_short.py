"""The ids and times in LangGraph's records, in fewer bytes: a turn has seven of them. Pure.

A UUID is stored as `~` and 22 characters, a time of day as whole microseconds. What is neither stays as it is (a text
that begins with `~` gets one more), so that every id and time comes back letter by letter.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta

from everturn.model import JSON

_IDS = ("id", "for", "task", "parent")
_TIME = "ts"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EPOCH = datetime.fromtimestamp(0, UTC)
_TICK = timedelta(microseconds=1)


def shortened(body: dict[str, JSON]) -> dict[str, JSON]:
    """A record's body as it is stored."""
    short = body | {name: _short(body[name]) for name in _IDS if type(body.get(name)) is str}
    return short | {_TIME: _ticks(body[_TIME])} if _TIME in body else short


def full(body: dict[str, JSON]) -> dict[str, JSON]:
    """The inverse."""
    told = body | {name: _long(body[name]) for name in _IDS if type(body.get(name)) is str}
    return told | {_TIME: _text(body[_TIME])} if type(body.get(_TIME)) is int else told


def _short(text: str) -> str:
    if _UUID.fullmatch(text):
        return "~" + urlsafe_b64encode(binascii.unhexlify(text.replace("-", ""))).decode().rstrip("=")
    return f"~{text}" if text.startswith("~") else text


def _long(text: str) -> str:
    if not text.startswith("~"):
        return text
    if text.startswith("~~"):
        return text[1:]
    digits = urlsafe_b64decode(f"{text[1:]}==").hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _ticks(time: JSON) -> JSON:
    try:
        ticks = (datetime.fromisoformat(time) - _EPOCH) // _TICK
        return ticks if _text(ticks) == time else time
    except (TypeError, ValueError, OverflowError):  # no time, or one that is not in the years 1 to 9999 of this zone
        return time


def _text(ticks: int) -> str:
    return (_EPOCH + ticks * _TICK).isoformat()
