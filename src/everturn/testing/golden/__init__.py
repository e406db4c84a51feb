"""`snapshot_db`: a SQLite file as a golden artifact. It knows nothing of everturn's own store.

In the pytest process:

fixture.py         SnapshotDb and GoldenDatabase, as a test sees them
hooks.py           pytest's hooks; options.py its command line; xdist.py several workers; summary.py the last lines
database_plans.py  the marks of a test; names.py the file names of artifacts; ordering.py which test comes first
database_file.py   the files of one test; pytest_run.py the state of one pytest process
subprocesses.py    a test's function in a new process; child_main.py runs there; pickle_by_name.py finds the function
inspector.py       talks to the process that opens database files
errors.py          the two errors of golden files

In the process that opens database files:

inspector_main.py  its jobs
file_copy.py       a consistent copy, with locks held; read_database.py makes an image of it
database_image.py  the content of a database as a value
masks.py           volatile values; match_rows.py pairs rows; compare.py finds differences; render.py shows them
artifacts.py       writes an artifact
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
    from everturn.testing.golden.fixture import GoldenDatabase, SnapshotDb

__all__ = ["GoldenDatabase", "GoldenError", "SnapshotDb", "SnapshotMismatch"]


def __getattr__(name: str) -> object:
    # Imported on demand: the process that opens files needs no fixture, and the command line no pytest.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from everturn.testing.golden import errors, fixture

    return getattr(fixture if hasattr(fixture, name) else errors, name)
