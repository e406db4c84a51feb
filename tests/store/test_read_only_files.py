"""read_only on SQLite files: no byte is written and no file is created, whoever else has the file open."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, InvalidInput, MemoryStore, MemoryStoreBackendError, Unsupported
from everturn.backends.sqlite import page_checksums
from everturn.store.sync import operations_of

WRITER = """
import sys, everturn
store = everturn.open(sys.argv[1])
store.add_messages("s", [everturn.ChatMessage("user", sys.argv[2])])
if len(sys.argv) > 3:
    print("written", flush=True)
    sys.stdin.read()
store.close()
"""
MIGRATION = """
import sys
from everturn.backends.sqlite import page_checksums
db = page_checksums.connect(sys.argv[1])
db.execute("PRAGMA journal_mode = WAL; PRAGMA cache_size = 1; BEGIN IMMEDIATE; CREATE TABLE half_made (x)").fetchall()
db.execute("INSERT INTO half_made SELECT randomblob(4000) FROM sqlite_schema").fetchall()
print("begun", flush=True)
sys.stdin.read()
"""
LOOKS: list[Callable[[MemoryStore], object]] = [
    lambda store: store.get_history("s"),
    lambda store: store.get_history("s", limit=1),
    lambda store: store.sessions(),
    lambda store: list(store.find("one")),
    lambda store: store.verify(),
    lambda store: store.changes("s"),
    lambda store: store.health(),
]


def files(folder: Path) -> dict[str, bytes]:
    """Read every file by another process: to close a file would drop the locks this one has on it."""
    names = sorted(path.name for path in folder.iterdir())
    return {name: subprocess.run(["cat", folder / name], stdout=subprocess.PIPE, check=True).stdout for name in names}


@contextmanager
def other_process(script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a script in a process that waits, with the file open, until the block ends."""
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline()
            yield child
        finally:
            if child.poll() is None:
                child.communicate(timeout=60)


def write(url: str, text: str) -> None:
    subprocess.run([sys.executable, "-c", WRITER, url, text], check=True, timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "looked-at").mkdir()
    return tmp_path / "looked-at"


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/memory.db"


@pytest.fixture
def crashed(url: str, folder: Path) -> str:
    """A file whose only writer was killed: its turn is in the WAL alone."""
    with other_process(WRITER, url, "one", "wait") as child:
        child.kill()
        child.wait()
    assert (folder / "memory.db-wal").stat().st_size
    return url


def look(url: str) -> str:
    with everturn.open(url, read_only=True) as store:
        for each in LOOKS:
            each(store)
        assert store.verify().ok
        return store.get_history("s")[-1].text


def test_a_closed_file_is_looked_at_without_a_trace(url: str, folder: Path) -> None:
    write(url, "one")
    before = files(folder)
    assert list(before) == ["memory.db"]
    assert look(url) == "one"
    assert files(folder) == before


def test_a_file_that_another_process_writes_is_looked_at_without_a_trace(url: str, folder: Path) -> None:
    with other_process(WRITER, url, "one", "wait"):
        before = files(folder)
        assert list(before) == ["memory.db", "memory.db-shm", "memory.db-wal"]
        assert look(url) == "one"
        assert files(folder) == before


def test_the_wal_of_a_killed_process_is_read_and_stays(crashed: str, folder: Path) -> None:
    before = files(folder)
    assert look(crashed) == "one"
    assert files(folder) == before


def test_a_wal_without_its_shared_memory_gets_a_clear_word(crashed: str, folder: Path) -> None:
    (folder / "memory.db-shm").unlink()
    before = files(folder)
    with pytest.raises(Unsupported, match="Copy the file and its -wal to a place where you may write"):
        everturn.open(crashed, read_only=True)
    assert files(folder) == before
    with everturn.open(crashed) as store:
        assert store.get_history("s")[-1].text == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
def test_the_wal_of_another_user_can_be_read(crashed: str, folder: Path) -> None:
    for path in (folder, *folder.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for above in folder.parents:
        if "pytest" in str(above):
            above.chmod(0o755)
    before = files(folder)
    child = os.fork()
    if child == 0:  # it has imported everything: nobody may not be allowed to read our installation
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            code = 0 if look(crashed) == "one" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert files(folder) == before


def test_a_file_that_is_being_migrated_is_looked_at_without_a_trace(url: str, folder: Path) -> None:
    shutil.copy(Path(__file__).parent.parent / "migrations" / "v1.db", folder / "memory.db")
    with other_process(MIGRATION, str(folder / "memory.db")):
        before = files(folder)
        with pytest.raises(InvalidInput, match="was written by an earlier everturn"):
            everturn.open(url, read_only=True)
        assert files(folder) == before


def test_a_look_sees_what_another_process_writes_later(url: str) -> None:
    write(url, "one")
    with everturn.open(url, read_only=True) as store:
        assert store.get_history("s")[-1].text == "one"
        with other_process(WRITER, url, "two", "wait"):
            assert store.get_history("s")[-1].text == "two"
        write(url, "three")
        assert store.get_history("s")[-1].text == "three"


def test_a_look_that_another_process_wrote_into_is_refused_and_can_be_repeated(url: str) -> None:
    write(url, "one")
    with everturn.open(url, read_only=True) as store:
        database = operations_of(store).backend._database  # type: ignore[attr-defined]
        with (
            pytest.raises(MemoryStoreBackendError, match="read again") as refused,
            database.reader(time.monotonic() + 60),
        ):
            write(url, "two")  # it is the last to close the file, and copies its WAL into it
        assert refused.value.transient
        assert store.get_history("s")[-1].text == "two"


def test_a_process_that_looks_can_open_the_same_file_for_writing(url: str) -> None:
    with other_process(WRITER, url, "one", "wait"), everturn.open(url, read_only=True) as looking:
        assert looking.get_history("s")[-1].text == "one"
        with everturn.open(url) as writing:
            writing.add_messages("s", [ChatMessage("user", "two")])
            assert looking.get_history("s")[-1].text == "two"
        assert looking.get_history("s")[-1].text == "two"


def test_a_page_that_the_wal_has_is_not_judged_by_the_file(crashed: str, folder: Path) -> None:
    with everturn.open(crashed) as store:
        store.add_messages("s", [ChatMessage("user", "two")])
    with other_process(WRITER, crashed, "three", "wait") as child:
        child.kill()
        child.wait()
    newer = max(page_checksums.wal_pages(str(folder / "memory.db")))
    with (folder / "memory.db").open("r+b") as file:  # as if the crash had come while the WAL was copied into it
        file.seek((newer - 1) * 4096 + 100)
        file.write(b"torn")
    before = files(folder)
    assert look(crashed) == "three"
    assert files(folder) == before
