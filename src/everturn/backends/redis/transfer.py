"""Copies of sessions, out of Redis and into it (everturn.transfer.protocol). Each step is one script of bounded length.

A session that arrives is staged under keys of its own, which expire by themselves, and renamed when it is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import urandom
from typing import Any

import msgspec

from everturn.backend import ChangeOutcome, Fork
from everturn.backends.redis import effects, scripts
from everturn.backends.redis.changes import outcome_of
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart
from everturn.backends.redis.keys import KeyNames, Keys
from everturn.backends.redis.reads import list_changes
from everturn.backends.redis.session_state import read_all_parts
from everturn.backends.redis.staged_rows import STEP, ChangeArgs, EntryArgs, StagedRows, put
from everturn.backends.redis.stored_form import (
    CHECK,
    MICROSECONDS,
    StoredSnapshot,
    change_of,
    entry_row,
    entry_value,
    facts_text,
    is_sealed,
    kind_in,
    ranges_of,
    ranges_text,
    seal,
    seq_of,
    state_text,
    undo_text,
)
from everturn.core.paths import Jump, Range, contains, merge
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EffectPart, EntryPart, Outline, Portion, SnapshotPart

MOST = 300  # entries handed over by one script: a millisecond or so
REMEMBERED = 1024  # changes kept of those that a session brings, as of those that it makes


# --- out -------------------------------------------------------------------------------------------------------------


async def outline(sender: Sender, keys: Keys, session_id: str, now: str, deadline: float) -> Outline | None:
    """Carry out Portable.outline: read all of the session's present life but its log and its changes."""
    while True:
        more = [list_changes(keys, 1), ("TIME",)]
        full, (latest, time) = await read_all_parts(sender, keys, session_id, now, deadline, more=more)
        view = full.view
        if view.session is None:
            return None
        info = view.session.info
        made = seq_of(latest[0][0]) if latest else 0
        rows = await effects.read(sender, keys, now, deadline)
        if made <= info.version == rows.version and info.life == rows.life:
            break  # else it was changed between the reads
    return Outline(
        session_id,
        info.life,
        info.version,
        _named(latest[0])[b"call"] if made == info.version else b"",
        info.last_seq,
        view.state,
        info.created_at,
        info.changed_at,
        (int(now) if now else int(time[0]) * MICROSECONDS + int(time[1])) / MICROSECONDS,
        info.ttl,
        info.expires_at,
        view.session.dimension,
        info.forked_from,
        tuple(reversed(full.jumps)),
        tuple(map(_snapshot_part, view.snapshots)),
        view.session.undo,
        tuple(map(EffectPart.of, rows.effects)),
        info.facts,
    )


def _snapshot_part(stored: StoredSnapshot) -> SnapshotPart:
    snapshot = stored.snapshot
    return SnapshotPart(snapshot.id, snapshot.label, snapshot.version, snapshot.created_at, stored.state)


def _named(row: Sequence[Any]) -> dict[bytes, bytes]:
    """Return the named fields of a change."""
    return dict(zip(row[1][2::2], row[1][3::2], strict=True))


async def portion(sender: Sender, keys: Keys, request: PortionRequest, now: str, deadline: float) -> Portion | None:
    """Carry out Portable.portion: read the next rows of a life.

    Three reads in one round trip, whose order makes them agree: a change that can still be read at the third had all
    its entries at the first, and a session that is of this life at the third was so all along.
    """
    most = min(request.entries, MOST)
    bounds = [request.after_seq, request.last_seq, most, request.bytes]
    changes = ("XRANGE", keys[3], request.after_version + 1, request.last_version, "COUNT", request.changes)
    meta = ("HMGET", keys[0], "life", "expires_at", "forgotten")
    may_be_last = request.last_seq - request.after_seq <= most
    more = [changes, meta] if may_be_last else [meta]
    (is_all, rows), *rest, found = await sender.read(scripts.PORTION, keys, bounds, more, deadline)
    life, expires_at, forgotten_text = found
    if life != request.life.encode() or (now and expires_at and int(expires_at) <= int(now)):
        return None
    kinds = [kind_in(fields[0], request.life) for _, fields in rows]
    entries = tuple(
        EntryPart.of(entry_row(seq_of(name), kind, fields[1]))
        for kind, (name, fields) in zip(kinds, rows, strict=True)
        if kind is not None  # else it is not of this life, and will be missed
    )
    if not is_all:
        return Portion(entries, is_last=False)
    if not rest:  # fewer entries than seqs: some were reclaimed
        behind = await portion(
            sender, keys, msgspec.structs.replace(request, after_seq=request.last_seq), now, deadline
        )
        return behind and Portion(entries, behind.changes, behind.is_last)
    if forgotten_text and not is_sealed(request.life, "forgotten", forgotten_text):
        raise DamagedPart("forgotten")
    forgotten = ranges_of((forgotten_text or b"")[CHECK:])
    remembered = tuple(_change_part(row, request.life, forgotten) for row in rest[0])
    return Portion(entries, remembered, is_last=len(remembered) < request.changes)


def _change_part(row: Sequence[Any], life: str, forgotten: Sequence[Range]) -> ChangePart:
    stored = change_of(row, life)
    change, named = stored.change, _named(row)
    return ChangePart(
        change.version,
        change.kind,
        change.seqs[0] if change.seqs else 0,
        len(change.seqs),
        change.created_at,
        named[b"call"],
        stored.state,
        not contains(forgotten, change.version),
        named.get(b"key"),
        named.get(b"content"),
        change.snapshot,
        change.label,
    )


# --- in --------------------------------------------------------------------------------------------------------------


