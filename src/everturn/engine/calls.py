"""One call on a store: its arguments checked, its request sent until it is answered or its time is up.

What is asked of the backend is the business of the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol, TypeVar

import msgspec

from everturn.backend import At, Backend, ChangeOutcome, Status
from everturn.errors import (
    InvalidInput,
    MemoryStoreBackendError,
    SessionNotFound,
    SnapshotNotFound,
    VersionConflict,
)
from everturn.model import Receipt, SessionState, Snapshot

T = TypeVar("T")
LONGEST_ID = 512
LARGEST_COUNT = 2**53
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25


class Settings(msgspec.Struct, frozen=True):
    """The options every store has, whatever its engine."""

    ttl: float | None = None
    timeout: float = 5.0
    max_message_bytes: int = 16 * 2**20


class Face(Protocol):
    """What differs between the two faces of the store: how time is told and passed, and where long thinking is done."""

    def clock(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    async def offload(self, think: Callable[[], T]) -> T: ...


class Caller:
    """Sends requests to a backend, again after a transient fault, within the store's time-out."""

    def __init__(self, backend: Backend, settings: Settings, face: Face) -> None:
        self.backend = backend
        self.settings = settings
        self.face = face

    async def call(self, send: Callable[[bool, float], Awaitable[T]], deadline: float | None = None) -> T:
        """Send a request until it is answered. `send` gets whether this is a retry, and the deadline: of a call of many
        requests that of all of them.

        Raises MemoryStoreBackendError with outcome "not_written" only if no attempt can have been applied.
        """
        if deadline is None:
            deadline = self.face.clock() + self.settings.timeout
        try:
            return await send(False, deadline)  # noqa: FBT003 - said above
        except MemoryStoreBackendError as exc:
            error = exc
        return await self.insist(send, deadline, error)  # out here: an attempt is not the cause of the next one's fault

    async def insist(
        self, send: Callable[[bool, float], Awaitable[T]], deadline: float, error: MemoryStoreBackendError
    ) -> T:
        """Send a request again whose first attempt ended in this error, as `call` does."""
        latest, doubtful = error, error.outcome == "unknown"
        pause = FIRST_PAUSE
        while latest.transient and self.face.clock() + pause < deadline:
            await self.face.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            try:
                return await send(True, deadline)  # noqa: FBT003
            except MemoryStoreBackendError as exc:
                latest, doubtful = exc, doubtful or exc.outcome == "unknown"
                # An attempt for which there was no time left says less than the one before it.
                if exc.outcome == "unknown" or self.face.clock() < deadline:
                    error = exc
        error.outcome = "unknown" if doubtful else "not_written"
        raise error


# --- arguments -------------------------------------------------------------------------------------------------------


def checked_id(session_id: object, path: str = "session_id") -> str:
    """The session id. Raises InvalidInput unless it is 1 to 512 bytes of text without NUL."""
    if type(session_id) is not str:
        if not isinstance(session_id, str):
            raise InvalidInput(f"must be a string, not {type(session_id).__name__}", path=path)
        session_id = plain(session_id)
    if session_id.isascii() and 0 < len(session_id) <= LONGEST_ID and "\0" not in session_id:
        return session_id  # as most are
    return _checked_text(session_id, path)


def checked_key(key: object) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidInput(f"must be a string, not {type(key).__name__}", path="key")
    return _checked_text(key, "key").encode()


def checked_label(label: object, path: str = "label") -> str | None:
    if label is None:
        return None
    if not isinstance(label, str):
        raise InvalidInput(f"must be a string, not {type(label).__name__}", path=path)
    return _checked_text(label, path)


def plain(text: str) -> str:
    """The text as itself: a member of an enumeration, for one, shows its name where its text was meant."""
    return str.__str__(text)


def _checked_text(text: str, path: str) -> str:
    text = plain(text)
    try:
        length = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which cannot be stored", path=path) from None
    if not 0 < length <= LONGEST_ID:
        raise InvalidInput(f"must have 1 to {LONGEST_ID} bytes, not {length}", path=path)
    if "\0" in text:
        raise InvalidInput("must not contain NUL", path=path)
    return text


def checked_count(number: object, path: str, least: int = 0) -> int:
    """A whole number of at least `least`, as large as any engine can count. Raises InvalidInput."""
    if type(number) is not int:
        raise InvalidInput(f"must be a whole number, not {type(number).__name__}", path=path)
    if number < least:
        raise InvalidInput(f"must be at least {least}, not {number}", path=path)
    return min(number, LARGEST_COUNT)


