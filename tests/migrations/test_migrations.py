"""Our own schema through our own snapshot_db: each version's file, opened by this everturn, is what it should be.

After a release: a file of every earlier version is in this folder, and what becomes of it is in snapshots/. A change of
either shows here, row by row. Before one: pytest tests/migrations --snapshot-update.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import apsw
import pytest

from everturn.backends.sqlite import schema
from everturn.testing.golden import SnapshotDb
from tests.migrations import make

HERE = Path(__file__).parent
VERSIONS = sorted(path.stem for path in HERE.glob("v*.db"))
NEXT = schema.CURRENT + 1
SCRIPT = (
    "ALTER TABLE sessions ADD COLUMN mood TEXT; UPDATE sessions SET mood = 'calm'; CREATE INDEX m ON sessions (mood);"
)

# When a migration was applied, and by which everturn, is no part of what it did.
pytestmark = pytest.mark.snapshot_db(mask=["schema_versions.applied_at", "schema_versions.everturn"])


def open_and_close(path: Path) -> None:
    """As a program of today does with a file of then: the store migrates it."""
    make.open_golden(path).close()


def migrate_to_next(path: Path) -> None:
    """As the next everturn will: the migrations of this one, and one more."""
    folder = path.with_suffix(".scripts")
    shutil.copytree(str(schema.files(schema.__package__).joinpath("schema")), folder / "schema", dirs_exist_ok=True)
    (folder / "schema" / f"{NEXT:03}.sql").write_text(SCRIPT)
    db = apsw.Connection(str(path))
    with patch.object(schema, "files", lambda package: folder):
        schema.migrate(db, str(path), NEXT)
    db.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_every_version_becomes_one_of_this_version(snapshot_db: SnapshotDb, version: str) -> None:
    shutil.copy(HERE / f"{version}.db", snapshot_db.path)
    snapshot_db.run(open_and_close, snapshot_db.path)


def test_a_new_file_has_the_schema_of_this_version(snapshot_db: SnapshotDb) -> None:
    snapshot_db.run(open_and_close, snapshot_db.path)


@pytest.mark.snapshot_db(start=test_a_new_file_has_the_schema_of_this_version)
def test_a_migration_changes_what_it_says_and_nothing_else(snapshot_db: SnapshotDb) -> None:
    snapshot_db.run(migrate_to_next, snapshot_db.path)


@pytest.mark.snapshot_db(start=test_a_new_file_has_the_schema_of_this_version)
def test_a_migration_that_is_killed_anywhere_changes_nothing(snapshot_db: SnapshotDb) -> None:
    has_altered, killed_before, at = False, "", 0
    while not (has_altered and killed_before == "COMMIT"):
        at += 1
        killed_before = snapshot_db.kill_during(migrate_to_next, snapshot_db.path, at=at)
        has_altered |= killed_before.startswith("ALTER TABLE")