class _StageHandle(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of staged rows, and how many of them there must be."""

    token: bytes
    entries: int = 0
    changes: int = 0


_decode_handle = msgspec.json.Decoder(_StageHandle).decode


async def stage(sender: Sender, names: KeyNames, request: Staging, now: str, deadline: float) -> str:
    """Carry out Portable.stage: write rows under staged keys. If they expire, `restore` notices."""
    handle = _StageHandle(urandom(8)) if request.handle is None else _decode_handle(request.handle)
    keys = names.staged(request.session_id, handle.token)
    rows = _rows(request.portion, request.version)
    await put(sender, keys, request.life, rows, now, deadline, forgotten=_forgotten(request.portion))
    staged = _StageHandle(handle.token, handle.entries + len(rows.entries), handle.changes + len(rows.changes))
    return msgspec.json.encode(staged).decode()


async def restore(sender: Sender, names: KeyNames, arrival: Arrival, now: str, deadline: float) -> ChangeOutcome:
    """Carry out Portable.restore: make the session visible in one step."""
    outline, onto, portion = arrival.outline, arrival.onto, arrival.portion
    handle = None if arrival.handle is None else _decode_handle(arrival.handle)
    adds = onto is not None and handle is None  # to the session that is there; that is never much
    jumps = _new_jumps(arrival) if adds else outline.jumps
    brought = _rows(portion, outline.version)
    rows = StagedRows(brought.entries, brought.changes, jumps, _snapshots(outline))
    forgotten = _forgotten(portion)
    staged: tuple[Any, Any, Any, Any] = ("", "", "", "")
    if handle is not None or len(rows) > STEP:
        handle = handle or _StageHandle(urandom(8))
        beside = names.staged(outline.session_id, handle.token)
        if adds:
            await put(sender, beside, outline.life, StagedRows(snapshots=rows.snapshots), now, deadline)
            staged, rows = ("", "", "", len(rows.snapshots) or ""), StagedRows(rows.entries, rows.changes, rows.jumps)
        else:
            await put(sender, beside, outline.life, rows, now, deadline, forgotten=forgotten)
            entries, changes = handle.entries + len(rows.entries), handle.changes + len(rows.changes)
            staged = entries, changes, len(rows.jumps), len(rows.snapshots) or ""
            rows, forgotten = StagedRows(), ""
    keys = names.keys(outline.session_id)
    if handle is not None:
        keys += names.staged(outline.session_id, handle.token)
    fields = _fields(outline)
    args = [
        "1" if sender.replicas else "",
        *(("", "", "") if onto is None else (onto.life, onto.version, onto.call)),
        *staged,
        "" if arrival.expires_in is None else round(arrival.expires_in * MICROSECONDS),
        forgotten,
        undo_text(outline.undo_steps),
        *(len(fields), *fields),
        *rows.args,
    ]
    return outcome_of(await sender.change(scripts.RESTORE, keys, args, now, deadline), outline.session_id, Fork())


def _new_jumps(arrival: Arrival) -> list[Jump]:
    """Return the jumps to entries that are added: a jump is made together with the entry that it leads to."""
    first = min((change.first_seq for change in arrival.portion.changes if change.count), default=None)
    return [jump for jump in arrival.outline.jumps if first is not None and jump[0] >= first]


def _micros(seconds: float) -> int:
    return round(seconds * MICROSECONDS)


def _fields(outline: Outline) -> list[Any]:
    """Return the fields of meta that are stored as they arrive."""
    fields: dict[str, Any] = {
        "version": outline.version,
        "last_seq": outline.last_seq,
        "state": state_text(outline.state),
        "changed_at": _micros(outline.changed_at),
        "life": outline.life,
        "created_at": _micros(outline.created_at),
        "dimension": "" if outline.dimension is None else outline.dimension,
        "ttl": "" if outline.ttl is None else repr(outline.ttl),
        "forked_from": outline.forked_from or "",
    }
    if outline.facts:
        fields["facts"] = seal(outline.life, "facts", facts_text(outline.facts))
    rows = effects.fields_of(outline.life, (part.row for part in outline.effects))
    return [*(part for pair in fields.items() for part in pair), *rows]


def _snapshots(outline: Outline) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    for snapshot in outline.snapshots:
        text = f"{snapshot.version} {_micros(snapshot.created_at)} {state_text(snapshot.state)}"
        parts.append((snapshot.id, text if snapshot.label is None else f"{text}\n{snapshot.label}"))
    return parts


def _rows(portion: Portion, version: int) -> StagedRows:
    """Return the entries, and the changes that a session at this version remembers."""
    entries: list[EntryArgs] = [
        (
            entry.seq,
            entry.kind,
            entry_value(entry.seq, entry.turn, _micros(entry.created_at), entry.checksum, entry.body),
        )
        for entry in portion.entries
    ]
    remembered = [change for change in portion.changes if change.version > version - REMEMBERED]
    return StagedRows(entries, [_change_fields(change) for change in remembered])


def _forgotten(portion: Portion) -> str:
    return ranges_text(merge([(change.version, change.version) for change in portion.changes if not change.readable]))


def _change_fields(change: ChangePart) -> ChangeArgs:
    receipt = f"{change.first_seq} {change.count} {_micros(change.created_at)} {state_text(change.state)}"
    named = {
        "call": change.call,
        "key": change.key,
        "content": change.content,
        "snapshot": change.snapshot_id,
        "label": change.label,
    }
    fields = [change.kind, receipt, *(part for pair in named.items() if pair[1] is not None for part in pair)]
    return (change.version, change.key or b"", len(fields), *fields)
