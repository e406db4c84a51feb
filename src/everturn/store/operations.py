"""The methods of a store, once for MemoryStore and AsyncMemoryStore: arguments in, one request out, a value back."""

from __future__ import annotations

from everturn.store.maintenance import MaintenanceOperations
from everturn.store.reads import ReadOperations
from everturn.store.retries import Runtime, Settings


class Operations(MaintenanceOperations, ReadOperations):
    """Everything a store can do. The faces (sync.py, aio.py) lend it a clock, a sleep and their names."""


__all__ = ["Operations", "Runtime", "Settings"]