def checked_bound(number: object, path: str) -> int | None:
    """The same, or None for no bound."""
    return None if number is None else checked_count(number, path)


def checked_search(text: object, path: str, longest: int) -> str:
    """Text to look for: whatever can be stored, up to `longest` characters. Raises InvalidInput."""
    if not isinstance(text, str) or "\0" in text or len(text) > longest:
        raise InvalidInput(f"must be a string of up to {longest} characters without NUL", path=path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which cannot be stored", path=path) from None
    return plain(text)


def checked_expectation(expected: object) -> tuple[int | None, str | None]:
    """The version, and the life where one is named."""
    if expected is None:
        return None, None
    if isinstance(expected, Receipt | SessionState):
        return expected.version, expected.life
    if type(expected) is not int or expected < 0:
        raise InvalidInput(
            "is a version (0 for a session that must not exist), a Receipt or a SessionState, "
            f"not {expected if type(expected) is int else type(expected).__name__}",
            path="expected_version",
        )
    return expected, None


def checked_at(at: object, path: str = "at") -> At:
    """A snapshot's id, a version, or None for now."""
    if at is None:
        return None
    if type(at) is int:
        return checked_count(at, path)
    if isinstance(at, Snapshot | str):
        return checked_snapshot(at, path)
    raise InvalidInput(f"is a snapshot (or its id) or a version, not {type(at).__name__}", path=path)


def checked_snapshot(snapshot: object, path: str = "snapshot") -> str:
    if isinstance(snapshot, Snapshot):
        return snapshot.id
    if isinstance(snapshot, str):
        return _checked_text(snapshot, path)
    raise InvalidInput(f"is a Snapshot or its id, not {type(snapshot).__name__}", path=path)


# --- refusals --------------------------------------------------------------------------------------------------------


def refuse(outcome: ChangeOutcome, session_id: str, *, expected: int | None = None, named: Any = None) -> NoReturn:
    """Raise what a backend's refusal means to the caller. `named` is the snapshot, seq or version it was about."""
    where = f"session {session_id!r}"
    match outcome.status:
        case Status.CONFLICT if expected == outcome.version:
            raise _conflict(
                f"{where} at version {expected} is another life than the one expected; re-read",
                session_id,
                expected,
                outcome,
            )
        case Status.CONFLICT:
            raise _conflict(
                f"{where} is at version {outcome.version}, not {expected}; re-read and retry",
                session_id,
                expected,
                outcome,
            )
        case Status.FOLLOWED:
            text = (
                f"{where} has had turns since; undo would drop them. To do so, name expected_version={outcome.version}"
            )
            raise _conflict(text, session_id, expected, outcome)
        case Status.NO_SESSION:
            raise no_session(session_id)
        case Status.NO_SNAPSHOT:
            raise no_snapshot(session_id, named)
        case Status.NO_VERSION:
            raise no_version(session_id, named)
        case Status.KEY_REUSED:
            raise InvalidInput(
                f"was used before in {where} with other content; use a new key for a new change", path="key"
            )
        case Status.NOTHING_TO_UNDO:
            raise InvalidInput(f"{where} has no rollback, replace, trim or clear left to take back", path="undo")
        case Status.NOT_ON_PATH:
            raise InvalidInput(f"{named} is not the seq of an entry in the history of {where}", path="after")
        case Status.DIMENSION:
            raise InvalidInput(f"must have {outcome.detail} numbers, as the others of {where}", path="embedding")
        case Status.EXISTS:
            raise InvalidInput(f"{where} exists already; fork into a new one, or erase it first", path="new_session_id")
    raise AssertionError(outcome)  # pragma: no cover - a backend broke the protocol


def _conflict(text: str, session_id: str, expected: int | None, outcome: ChangeOutcome) -> VersionConflict:
    return VersionConflict(text, session_id=session_id, expected=expected, actual=outcome.version)


def no_session(session_id: str) -> SessionNotFound:
    return SessionNotFound(
        f"there is no session {session_id!r}: it never was, it expired, or it was erased",
        session_id=session_id,
    )


def no_snapshot(session_id: str, snapshot: str) -> SnapshotNotFound:
    return SnapshotNotFound(
        f"session {session_id!r} has no snapshot {snapshot!r} in its present life; list_snapshots tells which it has",
        session_id=session_id,
        snapshot=snapshot,
    )


def no_version(session_id: str, version: object) -> InvalidInput:
    return InvalidInput(
        f"session {session_id!r} cannot be read at version {version}: it was never reached, or has been reclaimed; "
        "a snapshot keeps a state for good",
        path="at",
    )
