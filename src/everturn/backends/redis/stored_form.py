"""The stored form: states, snapshots, changes and entries, to and from the texts that are kept in Redis. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everturn.backends.redis.errors import DamagedPart
from everturn.core.codec import EntryRow, MessageRow
from everturn.core.facts import decode_facts
from everturn.core.message_batches import Columns
from everturn.core.paths import Jump, Range, State
from everturn.core.signal_exceptions import is_interruption
from everturn.model import Change, SessionInfo, Snapshot
from everturn.transfer.session_lines import UndoPart

MICROSECONDS = 1_000_000

_encode = msgspec.json.encode
_decode_numbers = msgspec.json.Decoder(list[int]).decode


def state_of(text: bytes) -> State:
    """Read a state from "head cleared floor messages kept,kept"."""
    head, cleared, floor, messages, *kept = text.split(b" ")
    seqs = tuple(map(int, kept[0].split(b","))) if kept else ()
    return State(int(head), int(cleared), int(floor), seqs, int(messages))


def kept_text(kept: Sequence[int]) -> str:
    return ",".join(map(str, kept))


def state_text(state: State) -> str:
    """Write a state as `state_of` reads it."""
    text = f"{state.head} {state.cleared} {state.floor} {state.messages}"
    return f"{text} {kept_text(state.kept)}" if state.kept else text


CHECK = 9  # characters that a sealed text begins with: eight digits and a blank


def is_sealed(life: str, name: str, kept: bytes) -> bool:
    """Say whether a text still has the check that it was written with (`sealed` in lua/_sealed.lua)."""
    return kept.startswith(_digest(f"{life} {name} ".encode() + kept[CHECK:]))


def seal(life: str, name: str, text: bytes) -> bytes:
    """Put its check in front of a text that is kept under a name (`sealed` in lua/_sealed.lua)."""
    return _digest(f"{life} {name} ".encode() + text) + text


def _digest(text: bytes) -> bytes:
    """Compute the digest of lua/_check.lua, with a blank behind it."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()[: CHECK - 1].encode() + b" "


class StoredSession(msgspec.Struct, frozen=True, gc=False):
    """The fields of meta, as session_state.lua gives them. `parts` has the numbers of others, snapshots and jumps."""

    info: SessionInfo
    dimension: int | None
    undo: tuple[UndoPart, ...]
    forgotten_text: bytes
    parts: bytes = b""


def jump_of(life: str, member: bytes, score: bytes) -> Jump:
    """Read a jump from "check seq after skip depth messages". Raises DamagedPart if it is not as it was written."""
    if not is_sealed(life, "jump", member) or member[CHECK:].partition(b" ")[0] != score:
        raise DamagedPart("jumps")
    seq, after, *_ = map(int, member[CHECK:].split(b" "))
    return seq, after


def other_of(life: str, member: bytes, score: bytes) -> tuple[str, int]:
    """Read class and seq of an entry that is no message. Raises DamagedPart if it is not as it was written."""
    text = member[CHECK:]
    if text[1:] != score or not is_sealed(life, "other", member):
        raise DamagedPart("others")
    return text[:1].decode(), int(score)


def ranges_of(text: bytes) -> list[Range]:
    """Read ranges from "first-last,first-last"."""
    return pairs_of(text.replace(b"-", b","))


def pairs_of(text: bytes) -> list[Range]:
    """Read ranges from "first,last,first,last"."""
    numbers = _numbers(text)
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def ranges_text(ranges: Sequence[Range]) -> str:
    return ",".join(f"{first}-{last}" for first, last in ranges)


def session_of(session_id: str, lines: bytes, undo: bytes, forgotten: bytes, found_by: bytes = b"") -> StoredSession:
    """Read a session from the fields of meta, one a line: `check_of` in lua/_check.lua. `found_by`: set_facts's."""
    life, version, last_seq, state, size, dimension, ttl, expires_at, created_at, changed_at, rest = lines.split(
        b"\n", 10
    )
    origin, _, parts = rest.rpartition(b"\n")  # an id of a session may have line breaks
    messages, snapshots = int(state.split(b" ", 4)[3]), int(parts.split(b" ", 2)[1])
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
        decode_facts(b"{%b}" % found_by) if found_by else {},
    )
    return StoredSession(info, int(dimension) if dimension else None, steps, forgotten, parts)


def facts_text(facts: Mapping[str, str]) -> bytes:
    """Write facts as lua/facts.lua keeps them: a line `"name":"value"` for each."""
    return b"\n".join(b"%b:%b" % (_encode(name), _encode(value)) for name, value in facts.items())


def _undo_step(text: bytes) -> UndoPart:
    version, kind, moved_to, hidden, state = text.split(b" ", 4)
    return UndoPart(int(version), kind.decode(), int(moved_to), int(hidden), state_of(state))


