"""`snapshot_db`: a SQLite file as a golden artifact. Knows nothing of everturn's own store.

pytest process                                          a process for files (inspection)
hooks, options, workers, summary    what pytest does    copying    a consistent copy, locks held
marks, names, chains                what tests say      reading    SQLite -> image
fixture, case, run                  what a test holds   masks, matching, comparing, rendering
processes, loading, child           a test's functions  artifacts  image -> file
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
    from everturn.testing.golden.fixture import Database, SnapshotDb

__all__ = ["Database", "GoldenError", "SnapshotDb", "SnapshotMismatch"]


def __getattr__(name: str) -> object:
    # When it is asked for: the process that looks at files needs no fixture, and the command line no pytest.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everturn.testing.golden import errors, fixture

    return getattr(fixture if hasattr(fixture, name) else errors, name)
