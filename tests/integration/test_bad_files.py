"""Files and disks that are not as they should be: a clear error of the right class, nothing lost, usable afterwards."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import everturn
from everturn import CorruptEntry, InvalidInput, MemoryStore, MemoryStoreBackendError, MemoryStoreError, SchemaTooNew
from everturn.backends.sqlite import page_checksums
from tests.integration.children import run
from tests.integration.turns import SESSION, check, turn, url

NOBODY = 65534


async def _open_and_close(path: Path) -> None:
    await (await everturn.open_async(url(path), timeout=5)).close()


def refusals(path: Path) -> list[MemoryStoreError]:
    """Errors of the blocking and the async store at opening this path."""
    errors: list[MemoryStoreError] = []
    for attempt in (lambda: everturn.open(url(path), timeout=5), lambda: asyncio.run(_open_and_close(path))):
        with pytest.raises(MemoryStoreError) as caught:
            attempt()
        errors.append(caught.value)
    return errors


def in_folder(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


# --- not a database of ours: refused, and left as it is --------------------------------------------------------------


def make_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 500)


def make_short_text(path: Path) -> None:
    path.write_text("hello\n")


def make_encrypted(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def make_cut_off(path: Path) -> None:
    # Pages of 4,096 bytes, and no write-ahead log: SQLite would begin one beside a file that asks for it, and leave it.
    path.write_bytes(b"SQLite format 3\0" + b"\x10\x00\x01\x01" + os.urandom(4076))


def make_someone_elses(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE messages (body)")
        db.execute("INSERT INTO messages VALUES ('theirs')")
    db.close()


def make_someone_elses_wal(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE sessions (no)")
    db.commit()
    db.close()


def make_someone_elses_empty(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA application_id = 252006673")  # Fossil's
        db.execute("PRAGMA user_version = 7")
    db.close()


@pytest.mark.parametrize(
    "make",
    [
        make_text,
        make_short_text,
        make_encrypted,
        make_cut_off,
        make_someone_elses,
        make_someone_elses_wal,
        make_someone_elses_empty,
    ],
)
def test_what_is_not_our_database_is_refused_and_untouched(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    before = in_folder(path.parent)
    for error in refusals(path):
        assert isinstance(error, InvalidInput)
        assert str(path) in str(error), "it does not say where"
        assert "choose another path" in str(error), "it does not say what next"
        assert in_folder(path.parent) == before


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_file_of_a_newer_everturn_is_refused_and_untouched(path: Path, mode: str) -> None:
    everturn.open(url(path)).close()
    db = page_checksums.connect(str(path))
    db.execute("INSERT INTO schema_versions VALUES (999, 0, '99.0')")
    db.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    db.close()
    before = in_folder(path.parent)
    for error in refusals(path):
        assert isinstance(error, SchemaTooNew)
        assert error.found == 999
        assert in_folder(path.parent) == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
        assert store.verify().ok


def test_a_directory_is_refused(tmp_path: Path) -> None:
    for error in refusals(tmp_path):
        assert isinstance(error, InvalidInput)
        assert "is a directory" in str(error)


def test_a_missing_directory_is_refused_and_not_made(tmp_path: Path) -> None:
    for error in refusals(tmp_path / "missing" / "memory.db"):
        assert isinstance(error, InvalidInput)
        assert "does not exist" in str(error)
    assert not (tmp_path / "missing").exists()


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for error in refusals(tmp_path / "file" / "memory.db"):
        assert isinstance(error, InvalidInput | MemoryStoreBackendError)


# --- no permission: root may do anything, so the stories are told by a process that has become nobody ----------------


@pytest.fixture
def common_folder() -> Iterator[Path]:
    """A folder that everybody can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


def become_nobody(path: str) -> None:
    """Give up root's rights, after importing all modules: the file system now treats this process as any other."""
    everturn.open("sqlite://").close()
    asyncio.run(_open_and_close(Path(path + ".warm")))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def use_without_rights(path: str) -> None:
    """Use a store on this path: an operation works, or raises an honest error."""
    become_nobody(path)
    try:
        store = everturn.open(url(path), timeout=2)
    except MemoryStoreBackendError as exc:
        refused_at_once = exc
    else:
        use_read_only(store)
        return
    assert path in str(refused_at_once)
    assert refused_at_once.outcome == "not_written"
    assert re.search(r"permissions|read-only", str(refused_at_once))
    print("refused")