def undo_text(steps: Sequence[UndoPart]) -> str:
    """Write undo steps as `session_of` reads them."""
    return ";".join(
        f"{step.version} {step.kind} {step.moved_to} {step.hidden} {state_text(step.before)}" for step in steps
    )


class StoredSnapshot(msgspec.Struct, frozen=True, gc=False):
    """A snapshot, and its state."""

    snapshot: Snapshot
    state: State


def snapshots_of(info: SessionInfo, pairs: Sequence[bytes]) -> list[StoredSnapshot]:
    """Read snapshots, in the order they were taken, from pairs: an id, and "check version time state" with a newline
    and a label, if there is one. Raises DamagedPart if one is not as it was written."""
    found = []
    for name, text in zip(pairs[::2], pairs[1::2], strict=True):
        if not is_sealed(info.life, name.decode(errors="replace"), text):
            raise DamagedPart("snapshots")
        front, newline, label = text[CHECK:].partition(b"\n")
        version, at, state_bytes = front.split(b" ", 2)
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
    """Read a change from its entry in the stream: "kind life", "check first count time state", then named fields.
    Raises DamagedPart if it is not as it was written, or of another life."""
    name, fields = row
    kind = kind_in(fields[0], life)
    over = b" ".join([b"%d" % seq_of(name), fields[0], fields[1][CHECK:], *fields[2:]])
    if kind is None or not fields[1].startswith(_digest(over)):
        raise DamagedPart("changes")
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
            None if (key := named.get(b"key")) is None else key.hex(),
        )
        return StoredChange(change, state_of(state))
    except (ValueError, IndexError) as exc:
        if is_interruption(exc):
            raise
        raise DamagedPart("changes") from exc


def kind_in(field: bytes, life: str) -> bytes | None:
    """Read the kind of an entry or a change from "kind life"; None if it is of another life."""
    kind, _, owner = field.rpartition(b" ")
    return kind if owner == life.encode() else None


def seq_of(entry_id: bytes) -> int:
    """Read the seq (or version) from the id of a stream's entry; -1 if it is not one of ours."""
    return int(entry_id[:-2]) if entry_id.endswith(b"-0") else -1


def seqs_of(entry_ids: Sequence[bytes]) -> list[int]:
    """Read many seqs at once."""
    try:
        return _numbers(b",".join(entry_ids).replace(b"-0", b""))
    except (msgspec.MsgspecError, ValueError) as exc:  # one that is not ours among them
        if is_interruption(exc):
            raise
        return [seq_of(entry_id) for entry_id in entry_ids]


def _numbers(text: bytes) -> list[int]:
    """Read whole numbers from "1,2,3", in half the time of an `int` for each. Raises MsgspecError, ValueError."""
    return _decode_numbers(b"[%b]" % text)


def entry_value(seq: int, turn: int, at: int, check: int, body: bytes) -> bytes:
    """Write the value of an entry: "turn time place checksum body"."""
    return b"%d %d %d %d %b" % (turn, at, _place(seq, turn, at), check, body)


def _place(seq: int, turn: int, at: int) -> int:
    """Compute the place of an entry, as lua/_entry.lua does."""
    return (seq * 7919 + turn * 104729 + at) % 1048573


def message_row(seq: int, value: bytes) -> MessageRow:
    """Read an entry from its value. One that is unreadable, or has a wrong place, gets a checksum that fits no body."""
    try:
        turn, at, place, check, body = value.split(b" ", 4)
        if int(place) == _place(seq, int(turn), int(at)):
            return seq, int(at) / MICROSECONDS, int(check), body
    except ValueError as exc:
        if is_interruption(exc):
            raise
    return seq, 0.0, -1, value


def message_columns(seqs: Sequence[int], values: Sequence[bytes]) -> Columns:
    """Read many entries at once, by columns: all times in one step, all checksums in one step."""
    if not values:
        return Columns([], [], [], [])
    try:
        *numbers, bodies = zip(*[value.split(b" ", 4) for value in values], strict=True)
        turns, times, places, checks = (_numbers(b",".join(texts)) for texts in numbers)
        # As in `_place`: a call for each would take most of the time.
        expected = [
            (seq * 7919 + turn * 104729 + at) % 1048573 for seq, turn, at in zip(seqs, turns, times, strict=True)
        ]
        if len(checks) == len(values) and places == expected:
            return Columns(seqs, [at / MICROSECONDS for at in times], checks, list(bodies))
    except (msgspec.MsgspecError, ValueError) as exc:
        if is_interruption(exc):
            raise
    return Columns.of(list(map(message_row, seqs, values)))


def turns_of(values: Sequence[bytes]) -> list[int]:
    """Read the turns of many entries at once. Raises MsgspecError, ValueError."""
    return _numbers(b",".join([value[: value.index(b" ")] for value in values]))


def entry_row(seq: int, kind: bytes, value: bytes) -> EntryRow:
    row = message_row(seq, value)
    turn = value.partition(b" ")[0]
    return *row, kind.decode(errors="replace"), int(turn) if turn.isdigit() else seq
