"""Sessions in and out of the database, for copies: parameters of functions, and the meaning of their rows. Pure.

The JSON of the exported form travels as it is; the bodies of entries travel beside it, as texts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everturn.backend import ChangeOutcome, Status
from everturn.backends.postgres import change_wire
from everturn.backends.postgres.arrays import Texts, numbers
from everturn.backends.postgres.executor import Rows
from everturn.transfer.protocol import STAGED_FOR, Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EntryPart, Outline, Portion

_encode = msgspec.json.Encoder().encode
_outline = msgspec.json.Decoder(Outline).decode
_changes = msgspec.json.Decoder(tuple[ChangePart, ...]).decode


def outline_in(rows: Rows) -> Outline | None:
    """Read the row of outline_v1. None: there is no session."""
    ((text,),) = rows
    return None if text is None else _outline(text)


def portion_parameters(request: PortionRequest) -> tuple[Any, ...]:
    """Give the parameters of portion_v1, behind the namespace and before the time."""
    return (
        *(request.session_id, request.life, request.after_seq, request.last_seq),
        *(request.after_version, request.last_version, request.entries, request.changes, request.bytes),
    )


def portion_in(rows: Rows, request: PortionRequest) -> Portion | None:
    """Read the rows of portion_v1. None: the life is over."""
    if not rows:
        return None
    changes = rows.pop()[3]
    entries = tuple(map(EntryPart.of, rows))
    if changes is None:
        return Portion(entries, is_last=False)
    remembered = _changes(changes)
    return Portion(entries, remembered, is_last=len(remembered) < request.changes)


def stage_parameters(request: Staging) -> tuple[Any, ...]:
    """Give the parameters of stage_v1, behind the namespace and before the window."""
    no = None if request.handle is None else int(request.handle)
    return (request.session_id, request.version, no, STAGED_FOR, *_rows(request.portion))


def restore_parameters(arrival: Arrival) -> tuple[Any, ...]:
    """Give the parameters of restore_v1, behind the namespace and before the patience."""
    onto = None if arrival.onto is None else _encode(arrival.onto).decode()
    no = None if arrival.handle is None else int(arrival.handle)
    outline = msgspec.structs.replace(arrival.outline, effects=())
    effects = change_wire.effects_text(part.row for part in arrival.outline.effects)
    return (_encode(outline).decode(), arrival.expires_in, onto, no, *_rows(arrival.portion), effects)


def _rows(portion: Portion) -> tuple[Any, ...]:
    entries = portion.entries
    return (
        numbers(entry.seq for entry in entries),
        numbers(entry.turn for entry in entries),
        numbers(entry.created_at for entry in entries),
        numbers(entry.checksum for entry in entries),
        Texts([entry.kind.encode() for entry in entries]),
        Texts([bytes(entry.body) for entry in entries]),
        _encode(portion.changes).decode(),
    )


def restored(rows: Rows) -> ChangeOutcome:
    """Read the row of restore_v1."""
    ((status, life, version, *_),) = rows
    return ChangeOutcome(Status(status), life, version)
