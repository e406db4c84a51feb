"""Turns a backend's answer to a change into the receipt or the error that the caller sees."""

from __future__ import annotations

from typing import Any, NoReturn

from everturn.backend import MOST_FACTS, ChangeOutcome, ChangeRequest, ForkRequest, Status
from everturn.errors import (
    InvalidInput,
    KeyReused,
    SessionNotFound,
    SnapshotNotFound,
    VersionConflict,
)
from everturn.model import Receipt
from everturn.store.lease_holder import lease_lost


def receipt_of(session_id: str, outcome: ChangeOutcome) -> Receipt:
    """Make the receipt of the change that an outcome tells of."""
    seqs = tuple(range(outcome.first_seq, outcome.first_seq + outcome.count))
    replayed = outcome.status in (Status.REPLAYED, Status.KEY_REUSED)
    return Receipt(session_id, outcome.life, outcome.version, seqs, replayed)


def refuse(outcome: ChangeOutcome, request: ChangeRequest | ForkRequest, *, named: Any = None) -> NoReturn:
    """Raise the error for a backend's refusal. `named` is the snapshot, seq or version that the request was about."""
    session_id = request.source if isinstance(request, ForkRequest) else request.session_id
    expected = request.expected_version
    where = f"session {session_id!r}"
    match outcome.status:
        case Status.CONFLICT:
            raise conflict(session_id, expected, outcome)
        case Status.FOLLOWED:
            text = (
                f"{where} has had turns since; undo would drop them. To do so, name expected_version={outcome.version}"
            )
            raise _conflict(text, session_id, expected, outcome)
        case Status.LEASE_LOST if isinstance(request, ChangeRequest) and request.lease is not None:
            raise lease_lost(session_id, request.lease.token)
        case Status.NO_SESSION:
            raise no_session(session_id)
        case Status.NO_SNAPSHOT:
            raise no_snapshot(session_id, named)
        case Status.NO_VERSION:
            raise no_version(session_id, named, "at" if isinstance(request, ForkRequest) else "to")
        case Status.KEY_REUSED:
            raise _key_reused(session_id, outcome)
        case Status.NOTHING_TO_UNDO:
            raise InvalidInput(f"{where} has no rollback, replace, trim, fold or clear left to take back", path="undo")
        case Status.NOT_ON_PATH:
            raise InvalidInput(f"{named} is not the seq of an entry in the history of {where}", path="after")
        case Status.DIMENSION:
            raise InvalidInput(f"must have {outcome.detail} numbers, as the others of {where}", path="embedding")
        case Status.TOO_MANY_FACTS:
            raise InvalidInput(
                f"{where} would have more than {MOST_FACTS} facts; remove some by setting them to None", path="facts"
            )
        case Status.EXISTS:
            raise InvalidInput(f"{where} exists already; fork into a new one, or erase it first", path="new_session_id")
    raise AssertionError(outcome)  # pragma: no cover - a backend broke the protocol


def conflict(session_id: str, expected: int | None, outcome: ChangeOutcome) -> VersionConflict:
    """Make the error for a session that is not at the expected version, or is another life."""
    where = f"session {session_id!r}"
    if expected == outcome.version:
        text = f"{where} at version {expected} is another life than the one expected; re-read"
    else:
        text = f"{where} is at version {outcome.version}, not {expected}; re-read and retry"
    return _conflict(text, session_id, expected, outcome)


def _conflict(text: str, session_id: str, expected: int | None, outcome: ChangeOutcome) -> VersionConflict:
    return VersionConflict(text, session_id=session_id, expected=expected, actual=outcome.version)


def _key_reused(session_id: str, outcome: ChangeOutcome) -> KeyReused:
    receipt = receipt_of(session_id, outcome)
    return KeyReused(
        f"the key was used before in session {session_id!r} with other content, by the change of version "
        f"{receipt.version}; that one stands: read it (get_turn), or use a new key for a new change",
        session_id=session_id,
        receipt=receipt,
    )


def no_session(session_id: str) -> SessionNotFound:
    """Make the error for a session that is not there."""
    return SessionNotFound(
        f"there is no session {session_id!r}: it never was, it expired, or it was erased",
        session_id=session_id,
    )


def no_snapshot(session_id: str, snapshot: str) -> SnapshotNotFound:
    """Make the error for a snapshot that the session's present life does not have."""
    return SnapshotNotFound(
        f"session {session_id!r} has no snapshot {snapshot!r} in its present life; list_snapshots tells which it has",
        session_id=session_id,
        snapshot=snapshot,
    )


def no_version(session_id: str, version: object, path: str = "at") -> InvalidInput:
    """Make the error for a version that cannot be read. `path` is the argument that names it."""
    return InvalidInput(
        f"session {session_id!r} cannot be read at version {version}: it was never reached, or has been reclaimed; "
        "a snapshot keeps a state for good",
        path=path,
    )
