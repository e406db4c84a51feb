"""Files as a power cut leaves them: what was synced is there, what was not is gone; any library, any thread."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from everturn.testing.faults.durable_files import DurableFiles, restore
from everturn.testing.faults.system_calls import SystemCallWatch, can_watch

pytestmark = pytest.mark.skipif(not can_watch(), reason="system calls cannot be watched here")
BEGIN = """
import os, sqlite3, sys, threading
os.chdir(sys.argv[1])
def write(name, text, *, sync):
    with open(name, "w") as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
def sync_directory():
    os.fsync(os.open(".", os.O_RDONLY))
print("ready", flush=True)
input()
"""
END = """
print("done", flush=True)
input()
"""


def watched(place: Path, code: str) -> DurableFiles:
    """Run code in a process that is watched, until its end; then kill it, and return its files."""
    child = subprocess.Popen(
        [sys.executable, "-c", BEGIN + code + END, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        files = DurableFiles(place)
        with SystemCallWatch(child.pid, files.begun):
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline() == "done\n"
            files.states.append(files.cut())
    return files


def left(place: Path, code: str) -> dict[str, bytes]:
    return watched(place, code).states[-1].files


def test_what_was_synced_is_left_and_what_was_not_is_lost(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("there before")
    code = "write('synced', 'a', sync=True); write('lost', 'b', sync=False); open('old', 'a').write('more')"
    assert left(tmp_path, code) == {"old": b"there before", "synced": b"a"}


def test_a_rename_is_left_when_its_directory_was_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    rename = "write('new', 'after', sync=True); os.replace('new', 'file')"
    assert left(tmp_path, rename) == {"file": b"before"}
    (tmp_path / "file").write_text("before")
    assert left(tmp_path, f"{rename}; sync_directory()") == {"file": b"after"}


def test_a_file_that_was_renamed_and_never_synced_is_empty(tmp_path: Path) -> None:
    code = "write('new', 'after', sync=False); os.replace('new', 'file'); sync_directory()"
    assert left(tmp_path, code) == {"file": b""}


def test_a_file_that_was_removed_is_gone_also_if_another_took_its_name(tmp_path: Path) -> None:
    code = "write('journal', 'first', sync=True); os.unlink('journal'); write('journal', 'second', sync=False)"
    assert left(tmp_path, code) == {}


def test_a_file_that_syncs_with_every_write_needs_no_other_sync(tmp_path: Path) -> None:
    code = "os.write(os.open('file', os.O_CREAT | os.O_WRONLY | os.O_DSYNC), b'at once')"
    assert left(tmp_path, code) == {"file": b"at once"}


def test_sync_saves_everything(tmp_path: Path) -> None:
    assert left(tmp_path, "write('file', 'a', sync=False); os.sync()") == {"file": b"a"}


@pytest.mark.parametrize(("level", "rows"), [("FULL", [(1,), (2,)]), ("OFF", [(1,)])])
def test_sqlite_in_a_thread_is_seen_and_its_file_opens_after_the_cut(tmp_path: Path, level: str, rows: object) -> None:
    database = tmp_path / "memory.db"
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE t AS SELECT 1 AS x")
    db.close()
    code = f"""
def insert():
    db = sqlite3.connect("memory.db", isolation_level=None)
    db.execute("PRAGMA synchronous={level}")
    db.execute("INSERT INTO t VALUES (2)")
thread = threading.Thread(target=insert)
thread.start()
thread.join()
"""
    files = watched(tmp_path, code)
    assert bool(files.lost()) is (level == "OFF")
    restore(tmp_path, files.states[-1])
    survivor = sqlite3.connect(database)
    assert survivor.execute("SELECT x FROM t ORDER BY x").fetchall() == rows
    survivor.close()
    assert (files.writes > 0, bool(files.synced)) == (True, level == "FULL")


def test_files_elsewhere_are_left_out(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    files = watched(inside, "write('../outside', 'a', sync=True)")
    assert (files.writes, files.synced) == (0, [])


def test_a_process_that_is_gone_cannot_be_watched(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(OSError, match="No such"), SystemCallWatch(child.pid, DurableFiles(tmp_path).begun):
        pass
