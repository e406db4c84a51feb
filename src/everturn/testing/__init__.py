"""Tools to prove a memory store: faults, contracts and golden files."""

from __future__ import annotations

TYPE_CHECKING = bool(0)  # not False: see everturn/__init__.py
if TYPE_CHECKING:
    from everturn.testing.pytest.memory_contract import MemoryContract

__all__ = ["MemoryContract"]


def __getattr__(name: str) -> object:
    # Imports pytest, which whoever only needs a server or a proxy may not have.
    if name == "MemoryContract":
        from everturn.testing.pytest.memory_contract import MemoryContract

        return MemoryContract
    raise AttributeError(f"module 'everturn.testing' has no attribute {name!r}")
