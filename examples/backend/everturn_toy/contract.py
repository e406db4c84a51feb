"""A factory for the contract: `everturn check everturn_toy.contract:factory --quick`."""

from __future__ import annotations

from pathlib import Path

import everturn


def factory(where: Path, ttl: float | None = None, timeout: float = 5.0) -> everturn.MemoryStore:
    """Open the store of a place. Its parameters say what can be tested: sessions that expire, calls that time out."""
    return everturn.open(f"toy://{where}", ttl=ttl, timeout=timeout)


factory.processes = False  # type: ignore[attr-defined]  # other processes cannot see this one's memory
