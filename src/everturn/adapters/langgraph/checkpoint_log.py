"""The stored form of a LangGraph thread: its records as checkpoints, and checkpoints as records. Pure.

A session has the checkpoints of one thread and namespace as records, in the order they were put:

    lg.put       a checkpoint, as changes of the one before it; every so often a full one
    lg.writes    the pending writes of one task
    lg.message   a message of a branch that time travel left

Messages of the channel `messages` are messages of the session. A value is stored once: later checkpoints have a ref to
it, the seq of the checkpoint that has the value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from everturn import ChatMessage, Record
from everturn.model import JSON, Entry

_encode = msgspec.json.Encoder().encode

MESSAGES = "messages"  # the channel whose messages are the session's
INPUT = "__start__"  # the channel of a run's input
AwaitedT = TypeVar("AwaitedT", bound=tuple[Any, ...])

CHECKPOINT, WRITES, LEFT = "lg.put", "lg.writes", "lg.message"
FARTHEST = 96  # most entries from a checkpoint back to the full one that it builds on
HEAVIEST = 64 * 1024  # most bytes of checkpoints since a full one
EARLIEST = 512  # most entries between a write and its checkpoint, if the write comes first

Ref: TypeAlias = JSON
"""Place where the value of a channel is stored. Either the seq of the checkpoint that has it, or one of these objects:

    {"is": value}                 a short value, stored here
    {"said": ranges, "n": count}  messages of the session
    {"list": ranges, "n": count}  a list in pieces; the ranges are of the checkpoints that have pieces

With `"closed": True` the last range may not grow.
"""

Ranges: TypeAlias = list[list[int]]
"""Pairs of first and last seq, both included. A third number, 1, marks messages of a left branch."""

Object: TypeAlias = dict[str, JSON]


class NeedsEarlierEntries(Exception):
    """The log has to be read from an earlier seq on."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint, complete, but with refs in place of values. `state` changes little from one to the next."""

    seq: int
    id: str
    ts: str
    parent: str | None
    updated: list[str] | None  # LangGraph's updated_channels
    state: Object  # versions, seen, meta, refs, and other fields that LangGraph put
    values: Mapping[str, JSON] = {}  # those stored in its own record
    pieces: Mapping[str, list[JSON]] = {}  # items added to lists, stored in its own record
    said: int = 0  # number of messages stored with it, right before its record
    early: tuple[int, ...] = ()  # seqs of its writes that were stored before it
    awaiting: tuple[tuple[str, int], ...] = ()  # writes whose checkpoint has not been put yet: its id, their seq
    full_seq: int = 0  # seq of the full checkpoint that it builds on; its own, if it is full
    weight: int = 0  # bytes of the records from there on

    @property
    def refs(self) -> dict[str, Ref]:
        return self.state["refs"]  # type: ignore[no-any-return]  # JSON

    @property
    def versions(self) -> dict[str, int | float | str]:
        return self.state["versions"]  # type: ignore[no-any-return]  # JSON


def written(stored: StoredCheckpoint, base: StoredCheckpoint | None) -> tuple[StoredCheckpoint, Record]:
    """Return the record of a checkpoint, and the checkpoint as it will read.

    The record has the differences from `base`, the checkpoint before it in the log. It is full if `base` is None, or
    too far from the last full one.
    """
    if base is not None and (stored.seq - base.full_seq > FARTHEST or base.weight > HEAVIEST):
        base = None
    body: Object = {"id": stored.id, "ts": stored.ts}
    if base is None:
        body |= {"full": True, "set": stored.state, "updated": stored.updated}
        if stored.parent is not None:
            body["parent"] = stored.parent
    else:
        changed, dropped = _difference(base.state, stored.state, but="refs")
        implied, told = _implied_refs(base, changed, stored), stored.refs
        # Nearly always equal; comparing the JSON is the fastest way to see it.
        refs, gone = ({}, []) if _encode(implied) == _encode(told) else _difference(implied, told)
        body["set"] = changed | {"refs": refs} if refs else changed
        if dropped or gone:
            body["drop"] = [*dropped, *(["refs", *path] for path in gone)]
        if stored.parent != base.id:
            body["parent"] = stored.parent
        if stored.updated != _implied_updates(changed, stored.refs):
            body["updated"] = stored.updated
    for name in ("values", "pieces", "said"):
        if value := getattr(stored, name):
            body[name] = value
    if stored.early:
        body["early"] = list(stored.early)
    if stored.awaiting:
        body["awaiting"] = [list(pair) for pair in stored.awaiting]
    weight = len(_encode(body)) + (base.weight if base else 0)
    return msgspec.structs.replace(stored, full_seq=base.full_seq if base else stored.seq, weight=weight), Record(
        CHECKPOINT, body
    )


