"""Writes artifacts: whole or not at all, and the same bytes for the same writes.

inspector_main.py decides when; compare.py compares.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from everturn.backends.sqlite import page_checksums
from everturn.testing.golden import read_database
from everturn.testing.golden.compare import compare
from everturn.testing.golden.errors import GoldenError

LARGE = 1 << 20

# Header fields that change though the database does not: change counter, schema cookie, and, side by side, the counter
# again (it must be equal, or SQLite ignores the size in the header) and the version of the SQLite that wrote it.
_FIXED = {
    24: (1).to_bytes(4, "big"),
    40: (1).to_bytes(4, "big"),
    92: (1).to_bytes(4, "big") + (3_051_003).to_bytes(4, "big"),
}
_ROLLBACK_JOURNAL = b"\x01\x01"


def pack(source: Path, target: Path) -> None:
    """Write the committed content of a database to a new file, as an artifact. `source` is not changed.

    Raises GoldenError, with nothing written, if it fails integrity_check, or cannot be packed without a loss.
    """
    try:
        _write(source, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _write(source: Path, target: Path) -> None:
    with read_database.opened(source) as db:
        before = read_database.image_of(db)
        if before.problems:
            raise GoldenError(f"{source} fails integrity_check, and is no artifact: {'; '.join(before.problems)}")
        db.execute("VACUUM INTO ?", (str(target),))
    _fix_header(target)
    page_checksums.stamp(str(target))  # otherwise everturn's store would take the artifact for damaged
    # VACUUM may change rowids of a table without INTEGER PRIMARY KEY, and an FTS index may refer to rowids.
    if not compare(before, read_database.read(target)).is_none:
        raise GoldenError(
            f"{source} does not survive VACUUM: something in it goes by the rowids of a table that has no INTEGER "
            "PRIMARY KEY (an FTS5 table with content='that table'?). Give the table one"
        )


def install(draft: Path, artifact: Path) -> None:
    """Put a packed file in its place, atomically. Raises GoldenError, with nothing changed."""
    beside = artifact.with_name(f".{artifact.name}.{os.getpid()}")
    try:
        artifact.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(draft, beside)
        beside.replace(artifact)
    except OSError as exc:
        raise GoldenError(f"{artifact} cannot be written: {exc.strerror}") from exc
    finally:
        beside.unlink(missing_ok=True)


def _fix_header(path: Path) -> None:
    with path.open("r+b") as file:
        for offset, octets in _FIXED.items():
            file.seek(offset)
            file.write(octets)
        file.seek(18)
        if file.read(2) != _ROLLBACK_JOURNAL:  # pragma: no cover - VACUUM INTO has always written these
            raise GoldenError(f"{path} is not in rollback-journal mode")
        file.flush()
        os.fsync(file.fileno())
