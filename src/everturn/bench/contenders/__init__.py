"""The stores that are compared, and the calls each one is driven by.

contender.py       BlockingContender, AsyncContender: the clock around a store's own calls
timing.py          seconds of calls, one after the other or from many tasks
process.py         each contender in a process of its own
everturn_store.py  everturn, sync and async, in a file or on a server
bare.py            the bare driver on SQLite; on_redis/ and on_postgres/ have theirs

A contender turns the workload's plain messages into its own kind before the clock starts, because making them is the
caller's work. Encoding and writing is the store's work and is timed. Each store keeps its default settings, except that
the bare driver is set to the durability everturn promises (WAL, synchronous=FULL).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

Place: TypeAlias = Path | str
"""A contender's own place for its data: an empty directory, or the URL of a server."""


class Contender(Protocol):
    """One store in one place."""

    def __init__(self, place: Place) -> None:
        """Open the database in this place, or make it."""

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        """Append `turns` turns of two messages, numbered from `first`; seconds each one took."""

    def load(self, session_id: str) -> tuple[float, int]:
        """Read the whole session as the store's own objects: seconds, and how many messages came."""

    def close(self) -> None:
        """Let go of the file or the server."""


@dataclass(frozen=True)
class Entrant:
    """A contender by the name of its class, without importing it here: some take seconds to import."""

    title: str
    target: str
    distributions: tuple[str, ...]


EVERTURN = Entrant("everturn", "everturn.bench.contenders.everturn_store:Everturn", ("everturn", "apsw"))
EVERTURN_ASYNC = Entrant(
    "everturn async", "everturn.bench.contenders.everturn_store:AsyncEverturn", ("everturn", "apsw")
)
BARE = Entrant("bare apsw, 2 rows", "everturn.bench.contenders.bare:BareSqlite", ("apsw",))
BARE_SAME_ROWS = Entrant("bare apsw, same rows", "everturn.bench.contenders.bare:BareSqliteSameRows", ("apsw",))
TWIN = Entrant(
    "its twin", "everturn.bench.contenders.bare:BareSqliteSameRows", ("apsw",)
)  # to see the noise of the method
