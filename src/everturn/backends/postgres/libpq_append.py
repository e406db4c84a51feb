"""The call that nearly all are, spoken to libpq itself: a cursor's work for it is as much as the server's.

For blocking connections of our own, and statements that answer with one text; all else goes through psycopg's cursors.
"""

from __future__ import annotations

import functools
import select
import struct
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from everturn.backends.postgres import errors as faults
from everturn.backends.postgres.cancellation import abandon

LONGEST = 86_400.0  # seconds that a wait is told to last, where the deadline is no deadline
# Plain numbers: psycopg's enumerations are slow to compare.
_IDLE = int(pq.TransactionStatus.IDLE)
_ROWS, _FAILED = int(pq.ExecStatus.TUPLES_OK), int(pq.ExecStatus.FATAL_ERROR)
_NOT_PREPARED = b"26000"


class Texts(tuple[bytes, ...]):
    """UTF-8 texts that travel as one text[]. (psycopg's own lists cost more than the rest of a request together.)"""

    __slots__ = ()

    def wired(self) -> bytes:
        """As the server takes an array in binary."""
        pack = struct.Struct("!i").pack
        head = struct.pack("!iiiii", 1, 0, 25, len(self), 1) if self else struct.pack("!iii", 0, 0, 25)
        # One join: bodies can be many megabytes, and are copied once.
        return b"".join([head, *[part for text in self for part in (pack(len(text)), text)]])


def wired(parameters: Sequence[Any]) -> tuple[list[bytes | None], list[int]]:
    """Parameters as libpq takes them, and the format of each: 1 is binary."""
    values: list[bytes | None] = []
    formats: list[int] = []
    for value in parameters:
        kind = type(value)
        formats.append(int(kind is bytes or kind is Texts))
        if kind is str:
            values.append(value.encode())
        elif kind is Texts:
            values.append(value.wired())
        elif kind is bytes or value is None:
            values.append(value)
        elif kind is int or kind is float:
            values.append(repr(value).encode())
        else:
            raise TypeError(f"{kind.__name__} is not sent this way")
    return values, formats


class Direct:
    """A connection below psycopg's cursors. Its owner uses one or the other, never both at a time."""

    def __init__(self, connection: psycopg.Connection[Any], *, is_pooled: bool) -> None:
        self._pgconn = connection.pgconn
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        # Behind a pooler the next statement may meet a server that has not prepared it.
        self._prepares = not is_pooled
        self._prepared: dict[str, bytes] = {}

    def is_idle(self) -> bool:
        """Whether it can be used. A connection that was idle and has something to say has been told to go."""
        return self._pgconn.transaction_status == _IDLE and not self._readable.poll(0)

    def ask(self, statement: str, parameters: Sequence[Any], deadline: float) -> list[tuple[str]]:
        """The text that a statement answers with, as its only row.

        Raises psycopg.Error; TimeUp or what a signal's handler raises, and then the connection is closed.
        """
        values, formats = wired(parameters)
        try:
            if self._prepares:
                result = self._ask_prepared(statement, values, formats, deadline)
                if result is not None:
                    return _rows(result)
                self._prepares = False
            self._pgconn.send_query_params(_numbered(statement), values, param_formats=formats)
            return _rows(self._result(deadline))
        except psycopg.Error:
            raise
        except BaseException:  # the time is up, or a signal's handler raised
            abandon(self._pgconn)
            raise

    def _ask_prepared(
        self, statement: str, values: Sequence[bytes | None], formats: Sequence[int], deadline: float
    ) -> pq.abc.PGresult | None:
        """None: what was prepared is not there. Nothing has been carried out then."""
        name = self._prepared.get(statement)
        if name is None:
            name = _name_of(statement)
            self._pgconn.send_prepare(name, _numbered(statement))
            if self._result(deadline).status == _FAILED:
                return None  # another's name, by way of a pooler; or wrong in itself, which the next attempt says
            self._prepared[statement] = name
        self._pgconn.send_query_prepared(name, values, formats)
        result = self._result(deadline)
        if result.status == _FAILED and _state(result) == _NOT_PREPARED:
            return None
        return result

    def _result(self, deadline: float) -> pq.abc.PGresult:
        """The result of what was sent; of several, the one that failed: a commit can fail after its rows were sent."""
        pgconn = self._pgconn
        while pgconn.flush():
            self._wait_to_send(deadline)
            pgconn.consume_input()
        found = None
        while True:
            while pgconn.is_busy():
                _wait(self._readable, deadline)
                pgconn.consume_input()
            result = pgconn.get_result()
            if result is None:
                break
            if found is None or result.status == _FAILED:
                found = result
        if found is None:
            raise psycopg.OperationalError(pgconn.get_error_message())
        return found

    def _wait_to_send(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._pgconn.socket, select.POLLIN | select.POLLOUT)
        _wait(poll, deadline)


def _wait(poll: select.poll, deadline: float) -> None:
    seconds = deadline - time.monotonic()
    if seconds <= 0 or not poll.poll(min(seconds, LONGEST) * 1000):
        raise faults.TimeUp


@functools.cache
def _numbered(statement: str) -> bytes:
    """The statement with its parameters as libpq names them: $1, $2, ..."""
    first, *rest = statement.split("%s")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))).encode()


def _name_of(statement: str) -> bytes:
    """What it is prepared as: after the function that it calls, for whoever looks into pg_prepared_statements."""
    return b"everturn_" + statement.partition("(")[0].rpartition(".")[2].encode()


def _state(result: pq.abc.PGresult) -> bytes | None:
    return result.error_field(pq.DiagnosticField.SQLSTATE)


def _rows(result: pq.abc.PGresult) -> list[tuple[str]]:
    if result.status == _ROWS:
        return [((result.get_value(0, 0) or b"").decode(),)]
    if _state(result) is None:
        raise psycopg.OperationalError(result.get_error_message("utf-8"))  # libpq's own: the connection broke
    raise errors.error_from_result(result)