def _read(seq: int, body: Object, base: StoredCheckpoint | None) -> StoredCheckpoint:
    stored = StoredCheckpoint(
        seq,
        body["id"],
        body["ts"],
        body.get("parent", base.id if base else None),
        body.get("updated"),
        body["set"],
        body.get("values", {}),
        body.get("pieces", {}),
        body.get("said", 0),
        tuple(body.get("early", ())),
        tuple((name, at) for name, at in body.get("awaiting", ())),
        base.full_seq if base else seq,
        len(_encode(body)) + (base.weight if base else 0),
    )
    if base is None:
        return stored
    implied = base.state | {"refs": _implied_refs(base, body["set"], stored)}
    state = _applied(implied, body["set"], body.get("drop", ()))
    updated = body["updated"] if "updated" in body else _implied_updates(body["set"], state["refs"])
    return msgspec.structs.replace(stored, state=state, updated=updated)


def _implied_refs(base: StoredCheckpoint, changed: Object, stored: StoredCheckpoint) -> dict[str, Ref]:
    """Return the refs that follow from the changed versions and the values in a checkpoint's own record."""
    versions, before = changed.get("versions", ()), base.refs
    refs = {name: ref for name, ref in before.items() if name not in versions}
    for name in stored.values:
        refs[name] = stored.seq
    for name, pieces in stored.pieces.items():
        refs[name] = _grown(before.get(name), "list", stored.seq, stored.seq, len(pieces))
    if stored.said:
        first = stored.seq - stored.said
        refs[MESSAGES] = _grown(before.get(MESSAGES), "said", first, stored.seq - 1, stored.said)
    return refs


def _grown(ref: Ref, kind: str, first: int, last: int, count: int) -> Ref:
    if not isinstance(ref, dict) or kind not in ref:
        return {kind: [[first, last]], "n": count}
    return {kind: extended(ref, first, last, directly=True), "n": ref["n"] + count}


def _implied_updates(changed: Object, refs: Mapping[str, Ref]) -> list[str]:
    return sorted([name for name in changed.get("versions", ()) if name in refs])


def _difference(old: Object, new: Object, but: str | None = None) -> tuple[Object, list[list[str]]]:
    """Return the changes and the paths to drop that turn `old` into `new`, ignoring the key `but`."""
    changed: Object = {}
    dropped: list[list[str]] = [] if old.keys() == new.keys() else [[name] for name in old if name not in new]
    for name, value in new.items():
        before = old.get(name, _ABSENT)
        if before is value or name == but:
            continue
        kind = type(value)
        if kind is not type(before):
            changed[name] = value
        elif kind is dict:
            if not value and not before:
                continue
            inner, paths = _difference(before, value)
            if paths:
                dropped += [[name, *path] for path in paths]
            if inner:
                changed[name] = inner
        elif before != value or (kind is list and value and _encode(before) != _encode(value)):  # [1] == [True]
            changed[name] = value
    return changed, dropped


_ABSENT = object()  # JSON has no such value


def _applied(old: Object, changed: Object, dropped: Iterable[Sequence[str]]) -> Object:
    """Apply changes to `old`: the inverse of `_difference`. The arguments are not modified."""
    new = _merged(old, changed)
    for *path, last in dropped:
        inner = new
        for name in path:
            inner[name] = dict(inner[name])
            inner = inner[name]
        del inner[last]
    return new


def _merged(old: Object, changed: Object) -> Object:
    new = dict(old)
    for name, value in changed.items():
        before = old.get(name)
        new[name] = _merged(before, value) if type(value) is dict and type(before) is dict else value
    return new


