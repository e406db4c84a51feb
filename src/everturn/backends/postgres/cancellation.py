"""Ends connections whose caller has gone, and has the server cancel their statements.

It knows nothing of calls and deadlines. A statement that goes on would hold its locks, and may hold them for long.
"""

from __future__ import annotations

import contextlib
import threading

import psycopg
from psycopg import generators, pq, waiting

SECONDS = 5.0  # that a server may take to accept a cancellation; longer, and it is left to its statement_timeout
_ACTIVE = int(pq.TransactionStatus.ACTIVE)


def abandon(pgconn: pq.abc.PGconn) -> None:
    """Close a connection at once. If a statement is under way on it, the server is asked to cancel that.

    The server is asked from a thread: it may not listen, and the caller's time is up.
    """
    cancellation = _cancellation(pgconn)
    pgconn.finish()
    _send(cancellation)


def withdraw(pgconn: pq.abc.PGconn) -> None:
    """Ask the server to cancel the statement that is under way, if any, and keep the connection: its answer is due."""
    _send(_cancellation(pgconn))


def _cancellation(pgconn: pq.abc.PGconn) -> pq.abc.PGcancelConn | None:
    if pgconn.transaction_status == _ACTIVE:
        with contextlib.suppress(psycopg.Error):  # libpq before 17 cannot do this; the connection may be broken
            return pgconn.cancel_conn()
    return None


def _send(cancellation: pq.abc.PGcancelConn | None) -> None:
    if cancellation is not None:
        with contextlib.suppress(RuntimeError):  # no thread to be had, or the interpreter ends
            threading.Thread(target=_cancel, args=(cancellation,), name="everturn-cancel", daemon=True).start()


def _cancel(cancellation: pq.abc.PGcancelConn) -> None:
    try:
        cancellation.start()
        waiting.wait_conn(generators.cancel(cancellation), interval=0.1, timeout=SECONDS)
    except Exception:  # noqa: BLE001, S110 - nobody to tell: out of reach, the server has its statement_timeout
        pass
    finally:
        cancellation.finish()
