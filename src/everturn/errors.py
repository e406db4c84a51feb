"""Errors that everturn raises, in one tree. Every value in a message is also an attribute.

Each backend turns its driver's errors into these, in one place of its own.

    MemoryStoreError
     ├─ MemoryStoreBackendError   the backend failed; `outcome` says whether the change may have been applied
     ├─ VersionConflict           the session is not at the version the caller named; nothing was changed
     ├─ KeyReused                 the key was used before with other content; `receipt` is that of the first use
     ├─ LeaseHeld                 another holds the lease of the session, and did so for as long as was waited
     ├─ LeaseLost                 the lease that a change named is not in force any more; nothing was changed
     ├─ EffectInDoubt             an effect was begun and never ended: nobody knows whether it was done
     ├─ CorruptEntry              stored bytes do not match their checksum, or parts of a session disagree
     ├─ SessionNotFound           the session does not exist (never did, expired, or was erased)
     ├─ SnapshotNotFound          no such snapshot in this life of this session
     ├─ InvalidInput              the caller's value cannot be taken; nothing was written
     ├─ Unsupported               this backend, or this installation, cannot do it
     └─ SchemaTooNew              the data was written by a newer everturn; it was left untouched
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from everturn.model import Receipt
    from everturn.model.effect import Effect

__all__ = [
    "CorruptEntry",
    "EffectInDoubt",
    "HostileSetting",
    "InvalidInput",
    "KeyReused",
    "LeaseHeld",
    "LeaseLost",
    "MemoryStoreBackendError",
    "MemoryStoreError",
    "Outcome",
    "SchemaTooNew",
    "SessionNotFound",
    "SnapshotNotFound",
    "Unsupported",
    "VersionConflict",
]

Outcome = Literal["not_written", "unknown"]


class MemoryStoreError(Exception):
    """Base of every error everturn raises."""

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class MemoryStoreBackendError(MemoryStoreError):
    """The backend failed.

    `outcome` is "not_written" only if every attempt is known not to have been applied; otherwise "unknown":
    then a retry with the same `key` finds or writes exactly one. A backend sets `transient`
    where the store may send the same request again.
    """

    def __init__(self, message: str, *, outcome: Outcome, transient: bool = False) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.transient = transient

    def __str__(self) -> str:
        return f"{super().__str__()} [{self.outcome}]"  # so that a log line tells, too


class VersionConflict(MemoryStoreError):
    """The session is not at the version the caller named; nothing was changed."""

    def __init__(self, message: str, *, session_id: str, expected: int | None, actual: int) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class KeyReused(MemoryStoreError):
    """The key was used before in this session, with other content; nothing was changed.

    A model that is asked again answers differently, so a second attempt at one request ends here. The
    first answer stands: `receipt` is the receipt of the change that used the key.
    """

    def __init__(self, message: str, *, session_id: str, receipt: Receipt) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.receipt = receipt


class LeaseHeld(MemoryStoreError):
    """Another holds the lease of the session. `left`: seconds that it lasts unless it is renewed; `token`: its own."""

    def __init__(self, message: str, *, session_id: str, token: int, left: float) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.token = token
        self.left = left


class LeaseLost(MemoryStoreError):
    """The lease is not in force any more: another has it or has had it, its time is over, or the session was erased or
    expired. Nothing was changed. Stop working on the session: another worker may be doing so."""

    def __init__(self, message: str, *, session_id: str, token: int) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.token = token


class EffectInDoubt(MemoryStoreError):
    """An effect was begun and never ended: nobody knows whether it was done. It was not begun again.

    `effect` says who began it, when, and with which request. `in_progress`: the lease that it was begun under is still
    held by another worker, so that it is probably being done now. Else that worker has crashed, or gave up.
    """

    def __init__(self, message: str, *, session_id: str, effect: Effect, in_progress: bool = False) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.effect = effect
        self.in_progress = in_progress


class CorruptEntry(MemoryStoreError):
    """An entry's stored bytes are not those that were written, or are gone. The raw bytes were left as they are.

    Bodies are checked in core/codec.py, rows that are missing are found by each backend's reads, counts are compared in
    store/reads.py, and the pages of a SQLite file in backends/sqlite/page_checksums.py.
    """

    def __init__(self, message: str, *, session_id: str, seq: int) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.seq = seq


class SessionNotFound(MemoryStoreError):
    """The session does not exist: it never did, it expired, or it was erased."""

    def __init__(self, message: str, *, session_id: str) -> None:
        super().__init__(message)
        self.session_id = session_id


class SnapshotNotFound(MemoryStoreError):
    """No such snapshot in this life of this session."""

    def __init__(self, message: str, *, session_id: str, snapshot: str) -> None:
        super().__init__(message)
        self.session_id = session_id
        self.snapshot = snapshot


class InvalidInput(MemoryStoreError, ValueError):
    """The caller's value cannot be taken; nothing was written. `path` names it: `messages[2].metadata.score`."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class Unsupported(MemoryStoreError):
    """This backend, or this installation, cannot do it; the message names another way."""


class SchemaTooNew(MemoryStoreError):
    """The data was written by a newer everturn; it was left untouched."""

    def __init__(self, message: str, *, found: int, supported: int) -> None:
        super().__init__(message)
        self.found = found
        self.supported = supported


class HostileSetting(UserWarning):
    """A setting, or the state of a server, under which acknowledged changes may be lost or none can be made.

    A store that opens warns of it, unless told `warnings=False`. It is no MemoryStoreError: nothing has failed yet.
    """


def _rebuild(kind: type[MemoryStoreError], args: tuple[object, ...], state: dict[str, object]) -> MemoryStoreError:
    # Errors cross process borders (multiprocessing pickles them); keyword-only __init__ needs this detour.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
