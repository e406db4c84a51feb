"""Files of every schema version ever shipped open, show what they showed, and go on working. Newer ones are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import everturn
from everturn import ChatMessage, InvalidInput, KeyReused, SchemaTooNew
from everturn.backends.sqlite import page_checksums, schema
from tests.migrations import make

HERE = Path(__file__).parent
VERSIONS = sorted(path.stem for path in HERE.glob("v*.db"))


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a golden file."""
    copy = tmp_path / "golden.db"
    shutil.copy(HERE / f"{request.param}.db", copy)
    return copy


@pytest.fixture
def expected(request: pytest.FixtureRequest, golden: Path) -> Any:
    version = request.node.callspec.params["golden"]
    return json.loads((HERE / f"{version}.json").read_text("utf-8"))


def tables(path: Path) -> list[Any]:
    """Everything in the file, its schema included."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    rows = [db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()]
    rows += [[name, *db.execute(f"SELECT * FROM {name}").fetchall()] for name in names]
    db.close()
    return rows


def test_there_is_a_golden_file_of_every_version() -> None:
    assert [f"v{number}" for number in range(1, schema.CURRENT + 1)] == VERSIONS


def test_a_golden_file_shows_what_it_showed(golden: Path, expected: Any) -> None:
    found = make.expectations(golden)
    assert found["sessions"].keys() == expected["sessions"].keys()
    for name, facts in expected["sessions"].items():
        for what, value in facts.items():
            assert found["sessions"][name][what] == value, (name, what)
    assert found["other namespace"] == expected["other namespace"]


def test_a_golden_file_is_sound(golden: Path, expected: Any) -> None:
    with make.open_golden(golden) as store:
        report = store.verify()
        assert report.problems == ()
        assert report.sessions == len(expected["sessions"])
        assert report.entries > 20


def test_the_view_shows_what_the_store_shows(golden: Path, expected: Any) -> None:
    make.open_golden(golden).close()
    db = apsw.Connection(str(golden))
    for name, facts in expected["sessions"].items():
        query = "SELECT seq FROM history WHERE namespace = '' AND session_id = ? ORDER BY seq"
        shown = [seq for (seq,) in db.execute(query, (name,))]
        assert shown == [entry["seq"] for entry in facts["now"]["entries"]]
    db.close()


def test_a_golden_file_goes_on_working(golden: Path, expected: Any) -> None:
    """Rolled back from here, and on to a later snapshot; a new turn; undo; trim; compact; and it is sound still."""
    snapshots = expected["sessions"]["talk"]["snapshots"]
    assert len(snapshots) == 3
    with make.open_golden(golden) as store:
        before = store.state("talk")
        for snapshot in (*snapshots, *reversed(snapshots)):
            store.rollback_to_snapshot("talk", snapshot["id"])
            shown = [make.entry_as_json(entry) for entry in store.state("talk").entries]
            assert make.plain(shown) == snapshot["entries"]
        receipt = store.add_messages("talk", [ChatMessage("user", "years later")])
        assert receipt.seqs == (before.last_seq + 1,)
        assert receipt.life == expected["sessions"]["talk"]["life"]
        store.trim("talk", max_messages=1)
        store.undo("talk")
        shown = [make.entry_as_json(entry) for entry in store.state("talk").entries]
        assert make.plain(shown[:-1]) == snapshots[0]["entries"]
        store.compact()
        assert store.verify().ok
        for snapshot in snapshots:
            shown = [make.entry_as_json(entry) for entry in store.state("talk", at=snapshot["id"]).entries]
            assert make.plain(shown) == snapshot["entries"]


def test_a_key_used_in_a_golden_file_is_remembered(golden: Path) -> None:
    turn = [ChatMessage("system", "be brief"), ChatMessage("user", "one")]
    with make.open_golden(golden) as store:
        before = store.state("talk")
        receipt = store.add_messages("talk", turn, key="k1")
        assert receipt.replayed
        assert (receipt.version, receipt.seqs) == (1, (1, 2))
        with pytest.raises(KeyReused) as caught:
            store.add_messages("talk", turn[:1], key="k1")
        assert (caught.value.receipt.version, caught.value.receipt.seqs) == (1, (1, 2))
        assert store.state("talk") == before
        # The turn of this key was dropped by a rollback, so it may write again.
        assert not store.save_context("talk", "two", "zwei", key="k2").replayed


def test_summaries_of_a_golden_file_are_found(golden: Path) -> None:
    with make.open_golden(golden) as store:
        hits = store.search_summaries("memory", (1.0, 0.0, 0.0), k=1)
        assert [hit.summary.text for hit in hits] == ["the beginning"]
        with pytest.raises(InvalidInput):
            store.add_summary("memory", everturn.Summary("s", (1.0,), (1, 1)))
        assert [match.session_id for match in store.find("another tenant")] == []


def test_opening_and_reading_a_current_file_leaves_it_as_it_is(tmp_path: Path) -> None:
    golden = tmp_path / "golden.db"
    shutil.copy(HERE / f"v{schema.CURRENT}.db", golden)
    before = golden.read_bytes()
    with make.open_golden(golden) as store:
        for session in store.sessions().sessions:
            store.state(session.session_id)
        store.verify()
    assert golden.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["golden.db"]


def test_the_golden_file_is_what_make_makes(tmp_path: Path) -> None:
    """Else the stored form changed without a new schema version. Before a release: python -m tests.migrations.make."""
    made, golden = tmp_path / "made.db", tmp_path / "golden.db"
    make.make(made)
    shutil.copy(HERE / f"v{schema.CURRENT}.db", golden)
    assert tables(made) == tables(golden)


# --- files from the future -------------------------------------------------------------------------------------------


def test_a_file_from_a_newer_everturn_is_refused_and_left_untouched(golden: Path) -> None:
    db = page_checksums.connect(str(golden))
    db.execute("INSERT INTO schema_versions (version, applied_at, everturn) VALUES (99, 0.0, '9.9')")
    db.execute("ALTER TABLE sessions RENAME TO conversations")  # it need not be anything we know
    db.close()
    before = golden.read_bytes()
    with pytest.raises(SchemaTooNew, match="Upgrade everturn") as caught:
        make.open_golden(golden)
    assert (caught.value.found, caught.value.supported) == (99, schema.CURRENT)
    assert golden.read_bytes() == before
    assert [path.name for path in golden.parent.iterdir()] == ["golden.db"]


# --- migrations ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of migrations in place of the package's, with its first ones."""
    folder = tmp_path / "package"
    (folder / "schema").mkdir(parents=True)
    for script in schema.files(schema.__package__).joinpath("schema").iterdir():
        (folder / "schema" / script.name).write_text(script.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(schema, "files", lambda package: folder)
    return folder / "schema"


@pytest.fixture
def db(golden: Path) -> Iterator[apsw.Connection]:
    db = page_checksums.connect(str(golden))
    yield db
    db.close()


def recorded(db: apsw.Connection) -> list[int]:
    return [version for (version,) in db.execute("SELECT version FROM schema_versions ORDER BY version")]


def columns(db: apsw.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


TWO, THREE = schema.CURRENT + 1, schema.CURRENT + 2


def test_a_migration_and_its_record_are_applied_once(scripts: Path, db: apsw.Connection, golden: Path) -> None:
    (scripts / f"{TWO:03}.sql").write_text(
        "ALTER TABLE sessions ADD COLUMN mood TEXT; UPDATE sessions SET mood = 'calm';"
    )
    schema.migrate(db, str(golden), TWO)
    schema.migrate(db, str(golden), TWO)
    assert recorded(db)[-1] == TWO
    assert db.execute("SELECT DISTINCT mood FROM sessions").fetchall() == [("calm",)]
    with pytest.raises(SchemaTooNew) as caught:
        make.open_golden(golden)
    assert caught.value.found == TWO


@pytest.mark.parametrize(
    "broken",
    [
        "ALTER TABLE sessions ADD COLUMN mood TEXT; INSERT INTO nowhere VALUES (1);",
        "ALTER TABLE sessions ADD COLUMN mood TEXT; DELETE FROM entries; SELEKT;",
        "CREATE TABLE sessions (x);",
    ],
)
def test_a_migration_that_fails_half_way_leaves_nothing_behind(
    broken: str, scripts: Path, db: apsw.Connection, golden: Path
) -> None:
    before = tables(golden)
    (scripts / f"{TWO:03}.sql").write_text(broken)
    with pytest.raises(apsw.SQLError):
        schema.migrate(db, str(golden), TWO)
    assert not db.in_transaction
    assert tables(golden) == before
    # Mended, it is applied as if nothing had happened.
    (scripts / f"{TWO:03}.sql").write_text("ALTER TABLE sessions ADD COLUMN mood TEXT;")
    schema.migrate(db, str(golden), TWO)
    assert "mood" in columns(db, "sessions")


def test_all_pending_migrations_are_one_step(scripts: Path, db: apsw.Connection, golden: Path) -> None:
    before = tables(golden)
    (scripts / f"{TWO:03}.sql").write_text("ALTER TABLE sessions ADD COLUMN mood TEXT;")
    (scripts / f"{THREE:03}.sql").write_text("ALTER TABLE sessions ADD COLUMN mood TEXT;")  # it is there already
    with pytest.raises(apsw.SQLError):
        schema.migrate(db, str(golden), THREE)
    assert tables(golden) == before
    (scripts / f"{THREE:03}.sql").write_text("ALTER TABLE sessions ADD COLUMN weather TEXT;")
    schema.migrate(db, str(golden), THREE)
    assert recorded(db)[-2:] == [TWO, THREE]
    assert {"mood", "weather"} <= columns(db, "sessions")


def test_a_new_file_whose_migration_fails_stays_empty(scripts: Path, tmp_path: Path) -> None:
    (scripts / f"{TWO:03}.sql").write_text("SELEKT;")
    db = apsw.Connection(str(tmp_path / "new.db"))
    with pytest.raises(apsw.SQLError):
        schema.migrate(db, "new.db", TWO)
    assert db.execute("SELECT count(*) FROM sqlite_schema").get == 0
    assert db.pragma("application_id") == 0
    schema.migrate(db, "new.db")
    assert recorded(db) == list(range(1, schema.CURRENT + 1))
    assert db.pragma("application_id") == schema.APPLICATION_ID
    db.close()


def test_what_was_stored_before_a_migration_reads_the_same_after_it(
    scripts: Path, golden: Path, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the public API: the store migrates the file when it opens it."""
    (scripts / f"{TWO:03}.sql").write_text("CREATE TABLE later (x TEXT) STRICT;")
    newer = schema.migrate
    monkeypatch.setattr(schema, "migrate", lambda db, path: newer(db, path, TWO))
    with make.open_golden(golden) as store:
        for name, facts in expected["sessions"].items():
            assert make.plain(make.state_as_json(store.state(name))) == facts["now"]
    db = apsw.Connection(str(golden))
    assert recorded(db)[-1] == TWO
    db.close()
