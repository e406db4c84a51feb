"""Errors that name the thread, the checkpoint and the channel of a value that cannot be stored. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from everturn import InvalidInput, Record
from everturn.adapters.langgraph.checkpoint_log import CHECKPOINT, MESSAGES, WRITES
from everturn.model import JSON, Entry

_encode = msgspec.json.Encoder().encode

_PLACE = re.compile(r"entries\[(\d+)\](.*)", re.DOTALL)
_LIMIT = "max_message_bytes"


def refused(thread: str, checkpoint: str, channel: str, exc: Exception) -> InvalidInput:
    """Make the error for a value that would not come back equal."""
    return InvalidInput(str(exc), path=f"thread {thread!r}, checkpoint {checkpoint!r}, channel {channel!r}")


def refused_by_store(thread: str, checkpoint: str, entries: Sequence[Entry], exc: InvalidInput) -> InvalidInput:
    """Make the error for entries that the store refused (too long, too deep), with the channel of the value."""
    what = str(exc).partition(": ")[2]
    if _LIMIT in what:
        what += f"; the thread goes on where the store is opened with more: everturn.open(url, {_LIMIT}=...)"
    place = _PLACE.fullmatch(exc.path)
    where = _channel_of(entries[int(place[1])], place[2]) if place else exc.path
    return InvalidInput(what, path=f"thread {thread!r}, checkpoint {checkpoint!r}, {where}")


def _channel_of(entry: Entry, inner: str) -> str:
    if not isinstance(entry, Record) or entry.kind not in (CHECKPOINT, WRITES):
        return f"channel {MESSAGES!r}"
    parts = list(_parts(entry))
    for place, where, _ in parts:
        if inner == place or inner.startswith((f"{place}.", f"{place}[")):
            return where
    return max(parts, key=lambda part: len(_encode(part[2])))[1]  # the whole record is too long: name its largest value


def _parts(record: Record) -> Iterator[tuple[str, str, JSON]]:
    """Yield the values of a record: path in the record, channel, and value."""
    if record.kind == WRITES:
        for number, (channel, node) in enumerate(record.body["writes"]):
            yield f".body.writes[{number}]", f"channel {channel!r}", node
        return
    for name in ("values", "pieces"):
        for channel, node in record.body.get(name, {}).items():
            yield f".body.{name}.{channel}", f"channel {channel!r}", node
    yield ".body.set.meta", "metadata", record.body["set"].get("meta")