def use_read_only(store: MemoryStore) -> None:
    for change in (
        lambda: store.add_messages(SESSION, turn("me", 99)),
        lambda: store.clear(SESSION),
        lambda: store.save_snapshot(SESSION),
        lambda: store.erase(SESSION),
    ):
        with pytest.raises(MemoryStoreBackendError, match=r"read-only|permissions") as caught:
            change()
        assert caught.value.outcome == "not_written"
    check(store.get_history(SESSION), {"me": [0]})
    store.close()
    print("refused")


@pytest.mark.parametrize("what", ["file", "folder", "both", "unreadable"])
def test_what_may_not_be_written_is_an_honest_error(common_folder: Path, what: str) -> None:
    path = common_folder / "memory.db"
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
    (common_folder / "memory.db.warm").touch()
    path.chmod({"file": 0o444, "both": 0o444, "folder": 0o666, "unreadable": 0o000}[what])
    everturn.open(url(common_folder / "memory.db.warm")).close()
    (common_folder / "memory.db.warm").chmod(0o666)
    before = path.read_bytes() if os.geteuid() == 0 else b""
    if what in ("folder", "both"):
        common_folder.chmod(0o555)
    assert run(use_without_rights, path).strip() == "refused"
    common_folder.chmod(0o777)
    assert not before or path.read_bytes() == before
    path.chmod(0o666)
    with everturn.open(url(path)) as store:
        check(store.get_history(SESSION), {"me": [0]})
        store.add_messages(SESSION, turn("me", 1))
        assert store.verify().ok


def open_in_forbidden_folder(path: str) -> None:
    become_nobody(path)
    with pytest.raises(MemoryStoreBackendError, match=r"permissions|read-only") as caught:
        everturn.open(url(path), timeout=2)
    assert caught.value.outcome == "not_written"


def test_a_new_file_where_none_may_be_made_is_an_honest_error(common_folder: Path) -> None:
    (common_folder / "memory.db.warm").touch()
    everturn.open(url(common_folder / "memory.db.warm")).close()
    common_folder.chmod(0o555)
    run(open_in_forbidden_folder, common_folder / "memory.db")
    assert not (common_folder / "memory.db").exists()


# --- a file that goes bad --------------------------------------------------------------------------------------------


def test_a_damaged_file_is_loud(path: Path) -> None:
    with everturn.open(url(path)) as store:
        for number in range(200):
            store.add_messages(SESSION, turn("me", number))
    image = bytearray(path.read_bytes())
    for page in range(2, len(image) // 4096):
        image[page * 4096 : page * 4096 + 100] = os.urandom(100)
    path.write_bytes(image)
    with pytest.raises(MemoryStoreError):
        use_all(path)


def use_all(path: Path) -> None:
    with everturn.open(url(path)) as store:
        store.get_history(SESSION)
        store.add_messages(SESSION, turn("me", 200))


@pytest.mark.parametrize(("column", "value"), [("kept", "'x'"), ("kept", "'5'"), ("life", "CAST(x'ff' AS TEXT)")])
def test_a_damaged_row_of_a_session_is_corruption_and_can_be_erased(path: Path, column: str, value: str) -> None:
    with everturn.open(url(path)) as store:
        store.add_messages(SESSION, turn("me", 0))
        beside = apsw.Connection(str(path))
        beside.execute(f"UPDATE sessions SET {column} = {value}")
        beside.close()
        for call in (store.get_history, store.info, store.clear, lambda name: store.add_messages(name, turn("me", 1))):
            with pytest.raises(CorruptEntry, match="sessions"):
                call(SESSION)
        assert store.erase(SESSION).entries == len(turn("me", 0))
        assert store.get_history(SESSION) == []


def test_a_failed_open_leaves_no_handle_and_no_lock(path: Path) -> None:
    make_someone_elses(path)
    gc.collect()  # what other tests left may be closed at any moment: so there may be fewer handles, but not more
    handles = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    errors = [refusals(path) for _ in range(5)]
    assert errors
    if handles:
        assert len(list(Path("/proc/self/fd").iterdir())) <= handles
    apsw.Connection(str(path)).execute("BEGIN EXCLUSIVE; ROLLBACK")


def drop(path: str) -> None:
    store = everturn.open(url(path))
    store.add_messages(SESSION, turn("me", 0))
    del store
    gc.collect()
    links = [os.path.realpath(handle) for handle in Path("/proc/self/fd").iterdir()]
    assert not [link for link in links if link.startswith(path)]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at Linux's list of open handles")
def test_a_store_that_is_dropped_without_a_close_lets_go_of_its_file(path: Path) -> None:
    """Not a promise to lean on, but no leak either."""
    run(drop, path)
