"""Leases and effects in Redis: requests to arguments of scripts, answers to values. lua/_lease.lua and _effect.lua have
the stored form. Pure, but for the two functions that send."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from everturn.backend import (
    BeginEffect,
    EffectsReading,
    EndEffect,
    LeaseOutcome,
    LeaseReading,
    LeaseRequest,
    Status,
    StoredEffect,
)
from everturn.backends.redis import scripts
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import DamagedPart
from everturn.backends.redis.keys import Keys
from everturn.backends.redis.stored_form import CHECK, MICROSECONDS, is_sealed, seal
from everturn.core.signal_exceptions import is_interruption

PREFIX = "effect:"  # of the fields of meta that are effects
_encode = msgspec.json.encode
_decode_text = msgspec.json.Decoder(str).decode


async def apply_lease(sender: Sender, keys: Keys, request: LeaseRequest, now: str, deadline: float) -> LeaseOutcome:
    """Take, renew or release a lease (Backend.lease)."""
    micros = round(request.seconds * MICROSECONDS)
    args = [f"{request.holder} {request.action}", request.action, request.holder, request.token, micros]
    status, token, until, left = (await sender.change(scripts.LEASE, keys, args, now, deadline)).split(b" ")
    return LeaseOutcome(Status(status.decode()), int(token), int(until) / MICROSECONDS, int(left) / MICROSECONDS)


async def held_lease(sender: Sender, keys: Keys, now: str, deadline: float) -> LeaseReading | None:
    """Look at the lease of a session that is in force (Backend.held_lease). Raises DamagedPart."""
    (found,) = await sender.read(scripts.HELD_LEASE, keys, [now], (), deadline)
    if not found:
        return None
    token, holder, until, left = found
    return LeaseReading(int(token), holder.decode(), int(until) / MICROSECONDS, int(left) / MICROSECONDS)


async def read(sender: Sender, keys: Keys, now: str, deadline: float) -> EffectsReading:
    """List the effects of a session (Backend.effects). Raises DamagedPart if one is not as it was written."""
    ((life, version, token, *parts),) = await sender.read(scripts.EFFECTS, keys, [now], (), deadline)
    held = int(token)
    rows = [
        effect_of(life.decode(), name.decode(), text, held)
        for name, text in dict(zip(parts[::2], parts[1::2], strict=True)).items()
        if name.startswith(PREFIX.encode())
    ]
    return EffectsReading(life.decode(), int(version), tuple(sorted(rows, key=lambda row: (row.began, row.key))))


def effect_of(life: str, field: str, kept: bytes, held: int) -> StoredEffect:
    """Read an effect from its field of meta. `held` is the token of the lease that is held."""
    if not is_sealed(life, field, kept):
        raise DamagedPart("effects")
    row = row_of(field.removeprefix(PREFIX), kept[CHECK:])
    return msgspec.structs.replace(row, held=True) if row.token and row.token == held else row


def row_of(key: str, text: bytes) -> StoredEffect:
    """Read an effect from its text. Raises DamagedPart."""
    try:
        line, request, result, error, note = text.split(b"\n")
        status, attempt, began, ended, token, at, ended_at, by = line.split(b" ")
        return StoredEffect(
            *(key, status.decode(), int(attempt), int(began), int(ended), int(token), by.decode()),
            *(int(at) / MICROSECONDS, int(ended_at) / MICROSECONDS if ended_at else None),
            *(request or None, result or None, error or None),
            _decode_text(note) if note else None,
        )
    except (ValueError, msgspec.MsgspecError) as exc:
        if is_interruption(exc):
            raise
        raise DamagedPart("effects") from exc


def fields_of(life: str, rows: Iterable[StoredEffect]) -> list[Any]:
    """Write effects as fields of meta: names and values in turn."""
    fields: list[Any] = []
    for row in rows:
        ended_at = b"" if row.ended_at is None else b"%d" % round(row.ended_at * MICROSECONDS)
        numbers = (row.attempt, row.began, row.ended, row.token, round(row.at * MICROSECONDS))
        line = b"%b %d %d %d %d %d %b %b" % (row.status.encode(), *numbers, ended_at, row.by.encode())
        bodies = (row.request or b"", row.result or b"", row.error or b"", _note(row.note))
        name = PREFIX + row.key
        fields += (name, seal(life, name, b"\n".join((line, *bodies))))
    return fields


def begin_args(action: BeginEffect) -> list[Any]:
    """Make the arguments of begin_effect.lua."""
    return [action.key, action.request or b"", action.by, action.token, action.repeats]


def end_args(action: EndEffect) -> list[Any]:
    """Make the arguments of end_effect.lua."""
    return [action.key, action.status, action.body or b"", _note(action.note), action.attempt]


def told_effect(action: BeginEffect | EndEffect, text: bytes) -> StoredEffect:
    """Read the effect that stands behind an answer: whether its lease is held, and its text."""
    row = row_of(action.key, text[1:])
    return msgspec.structs.replace(row, held=True) if text[:1] == b"1" else row


def _note(note: str | None) -> bytes:
    return b"" if note is None else _encode(note)
