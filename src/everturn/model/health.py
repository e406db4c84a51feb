"""Health: the report of `health`, for readiness probes and for people."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True):
    """Result of `health`: whether the store can be read and written now. It is false in an `if` where it cannot.

    `problems` says in words what is wrong. A number is None where the backend has none: `disk_free` (bytes left where
    the data is), `wal_bytes` (of a SQLite file), `replicas` (connected to the server), `effects_in_doubt` (begun, not
    ended, and under no lease that is still held; in all sessions), `oldest_lease` (seconds since the worker that has
    held a lease for longest asked for it; None, too, if nobody holds one). SQLite and PostgreSQL tell the last two, but
    for stores of hundreds of thousands of effects, where a look would keep a probe waiting.
    """

    reachable: bool
    writable: bool
    seconds: float
    problems: tuple[str, ...] = ()
    disk_free: int | None = None
    wal_bytes: int | None = None
    replicas: int | None = None
    oldest_lease: float | None = None
    effects_in_doubt: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the store can be read and written, and nothing else is wrong."""
        return self.reachable and self.writable and not self.problems

    def __bool__(self) -> bool:
        return self.reachable and self.writable
