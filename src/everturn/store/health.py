"""The method `health`: one look at the backend, within the time-out, that never raises for a fault of the backend."""

from __future__ import annotations

from typing import Any

import msgspec

from everturn.core.masking import masked
from everturn.errors import MemoryStoreError
from everturn.model.health import Health
from everturn.store.retries import RetryingSender


class HealthOperations(RetryingSender):
    """The method `health`."""

    async def health(self) -> Health:
        """Look whether the store can be read and written now. A fault is in the report, not an exception."""
        begun = self.runtime.clock()
        look: Any = getattr(self.backend, "health", self._plain_look)
        try:
            found: Health = await look(begun + self.settings.timeout)
        except MemoryStoreError as exc:
            found = Health(reachable=False, writable=False, seconds=0.0, problems=(masked(str(exc)),))
        return msgspec.structs.replace(found, seconds=self.runtime.clock() - begun)

    async def _plain_look(self, deadline: float) -> Health:
        """Look at a backend of another package, which may have no `health`: whether it answers a read."""
        await self.backend.sessions("", 1, None, None, deadline)
        return Health(reachable=True, writable=True, seconds=0.0)
