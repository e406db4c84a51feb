"""Endpoint: the source or the target of a copy. Each request has the time-out of its store.

copy.py and compare.py decide which requests to send.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from everturn.backend import Query, Reading, Status
from everturn.core import codec
from everturn.errors import CorruptEntry, Unsupported
from everturn.store.maintenance import MaintenanceOperations
from everturn.transfer.protocol import Arrival, Portable, PortionRequest, Staging
from everturn.transfer.session_lines import Outline, Portion

T = TypeVar("T")


class Endpoint:
    """The source or the target of a copy. Raises Unsupported if its backend is not Portable."""

    def __init__(self, store: MaintenanceOperations, name: str) -> None:
        self.store = store
        self._name = name
        backend: Any = store.backend
        if not all(hasattr(backend, operation) for operation in ("outline", "portion", "stage", "restore")):
            raise Unsupported(
                f"the backend of the {name} ({type(backend).__module__}) cannot be copied from or to: it lacks the "
                "operations of everturn.backend.Portable; read from one store and append to the other instead"
            )
        self._backend = cast("Portable", backend)

    async def _send(self, send: Callable[[float], Awaitable[T]]) -> T:
        try:
            return await self.store.send_with_retries(lambda _, by: send(by))
        except CorruptEntry as exc:
            exc.add_note(f"(This is the {self._name} of the copy.)")
            raise

    async def outline(self, session_id: str) -> Outline | None:
        return await self._send(lambda by: self._backend.outline(session_id, by))

    async def portion(self, request: PortionRequest) -> Portion | None:
        return await self._send(lambda by: self._backend.portion(request, by))

    async def stage(self, request: Staging) -> str | None:
        return await self._send(lambda by: self._backend.stage(request, by))

    async def restore(self, arrival: Arrival) -> Status:
        outcome = await self._send(lambda by: self._backend.restore(arrival, by))
        return outcome.status

    async def call_of(self, outline: Outline, version: int) -> bytes | None:
        """Find the id of the call that made a version; None if it is not remembered."""
        request = rest_of(outline, outline.last_seq, version - 1)
        portion = await self.portion(msgspec.structs.replace(request, last_version=version))
        return portion.changes[0].call if portion is not None and portion.changes else None

    async def read(self, query: Query) -> tuple[Reading, list[Any]]:
        """Read a state, and its rows as they are stored. Raises CorruptEntry if one is missing."""

        async def send(by: float) -> tuple[Reading, list[Any]]:
            rows: list[Any] = []
            reading = await self.store.backend.read(query, rows.extend, by)
            if reading.first_missing:
                raise codec.missing(query.session_id, reading.first_missing)
            return reading, rows

        return await self._send(send)


def rest_of(outline: Outline, after_seq: int, after_version: int) -> PortionRequest:
    """Make the request for the rows behind an entry and behind a change."""
    return PortionRequest(outline.session_id, outline.life, after_seq, outline.last_seq, after_version, outline.version)
