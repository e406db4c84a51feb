"""The ids and times in LangGraph's records, in fewer bytes: a turn has seven of them. Pure.

A UUID is stored as `~` and 22 characters, a time of day as whole microseconds. What is neither stays as it is (a text
that begins with `~` gets one more), so that every id and time comes back letter by letter.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime, timedelta

from everturn.model import JSON

_IDS = ("id", "for", "task", "parent")
_TIME = "ts"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_USUAL = re.compile(  # a time as its own isoformat() spells it, which takes longer to ask
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\.(?!000000)[0-9]{6}\+00:00"
)
_TO_URLSAFE, _FROM_URLSAFE = bytes.maketrans(b"+/", b"-_"), str.maketrans("-_", "+/")
_EPOCH = datetime.fromtimestamp(0, UTC)
_TICK = timedelta(microseconds=1)


def shortened(body: dict[str, JSON]) -> dict[str, JSON]:
    """A record's body as it is stored."""
    short = body.copy()
    for name in _IDS:
        if type(text := body.get(name)) is str:
            short[name] = _short(text)
    if _TIME in body:
        short[_TIME] = _ticks(body[_TIME])
    return short


def full(body: dict[str, JSON]) -> dict[str, JSON]:
    """The inverse."""
    told = body.copy()
    for name in _IDS:
        if type(text := body.get(name)) is str:
            told[name] = _long(text)
    if type(ticks := body.get(_TIME)) is int:
        told[_TIME] = _text(ticks)
    return told


def _short(text: str) -> str:
    if _UUID.fullmatch(text):
        packed = b2a_base64(bytes.fromhex(text.replace("-", "")), newline=False)
        return "~" + packed.translate(_TO_URLSAFE, b"=").decode()
    return f"~{text}" if text.startswith("~") else text


def _long(text: str) -> str:
    if not text.startswith("~"):
        return text
    if text.startswith("~~"):
        return text[1:]
    digits = a2b_base64(f"{text[1:].translate(_FROM_URLSAFE)}==").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _ticks(time: JSON) -> JSON:
    try:
        moment = datetime.fromisoformat(time)
        if _USUAL.fullmatch(time) or (moment.tzinfo is UTC and moment.isoformat() == time):
            return (moment - _EPOCH) // _TICK
        return time
    except (TypeError, ValueError, OverflowError):  # no time, or one that is not in the years 1 to 9999 of this zone
        return time


def _text(ticks: int) -> str:
    return (_EPOCH + ticks * _TICK).isoformat()
