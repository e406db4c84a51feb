"""What is stored, as values: states, snapshots, changes and entries, read from the text they are kept as. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from everturn.backends.redis.errors import Damaged
from everturn.core.codec import EntryRow, MessageRow
from everturn.core.message_batches import Columns
from everturn.core.paths import Jump, Range, State
from everturn.core.signal_exceptions import is_interruption
from everturn.model import Change, SessionInfo, Snapshot
from everturn.transfer.session_lines import UndoPart

MICROSECONDS = 1_000_000

_decode_numbers = msgspec.json.Decoder(list[int]).decode


def state_of(text: bytes) -> State:
    """The state in "head cleared floor messages kept,kept"."""
    head, cleared, floor, messages, *kept = text.split(b" ")
    seqs = tuple(map(int, kept[0].split(b","))) if kept else ()
    return State(int(head), int(cleared), int(floor), seqs, int(messages))


def kept_text(kept: Sequence[int]) -> str:
    return ",".join(map(str, kept))


def state_text(state: State) -> str:
    """The same the other way round."""
    text = f"{state.head} {state.cleared} {state.floor} {state.messages}"
    return f"{text} {kept_text(state.kept)}" if state.kept else text


CHECK = 9  # characters that a sealed text begins with: eight digits and a blank


def is_sealed(life: str, name: str, kept: bytes) -> bool:
    """Whether a text still has the check that it was written with. See `sealed` in lua/state.lua."""
    return kept.startswith(_digest(f"{life} {name} ".encode() + kept[CHECK:]))


def _digest(text: bytes) -> bytes:
    """As in lua/check.lua, with the blank behind it."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()[: CHECK - 1].encode() + b" "


class Session(msgspec.Struct, frozen=True, gc=False):
    """The fields of meta, as `look` gives them. `parts` says how many there are of what stands beside the log."""

    info: SessionInfo
    dimension: int | None
    undo: tuple[UndoPart, ...]
    forgotten_text: bytes
    parts: bytes = b""


def jump_of(life: str, member: bytes, score: bytes) -> Jump:
    """A jump from its member "check seq after skip depth messages". Raises Damaged if it is not as it was written."""
    if not is_sealed(life, "jump", member) or member[CHECK:].partition(b" ")[0] != score:
        raise Damaged("jumps")
    seq, after, *_ = map(int, member[CHECK:].split(b" "))
    return seq, after


def other_of(life: str, member: bytes, score: bytes) -> tuple[str, int]:
    """Class and seq of an entry that is no message. Raises Damaged if it is not as it was written."""
    text = member[CHECK:]
    if text[1:] != score or not is_sealed(life, "other", member):
        raise Damaged("others")
    return text[:1].decode(), int(score)


def ranges_of(text: bytes) -> list[Range]:
    """The ranges in "first-last,first-last"."""
    pairs = (pair.split(b"-") for pair in text.split(b",") if pair)
    return [(int(first), int(last)) for first, last in pairs]


def ranges_text(ranges: Sequence[Range]) -> str:
    return ",".join(f"{first}-{last}" for first, last in ranges)


def session_of(
    session_id: str, facts: Sequence[Any], undo: bytes, forgotten: bytes, snapshots: int, messages: int
) -> Session:
    """A session from the fields that look.lua asks meta for. `messages` are those of its present state."""
    life, version, last_seq, _, size, dimension, ttl, expires_at, created_at, changed_at, origin, parts, *_ = facts
    steps = tuple(map(_undo_step, undo.split(b";"))) if undo else ()
    info = SessionInfo(
        session_id,
        life.decode(),
        int(version),
        messages,
        int(last_seq),
        int(size),
        snapshots,
        len(steps),
        int(created_at) / MICROSECONDS,
        int(changed_at) / MICROSECONDS,
        float(ttl) if ttl else None,
        float(expires_at) / MICROSECONDS if expires_at else None,
        origin.decode() or None,
    )
    return Session(info, int(dimension) if dimension else None, steps, forgotten, parts)


def _undo_step(text: bytes) -> UndoPart:
    version, kind, moved_to, hidden, state = text.split(b" ", 4)
    return UndoPart(int(version), kind.decode(), int(moved_to), int(hidden), state_of(state))


def undo_text(steps: Sequence[UndoPart]) -> str:
    """The same the other way round, for all of them."""
    return ";".join(
        f"{step.version} {step.kind} {step.moved_to} {step.hidden} {state_text(step.before)}" for step in steps
    )


class StoredSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A snapshot, and the state it points to."""

    snapshot: Snapshot
    state: State


def snapshots_of(info: SessionInfo, pairs: Sequence[bytes]) -> list[StoredSnapshot]:
    """Snapshots in the order they were taken, from ids and "check version time state", a newline and a label in turn.
    Raises Damaged if one is not as it was written."""
    found = []
    for name, text in zip(pairs[::2], pairs[1::2], strict=True):
        if not is_sealed(info.life, name.decode(errors="replace"), text):
            raise Damaged("snapshots")
        facts, newline, label = text[CHECK:].partition(b"\n")
        version, at, state_bytes = facts.split(b" ", 2)
        state = state_of(state_bytes)
        snapshot = Snapshot(
            name.decode(),
            info.session_id,
            info.life,
            label.decode() if newline else None,
            int(version),
            state.messages,
            int(at) / MICROSECONDS,
        )
        found.append(StoredSnapshot(snapshot, state))
    return sorted(found, key=lambda stored: stored.snapshot.version)


class StoredChange(msgspec.Struct, frozen=True, gc=False):
    """A line of the change log, and the state after it."""

    change: Change
    state: State


def change_of(row: Sequence[Any], life: str) -> StoredChange:
    """A change from its entry in the stream: kind with life and "check first count time state", then named fields.
    Raises Damaged if it is not as it was written, or of another life."""
    name, fields = row
    kind = kind_in(fields[0], life)
    over = b" ".join([b"%d" % seq_of(name), fields[0], fields[1][CHECK:], *fields[2:]])
    if kind is None or not fields[1].startswith(_digest(over)):
        raise Damaged("changes")
    try:
        first, count, at, state = fields[1][CHECK:].split(b" ", 3)
        named = dict(zip(fields[2::2], fields[3::2], strict=True))
        snapshot, label = named.get(b"snapshot"), named.get(b"label")
        change = Change(
            seq_of(name),
            kind.decode(),
            tuple(range(int(first), int(first) + int(count))),
            int(at) / MICROSECONDS,
            None if snapshot is None else snapshot.decode(),
            None if label is None else label.decode(),
        )
        return StoredChange(change, state_of(state))
    except (ValueError, IndexError) as exc:
        if is_interruption(exc):
            raise
        raise Damaged("changes") from exc


def kind_in(field: bytes, life: str) -> bytes | None:
    """The kind of an entry or a change, from the field "kind life" that it is kept under; None if of another life."""
    kind, _, owner = field.rpartition(b" ")
    return kind if owner == life.encode() else None


def seq_of(entry_id: bytes) -> int:
    """The seq (or version) that a stream's id stands for."""
    return int(entry_id[:-2]) if entry_id.endswith(b"-0") else -1


def seqs_of(entry_ids: Sequence[bytes]) -> list[int]:
    """The same for many."""
    try:
        return _numbers(b",".join(entry_ids).replace(b"-0", b""))
    except (msgspec.MsgspecError, ValueError) as exc:  # one that is not ours among them
        if is_interruption(exc):
            raise
        return [seq_of(entry_id) for entry_id in entry_ids]


def _numbers(text: bytes) -> list[int]:
    """The whole numbers in "1,2,3". Raises MsgspecError, ValueError. Half the time of an `int` for each."""
    return _decode_numbers(b"[%b]" % text)


def entry_value(seq: int, turn: int, at: int, check: int, body: bytes) -> bytes:
    """The value "turn time place checksum body" of an entry."""
    return b"%d %d %d %d %b" % (turn, at, _place(seq, turn, at), check, body)


def _place(seq: int, turn: int, at: int) -> int:
    """As in lua/check.lua."""
    return (seq * 7919 + turn * 104729 + at) % 1048573


def message_row(seq: int, value: bytes) -> MessageRow:
    """An entry from its value. One that cannot be read, or has another place, has a checksum that nothing has."""
    try:
        turn, at, place, check, body = value.split(b" ", 4)
        if int(place) == _place(seq, int(turn), int(at)):
            return seq, int(at) / MICROSECONDS, int(check), body
    except ValueError as exc:
        if is_interruption(exc):
            raise
    return seq, 0.0, -1, value


def message_columns(seqs: Sequence[int], values: Sequence[bytes]) -> Columns:
    """The same for many, by columns: each number is read with its like, where all can be read."""
    if not values:
        return Columns([], [], [], [])
    try:
        *numbers, bodies = zip(*[value.split(b" ", 4) for value in values], strict=True)
        turns, times, places, checks = (_numbers(b",".join(texts)) for texts in numbers)
        # As `_place` does; a call for each would take most of the time.
        expected = [
            (seq * 7919 + turn * 104729 + at) % 1048573 for seq, turn, at in zip(seqs, turns, times, strict=True)
        ]
        if len(checks) == len(values) and places == expected:
            return Columns(seqs, [at / MICROSECONDS for at in times], checks, list(bodies))
    except (msgspec.MsgspecError, ValueError) as exc:
        if is_interruption(exc):
            raise
    return Columns.of(list(map(message_row, seqs, values)))


def entry_row(seq: int, kind: bytes, value: bytes) -> EntryRow:
    row = message_row(seq, value)
    turn = value.partition(b" ")[0]
    return *row, kind.decode(errors="replace"), int(turn) if turn.isdigit() else seq