class CheckpointLog:
    """Entries of a session, from the seq `start` to its end, read at one moment."""

    def __init__(self, start: int, entries: Iterable[Entry], *, life: str, version: int, last_seq: int) -> None:
        self.start = start
        self.life = life
        self.version = version
        self.last_seq = last_seq
        self.entries: list[Entry] = list(entries)
        self._index()

    def before(self, start: int, entries: Iterable[Entry]) -> CheckpointLog:
        """Return the log extended by earlier entries."""
        together = [*entries, *self.entries]
        return CheckpointLog(start, together, life=self.life, version=self.version, last_seq=self.last_seq)

    def _index(self) -> None:
        self.bodies: dict[int, Object] = {}  # of checkpoints
        self.seqs: dict[str, int] = {}  # of checkpoints, by id; of two with one id, the later
        self.writes: dict[str, list[tuple[int, Object]]] = {}
        self.said: dict[int, ChatMessage] = {}
        self.left: dict[int, ChatMessage] = {}
        self.memo: dict[int, Any] = {}  # decoded messages, by seq: a reader's cache
        self._points: dict[int, StoredCheckpoint] = {}
        self._previous: dict[int, int] = {}
        for entry in self.entries:
            seq = entry.seq or 0
            if isinstance(entry, ChatMessage):
                self.said[seq] = entry
            elif isinstance(entry, Record) and entry.kind == CHECKPOINT:
                if self.bodies:
                    self._previous[seq] = next(reversed(self.bodies))
                self.bodies[seq] = body = entry.body
                self.seqs[body["id"]] = seq
            elif isinstance(entry, Record) and entry.kind == WRITES:
                body = entry.body
                self.writes.setdefault(body["for"], []).append((seq, body))
            elif isinstance(entry, Record) and entry.kind == LEFT:
                self.left[seq] = ChatMessage.from_dict(entry.body)

    def checkpoint_at(self, seq: int) -> StoredCheckpoint:
        """Return the checkpoint at a seq. Raises NeedsEarlierEntries if it builds on one that was not read."""
        chain: list[int] = []
        at: int | None = seq
        while at is not None and at not in self._points:
            chain.append(at)
            if "full" in self.bodies[at]:
                at = None
            elif (at := self._previous.get(at)) is None:
                raise NeedsEarlierEntries(self.start - FARTHEST)
        base = self._points[at] if at is not None else None
        for link in reversed(chain):
            base = self._points[link] = _read(link, self.bodies[link], base)
        return self._points[seq]

    @property
    def latest(self) -> StoredCheckpoint | None:
        """The thread's latest checkpoint; None if none was read."""
        return self.checkpoint_at(next(reversed(self.bodies))) if self.bodies else None

    def writes_of(self, stored: StoredCheckpoint) -> list[tuple[int, Object]]:
        """Return the writes of a checkpoint's tasks. Raises NeedsEarlierEntries if some were not read."""
        if stored.early and stored.early[0] < self.start:
            raise NeedsEarlierEntries(stored.early[0])
        return self.writes.get(stored.id, [])

    def ancestors(self, stored: StoredCheckpoint) -> Iterator[StoredCheckpoint]:
        """Yield the ancestors of a checkpoint, nearest first. Raises NeedsEarlierEntries if one may be earlier."""
        parent = stored.parent
        seen = {stored.id}
        while parent is not None and parent not in seen:  # a cycle can be put: visit each once
            seen.add(parent)
            if parent not in self.seqs:
                if self.start > 1:
                    raise NeedsEarlierEntries(self.start - FARTHEST - 4 * len(self.entries))
                return
            ancestor = self.checkpoint_at(self.seqs[parent])
            yield ancestor
            parent = ancestor.parent

    def awaiting(self, stored: StoredCheckpoint | None) -> list[tuple[str, int]]:
        """Return the recent writes whose checkpoint has not been put yet. Older ones belong to a run that died."""
        found = [] if stored is None else [pair for pair in stored.awaiting if pair[0] not in self.seqs]
        for name, records in self.writes.items():
            if name not in self.seqs:
                found += [(name, seq) for seq, _ in records if stored is None or seq > stored.seq]
        return recent(found, self.last_seq)


def recent(awaiting: Sequence[AwaitedT], last_seq: int) -> list[AwaitedT]:
    """Return the writes, as tuples of checkpoint id, seq and more, whose checkpoint may still be put.

    Many tasks may have written for it long ago; the latest of them must be recent.
    """
    latest: dict[str, int] = {}
    for name, seq, *_ in awaiting:
        latest[name] = max(seq, latest.get(name, 0))
    return [one for one in awaiting if latest[one[0]] > last_seq - EARLIEST]


# --- ranges ----------------------------------------------------------------------------------------------------------


def seqs_in(ranges: Ranges, said: Sequence[int], left: Sequence[int]) -> list[int]:
    """Return the seqs in ranges. `said` and `left`: the seqs that exist, in order."""
    found: list[int] = []
    for first, last, *is_left in ranges:
        among = left if is_left else said
        found += among[bisect_left(among, first) : bisect_right(among, last)]
    return found


def ranges_of(seqs: Iterable[int], following: Mapping[int, int], left: Container[int] = ()) -> Ranges:
    """Return seqs as few ranges: the inverse of `seqs_in`. `following`: the seq that may follow another in a range."""
    ranges: Ranges = []
    for seq in seqs:
        is_left = seq in left
        if ranges and following.get(ranges[-1][1]) == seq and (len(ranges[-1]) == 3) == is_left:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq, 1] if is_left else [seq, seq])
    return ranges


def extended(ref: Ref, first: int, last: int, *, directly: bool) -> Ranges:
    """Return the ranges of a ref with another range added; the last range grows if nothing is in between."""
    ranges: Ranges = ref.get("said") or ref.get("list") or []
    if directly and ranges and not ref.get("closed"):
        return [*ranges[:-1], [ranges[-1][0], last]]
    return [*ranges, [first, last]]
