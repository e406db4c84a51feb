"""PostgreSQL's and psycopg's errors as ours: the one place where they are translated.

It also knows what each says about a change: an error that the server reports has undone it; a connection that broke
after the request was sent leaves a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import psycopg

from everturn.backends._shared.verification import damaged_session
from everturn.core.masking import masked
from everturn.core.signal_exceptions import raised_by_handler
from everturn.errors import MemoryStoreBackendError, Outcome

if TYPE_CHECKING:
    from types import TracebackType


class TimeUp(Exception):
    """A wait that would have gone past its deadline. Its connection is closed."""


class Late(MemoryStoreBackendError):
    """A request that the server did not apply, because it came too late. It told its time: the next will be right."""

    def __init__(self, name: str, told: float) -> None:
        super().__init__(
            f"{name}: the request came too late to be applied: after its time-out, or behind a rollback, undo, replace "
            "or erasure that was made after it was issued",
            outcome="not_written",
            transient=True,
        )
        self.told = told


LATE = "EVLAT"  # SQLSTATE of refuse_late_v1
DAMAGED = "EVT01"  # of damaged_v1

_TRANSIENT = frozenset(
    {
        "40001",  # serialization failure
        "40P01",  # deadlock
        "26000",  # what was prepared is not there, or (42P05) is another's: executor.py sends it as text from then on
        "42P05",
        "53300",  # too many connections
        "57P03",  # the server is starting up
        "08P01",  # PgBouncer: no server connection to be had
        "08006",
    }
)

_ENDED = frozenset({"57P01", "57P02", "57P05", "08000", "08003", "08006", "25P03"})
"""The server ended the connection. It may have done so after the commit: what was under way is in doubt."""

_ADVICE = {
    "25006": "it is read-only (a standby, or default_transaction_read_only); address the primary",
    "3D000": "there is no such database; create it first",
    "3F000": "the schema is gone; open the store anew to create it",
    "42883": "everturn's functions are not in this schema; open the store anew to create them",
    "42P01": "everturn's tables are not in this schema; open the store anew to create them",
    "42501": "the role lacks a privilege; it must own the schema, or be granted its tables and functions",
    "53100": "its disk is full, or a limit on its files is reached; make room and try again",
    "53200": "it is out of memory",
    "53300": "it has no connection left; raise max_connections, or lower pool_size",
    "53400": "a configured limit was reached",
    "55P03": "another transaction kept the session locked until the time-out; find it in pg_stat_activity",
    "57014": "the statement was cancelled (statement_timeout, or by an administrator)",
    "57P03": "it is starting up, shutting down, or in recovery",
    "XX001": "its data is damaged; keep it, and restore a backup",
    "XX002": "an index is damaged; REINDEX it",
}


_EXTENDS = frozenset({"mdextend", "mdzeroextend"})
"""Where PostgreSQL makes a file longer. Not every version has a code of its own for a limit it meets there."""


class translated:  # noqa: N801 - used as a function; a class, because this is on the way of every request
    """Raise psycopg's errors as everturn's. `sent` is False until a request that may change something is on its way."""

    __slots__ = ("_name", "sent")

    def __init__(self, name: str) -> None:
        self._name = name
        self.sent = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, TimeUp):
            outcome: Outcome = "unknown" if self.sent else "not_written"
            text = f"{self._name}: it did not answer within the time-out"
            raise MemoryStoreBackendError(text, outcome=outcome) from exc
        if exc is None or (interrupting := raised_by_handler(exc)) is exc:
            return
        if interrupting is not None:  # by way of psycopg, which has wrapped it
            raise interrupting
        if isinstance(exc, psycopg.Error) and exc.sqlstate == DAMAGED:
            raise damaged_session(exc.diag.message_detail or "", _text(exc)) from exc
        # The system's errors have a number; a TimeoutError without one is none of its.
        if isinstance(exc, psycopg.Error) or (isinstance(exc, OSError) and exc.errno is not None):
            error = from_driver(exc, self._name, sent=self.sent)
            if isinstance(exc, psycopg.Error):
                exc.args = (_text(exc),)  # tracebacks show it as the cause
            raise error from exc


def from_driver(exc: BaseException, name: str, *, sent: bool) -> MemoryStoreBackendError:
    """Translate a driver's error. `sent`: a request that changes something was on its way."""
    state = getattr(exc, "sqlstate", None)
    if state == LATE:
        return Late(name, float(getattr(exc, "diag").message_detail))  # noqa: B009 - only psycopg's errors have a state
    if state is not None and state not in _ENDED:
        # The server answered with an error: it has undone the statement.
        advice = _ADVICE.get(state, "it refused the request")
        if getattr(getattr(exc, "diag", None), "source_function", None) in _EXTENDS:
            advice = _ADVICE["53100"]
        return _error(f"{name}: {advice} ({_text(exc)})", "not_written", transient=state in _TRANSIENT)
    if not isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return _error(
            f"{name}: the driver failed ({_text(exc)})", "unknown" if sent else "not_written", transient=False
        )
    what = "the connection broke" if sent or state else "it cannot be reached; is it up, and the address right?"
    return _error(f"{name}: {what} ({_text(exc)})", "unknown" if sent else "not_written", transient=_may_pass(exc))


def _may_pass(exc: BaseException) -> bool:
    """Wrong passwords and names stay wrong; most else about a connection passes."""
    text = str(exc)
    lasting = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
    return not any(sign in text for sign in lasting)


def _text(exc: BaseException) -> str:
    """The text of an error, without details: these may quote stored text. An address in it is masked."""
    diag = getattr(exc, "diag", None)
    text = " ".join(((diag and diag.message_primary) or str(exc)).split()) or type(exc).__name__
    if (getattr(exc, "sqlstate", None) or "").startswith("22"):  # of a value: `invalid input syntax for type json: ...`
        text = text.partition(":")[0]
    return masked(text)


def _error(text: str, outcome: Outcome, *, transient: bool) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(text, outcome=outcome, transient=transient)


def unanswered(name: str) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(f"{name}: it did not answer within the time-out", outcome="unknown")


def withdrawn(name: str) -> MemoryStoreBackendError:
    text = f"{name}: the task that was to send it was cancelled, as by the end of an event loop"
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


def too_large(name: str, size: int, most: int) -> MemoryStoreBackendError:
    text = f"{name}: a turn of {size:,} bytes is more than one statement holds ({most:,}); append several turns"
    return MemoryStoreBackendError(text, outcome="not_written")


def exhausted(name: str) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(
        f"{name}: no connection was free within the time-out; raise pool_size or timeout, or find what holds them",
        outcome="not_written",
    )


def closed(name: str) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(f"the store on {name} is closed", outcome="not_written")
