"""What each of PostgreSQL's errors says about a change. No server is asked."""

from __future__ import annotations

import re

import psycopg
import pytest
from psycopg import errors

from everturn import MemoryStoreBackendError
from everturn.backends.postgres.errors import TimeUp, translated


def told(exc: Exception, *, sent: bool = True) -> MemoryStoreBackendError:
    fault = translated("db")
    fault.sent = sent
    with pytest.raises(MemoryStoreBackendError) as caught, fault:
        raise exc
    assert caught.value.__cause__ is exc
    return caught.value


@pytest.mark.parametrize(
    ("kind", "transient", "text"),
    [
        (errors.SerializationFailure, True, "refused"),
        (errors.DeadlockDetected, True, "refused"),
        (errors.TooManyConnections, True, "max_connections"),
        (errors.CannotConnectNow, True, "starting up"),
        (errors.DiskFull, False, "disk is full.*make room"),
        (errors.OutOfMemory, False, "out of memory"),
        (errors.ReadOnlySqlTransaction, False, "address the primary"),
        (errors.LockNotAvailable, False, "kept the session locked"),
        (errors.QueryCanceled, False, "statement_timeout"),
        (errors.InsufficientPrivilege, False, "privilege"),
        (errors.UndefinedFunction, False, "open the store anew"),
        (errors.DataCorrupted, False, "restore a backup"),
    ],
)
def test_an_error_that_the_server_reports_has_undone_the_change(
    kind: type[psycopg.Error], transient: bool, text: str
) -> None:
    error = told(kind("what it says"))
    assert (error.outcome, error.transient) == ("not_written", transient)
    assert re.search(text, str(error))


@pytest.mark.parametrize("kind", [errors.AdminShutdown, errors.CrashShutdown, psycopg.OperationalError])
def test_a_connection_that_ends_after_sending_leaves_a_doubt(kind: type[Exception]) -> None:
    error = told(kind("gone"))
    assert (error.outcome, error.transient) == ("unknown", True)
    assert "broke" in str(error)


def test_an_error_of_the_system_leaves_a_doubt_and_one_of_a_signals_handler_is_itself() -> None:
    assert (told(OSError(104, "gone")).outcome, told(OSError(104, "gone")).transient) == ("unknown", True)
    with pytest.raises(TimeoutError, match="by a handler"):
        told(TimeoutError("by a handler"))


def test_a_connection_that_ends_before_sending_leaves_none() -> None:
    error = told(psycopg.OperationalError("connection refused"), sent=False)
    assert (error.outcome, error.transient) == ("not_written", True)


def test_time_that_is_up_is_not_retried() -> None:
    assert (told(TimeUp()).outcome, told(TimeUp()).transient) == ("unknown", False)
    assert told(TimeUp(), sent=False).outcome == "not_written"


@pytest.mark.parametrize("text", ['database "x" does not exist', 'password authentication failed for user "x"'])
def test_what_stays_wrong_is_not_retried(text: str) -> None:
    assert not told(psycopg.OperationalError(text), sent=False).transient
