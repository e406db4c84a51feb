"""The stored form of a LangGraph thread: what its entries say, and how new ones are written. Pure: no IO.

A session holds the checkpoints of one thread and namespace as records, in the order they were put:

    lg.put       a checkpoint: what it changed in the one before it; every so often a whole one (a key)
    lg.writes    the pending writes of one task
    lg.message   a message of a branch that was left by time travel

Messages stand in the session as messages. Values are never written twice: a checkpoint says at which seq each is.
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
INPUT = "__start__"  # the channel that a run's input comes in
AwaitedT = TypeVar("AwaitedT", bound=tuple[Any, ...])

CHECKPOINT, WRITES, LEFT = "lg.put", "lg.writes", "lg.message"
FARTHEST = 96  # entries from a checkpoint back to its key
HEAVIEST = 64 * 1024  # bytes of the checkpoints from a key on
EARLIEST = 512  # entries that the latest of a checkpoint's writes may come before it does

Ref: TypeAlias = JSON
"""Where a value is: the seq of the checkpoint that has it; or an object: what it `is`, if that is short; or ranges of
seqs, of messages `said` or pieces of a `list`, and `n`, how many there are. `closed`: the last range may not grow."""

Ranges: TypeAlias = list[list[int]]
"""First and last seq, both included; with a third number for messages of a branch that was left."""

Object: TypeAlias = dict[str, JSON]


class NeedsEarlierEntries(Exception):
    """An earlier entry is needed to understand what was read."""

    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint, whole. `state` is all of it that is neither new with each one nor a value."""

    seq: int
    id: str
    ts: str
    parent: str | None
    updated: list[str] | None  # LangGraph's updated_channels
    state: Object  # versions, seen, meta, refs, and what else LangGraph put
    values: Mapping[str, JSON] = {}  # those that were written with it
    pieces: Mapping[str, list[JSON]] = {}  # what was added to lists with it
    said: int = 0  # how many messages were written with it: they stand right before it
    early: tuple[int, ...] = ()  # writes that came before it
    awaiting: tuple[tuple[str, int], ...] = ()  # writes whose checkpoint has not come yet, by its id
    full_seq: int = 0  # the seq of the nearest key before it
    weight: int = 0  # bytes of the records since then

    @property
    def refs(self) -> dict[str, Ref]:
        return self.state["refs"]  # type: ignore[no-any-return]  # JSON

    @property
    def versions(self) -> dict[str, int | float | str]:
        return self.state["versions"]  # type: ignore[no-any-return]  # JSON


def written(stored: StoredCheckpoint, base: StoredCheckpoint | None) -> tuple[StoredCheckpoint, Record]:
    """The record of a checkpoint, and the point it will read as.

    It says what differs from `base`, the one before it in the log; or all, if that is None or too far from its key.
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
        # Nearly always they are the same, in the same order, which is seen quicker this way.
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
    """Where values are, as far as the versions that changed and what was written with a checkpoint tell."""
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
    """What to set, and the paths to drop, to get from one to the other; without what is under the name `but`."""
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
    """The inverse. Nothing that was handed in is changed."""
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
        """The same with what stands before it."""
        together = [*entries, *self.entries]
        return CheckpointLog(start, together, life=self.life, version=self.version, last_seq=self.last_seq)

    def _index(self) -> None:
        self.bodies: dict[int, Object] = {}  # of checkpoints
        self.seqs: dict[str, int] = {}  # of checkpoints by their id; of two the later
        self.writes: dict[str, list[tuple[int, Object]]] = {}
        self.said: dict[int, ChatMessage] = {}
        self.left: dict[int, ChatMessage] = {}
        self.memo: dict[int, Any] = {}  # what a reader made of messages, by seq
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
        """The checkpoint at a seq. Raises Missing if it stands on one that was not read."""
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
        """The checkpoint the thread stands at; None if none was read."""
        return self.checkpoint_at(next(reversed(self.bodies))) if self.bodies else None

    def writes_of(self, stored: StoredCheckpoint) -> list[tuple[int, Object]]:
        """What its tasks wrote. Raises Missing if some of it came earlier than what was read."""
        if stored.early and stored.early[0] < self.start:
            raise NeedsEarlierEntries(stored.early[0])
        return self.writes.get(stored.id, [])

    def ancestors(self, stored: StoredCheckpoint) -> Iterator[StoredCheckpoint]:
        """Those it stands on, the nearest first, as far as they are there. Raises Missing if one may stand earlier."""
        parent = stored.parent
        seen = {stored.id}
        while parent is not None and parent not in seen:  # a cycle can be put, and is walked once
            seen.add(parent)
            if parent not in self.seqs:
                if self.start > 1:
                    raise NeedsEarlierEntries(self.start - FARTHEST - 4 * len(self.entries))
                return
            ancestor = self.checkpoint_at(self.seqs[parent])
            yield ancestor
            parent = ancestor.parent

    def awaiting(self, stored: StoredCheckpoint | None) -> list[tuple[str, int]]:
        """Writes whose checkpoint has not come yet. Those that came long ago belong to a run that is no more."""
        found = [] if stored is None else [pair for pair in stored.awaiting if pair[0] not in self.seqs]
        for name, records in self.writes.items():
            if name not in self.seqs:
                found += [(name, seq) for seq, _ in records if stored is None or seq > stored.seq]
        return recent(found, self.last_seq)


def recent(awaiting: Sequence[AwaitedT], last_seq: int) -> list[AwaitedT]:
    """Of writes, with the name of the checkpoint they wait for and their seq first, those whose checkpoint may still
    come: many tasks may have written for it before, but the latest of them not long ago."""
    latest: dict[str, int] = {}
    for name, seq, *_ in awaiting:
        latest[name] = max(seq, latest.get(name, 0))
    return [one for one in awaiting if latest[one[0]] > last_seq - EARLIEST]


# --- ranges ----------------------------------------------------------------------------------------------------------


def seqs_in(ranges: Ranges, said: Sequence[int], left: Sequence[int]) -> list[int]:
    """The seqs of messages that ranges name. `said` and `left` are those there are, in order."""
    found: list[int] = []
    for first, last, *is_left in ranges:
        among = left if is_left else said
        found += among[bisect_left(among, first) : bisect_right(among, last)]
    return found


def ranges_of(seqs: Iterable[int], following: Mapping[int, int], left: Container[int] = ()) -> Ranges:
    """The inverse, in as few ranges as will do. `following` says which message may continue a range behind another."""
    ranges: Ranges = []
    for seq in seqs:
        is_left = seq in left
        if ranges and following.get(ranges[-1][1]) == seq and (len(ranges[-1]) == 3) == is_left:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq, 1] if is_left else [seq, seq])
    return ranges


def extended(ref: Ref, first: int, last: int, *, directly: bool) -> Ranges:
    """The ranges of a ref with another behind them, as part of the last one where nothing stands between."""
    ranges: Ranges = ref.get("said") or ref.get("list") or []
    if directly and ranges and not ref.get("closed"):
        return [*ranges[:-1], [ranges[-1][0], last]]
    return [*ranges, [first, last]]
