"""What each method of a store does, once for both faces: arguments in, one request to the backend, a value out.

    calls.py    what all calls have in common: checked arguments, retries within the time-out, errors
    changes.py  the methods that change a session; trims.py the one that thinks first
    reads.py    the methods that read
    upkeep.py   the methods that keep house
    copies.py   copies between two stores: ends.py asks, dossiers.py judges, comparing.py compares

All of it is `async def` and none of it knows asyncio: a backend that never suspends makes the same code blocking.
"""

from __future__ import annotations

from everturn.engine.calls import Face, Settings
from everturn.engine.reads import Reads
from everturn.engine.upkeep import Upkeep


class Engine(Upkeep, Reads):
    """Everything a store can do. The faces (store.py, aio.py) lend it a clock, a sleep and their names."""


__all__ = ["Engine", "Face", "Settings"]
