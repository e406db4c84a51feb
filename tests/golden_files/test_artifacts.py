"""Artifacts live well in git: the same bytes for the same writes, one plain file, and text that git can compare."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from everturn.cli import main
from everturn.testing.golden import inspector_main
from everturn.testing.golden.artifacts import pack
from everturn.testing.golden.compare import compare
from everturn.testing.golden.errors import GoldenError
from everturn.testing.golden.read_database import read

Make = Callable[..., Path]
SCRIPT = "CREATE TABLE t (k INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'one'), (2, 'two');"


def packed(source: Path) -> bytes:
    target = source.with_suffix(".packed")
    target.unlink(missing_ok=True)
    pack(source, target)
    return target.read_bytes()


def test_the_same_writes_make_the_same_bytes_whatever_came_between(database: Make) -> None:
    plain = database(SCRIPT)
    busy = database(
        "PRAGMA journal_mode = wal; CREATE TABLE x AS SELECT randomblob(50000) AS z; DROP TABLE x;" + SCRIPT
    )
    with closing(sqlite3.connect(busy)) as db:
        for turn in range(20):  # the change counter runs on
            with db:
                db.execute("UPDATE t SET v = ? WHERE k = 1", (turn,))
        with db:
            db.execute("UPDATE t SET v = 'one' WHERE k = 1")
        assert packed(busy) == packed(plain)  # still open, its last rows in the WAL


def test_the_volatile_bytes_of_the_header_are_fixed_and_the_journal_mode_is_plain(database: Make) -> None:
    octets = packed(database("PRAGMA journal_mode = wal; PRAGMA user_version = 7;" + SCRIPT))
    assert octets[18:20] == b"\x01\x01"
    assert octets[24:28] == octets[40:44] == octets[92:96] == b"\x00\x00\x00\x01"
    assert octets[96:100] == (3_051_003).to_bytes(4, "big")


def test_an_artifact_is_a_sound_database_for_any_sqlite(database: Make, tmp_path: Path) -> None:
    source, target = database("PRAGMA journal_mode = wal;" + SCRIPT), tmp_path / "a.sqlite"
    pack(source, target)
    with closing(sqlite3.connect(target)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
        with db:
            db.execute("INSERT INTO t VALUES (3, 'three')")
        assert db.execute("SELECT count(*) FROM t").fetchall() == [(3,)]
    assert [path.name for path in tmp_path.glob("a.sqlite*")] == ["a.sqlite"]


def test_packing_changes_nothing_of_what_is_compared(database: Make) -> None:
    source = database(
        SCRIPT + "CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f (rowid, body) VALUES (7, 'hello');"
        "CREATE TABLE a (k INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO a VALUES (41); DELETE FROM a;"
        "CREATE TABLE g (x, y AS (x + 1) STORED); INSERT INTO g VALUES (1); PRAGMA application_id = 99;"
        "CREATE TABLE w (k TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO w VALUES ('a'); ANALYZE;"
    )
    target = source.with_name("packed")
    pack(source, target)
    assert compare(read(source), read(target)).is_none


def test_what_was_deleted_is_not_in_an_artifact(database: Make) -> None:
    octets = packed(database(SCRIPT + "INSERT INTO t VALUES (9, 'a secret'); DELETE FROM t WHERE k = 9;"))
    assert b"secret" not in octets


def test_a_broken_file_is_not_packed(database: Make, tmp_path: Path) -> None:
    path = database("CREATE TABLE t (v); CREATE INDEX i ON t (v); INSERT INTO t VALUES (1), (2);")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA writable_schema = on")
        db.execute("UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON t (v DESC)' WHERE name = 'i'")
    with pytest.raises(GoldenError, match="fails integrity_check, and is no artifact"):
        pack(path, tmp_path / "a.sqlite")
    assert not (tmp_path / "a.sqlite").exists()


def test_dangling_references_are_not_packed_unless_that_is_said(database: Make, tmp_path: Path) -> None:
    path = database("CREATE TABLE s (id PRIMARY KEY); CREATE TABLE m (s REFERENCES s (id)); INSERT INTO m VALUES (1);")
    with pytest.raises(GoldenError, match="refers by s to a row of s that is not there"):
        inspector_main.take(path, tmp_path / "draft", foreign_keys=True)
    assert not (tmp_path / "draft").exists()
    inspector_main.take(path, tmp_path / "draft", foreign_keys=False)


def test_a_write_that_fails_leaves_the_old_artifact(
    database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, artifact = database(SCRIPT), database(SCRIPT + "DELETE FROM t;"), tmp_path / "kept" / "a.sqlite"
    inspector_main.take(old, tmp_path / "draft", foreign_keys=True)
    inspector_main.write_artifact(tmp_path / "draft", artifact, ())
    before = artifact.read_bytes()
    inspector_main.take(new, tmp_path / "other", foreign_keys=True)

    def full(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(GoldenError, match="cannot be written: No space left on device"):
        inspector_main.write_artifact(tmp_path / "other", artifact, ())
    assert artifact.read_bytes() == before
    assert [path.name for path in artifact.parent.iterdir()] == ["a.sqlite"]


# --- the command line, and git ---------------------------------------------------------------------------------------


def everturn(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everturn.cli", "golden", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_golden_show_prints_a_file_and_changes_nothing(database: Make) -> None:
    path = database("PRAGMA journal_mode = wal;" + SCRIPT)
    before = path.read_bytes(), path.stat().st_mtime_ns
    done = everturn("show", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "t (2 rows)\n  k=1, v='one'\n  k=2, v='two'\n" in done.stdout
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]


def test_golden_diff_exits_as_diff_does(
    database: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*args: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["everturn", "golden", "diff", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    one, same, other = database(SCRIPT), database(SCRIPT), database(SCRIPT + "UPDATE t SET v = 'zwei' WHERE k = 2;")
    assert run(one, same) == (0, "", "")
    code, out, _ = run(one, other)
    assert code == 1
    assert "v  'two'     'zwei'" in out
    assert run(one, other, "--mask", "t.v") == (0, "", "")
    assert run(one, other, "--pattern", "two|zwei") == (0, "", "")
    assert run(one, same, "--type", "uuid") == (0, "", "everturn: mask(types='uuid'): there is none on either side\n")
    code, out, err = run(one, one.with_name("nowhere"))
    assert (code, out) == (2, "")
    assert err.endswith("nowhere does not exist\n")
    assert run(one, other, "--mask", "t")[0] == 2


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_diff_shows_the_rows_that_changed(database: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two lines of docs/snapshot-db.md."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*args: str) -> str:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        return subprocess.run(["git", *identity, *args], cwd=folder, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    page = (Path(__file__).parents[2] / "docs" / "snapshot-db.md").read_text("utf-8")
    (lines,) = (
        block
        for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        if "git config" in block
    )
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run(["bash", "-ec", lines], cwd=folder, check=True)
    shutil.copy(database(SCRIPT), folder / "a.sqlite")
    git("add", ".")
    git("commit", "-qm", "one")
    shutil.copy(database(SCRIPT + "UPDATE t SET v = 'zwei' WHERE k = 2;"), folder / "a.sqlite")
    changed = [line for line in git("diff").splitlines() if line.startswith(("+ ", "- "))]
    assert changed == ["-  k=2, v='two'", "+  k=2, v='zwei'"]
