"""Errors of SQLite, translated into everturn's, each with advice. Nowhere else are they translated."""

from __future__ import annotations

import errno

import apsw

from everturn.backends.sqlite import page_checksums
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import InvalidInput, MemoryStoreBackendError, Outcome

_ADVICE: dict[type[apsw.Error], str] = {
    apsw.BusyError: "another process kept it locked until the time-out; raise timeout, or find the long transaction",
    apsw.LockedError: "another connection kept it locked until the time-out",
    apsw.InterruptError: "it took longer than the time-out; raise timeout, or ask for less",
    apsw.FullError: "the disk, or the size allowed to the file, is full; make room and try again",
    apsw.ReadOnlyError: "the file or its directory is read-only; everturn must be able to write both",
    apsw.CantOpenError: "it cannot be opened; check the permissions of file and directory, and the limit on open files",
    apsw.PermissionsError: "access is denied; check the permissions of file and directory",
    apsw.IOError: "the disk reported an error; check the disk and the limits on file size and open files",
    apsw.CorruptError: "the file is damaged; keep it, and restore a backup",
    apsw.NoMemError: "there is not enough memory",
}

BAD_CHECKSUM = "of the file does not match its checksum"  # of "a page", as in _DAMAGED, or of "page 7"
_DAMAGED = (
    "a page of the file does not match its checksum; everturn verify tells what is damaged. Keep the file, and restore "
    "a backup; or, if a program other than everturn wrote to it, everturn verify --accept-pages"
)
_OTHER_SCHEMA = (
    "the stored schema is not everturn's: it is damaged, or was changed by hand; everturn verify tells where. Keep the "
    "file, and restore a backup"
)
_NO_FILES = "too many files are open; close some, or raise the limit (ulimit -n)"


class DamagedFile(MemoryStoreBackendError):
    """A page of the file is not as it was written, or is not valid. This call changed nothing."""


class translated:  # noqa: N801 - used as a function; a class, because every read pays for it
    """Raise SQLite's errors as everturn's. `outcome` says whether the change may have been written."""

    __slots__ = ("_name", "_outcome")

    def __init__(self, name: str, outcome: Outcome = "not_written") -> None:
        self._name = name
        self._outcome: Outcome = outcome

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if exc is not None and (error := translation(exc, self._name, self._outcome)) is not exc:
            raise error


def translation(exc: BaseException, name: str, outcome: Outcome = "not_written") -> BaseException:
    """Translate SQLite's error, with it as the cause. Other errors, and those of a signal handler, stay as they are."""
    if not isinstance(exc, apsw.Error | OSError) or is_interruption(exc):
        return exc
    if isinstance(exc, apsw.NotADBError):
        error: Exception = InvalidInput("is not a SQLite database (or is encrypted); choose another path", path=name)
    elif page_checksums.is_damage(exc):
        advice = _DAMAGED if isinstance(exc, apsw.IOError) else _ADVICE[apsw.CorruptError]
        error = DamagedFile(f"{name}: {advice} (SQLite: {exc})", outcome=outcome)
    elif isinstance(exc, apsw.SQLError) and str(exc).startswith("no such "):
        error = DamagedFile(f"{name}: {_OTHER_SCHEMA} (SQLite: {exc})", outcome=outcome)
    else:
        advice = next((text for kind, text in _ADVICE.items() if isinstance(exc, kind)), "see the cause")
        if getattr(exc, "errno", None) in (errno.EMFILE, errno.ENFILE):
            advice = _NO_FILES
        elif isinstance(exc, PermissionError):
            advice = _ADVICE[apsw.PermissionsError]
        error = MemoryStoreBackendError(f"{name}: {advice} (SQLite: {exc})", outcome=outcome)
    error.__cause__ = exc
    return error
