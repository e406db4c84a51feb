"""Page checksums of a SQLite file: what has them, who keeps them up, and what a page that is damaged says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, InvalidInput, MemoryStoreBackendError, MemoryStoreError, Unsupported
from everturn.backends.sqlite import page_checksums
from everturn.testing.faults.disks import PowerLossVFS

WORDS = [f"word {number}" for number in range(40)]


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def write(path: Path, session_id: str = "a", **options: object) -> None:
    with everturn.open(url(path), synchronous="OFF", **options) as store:
        for word in WORDS:
            store.add_messages(session_id, [ChatMessage("user", word + " " * 200)])


def words(path: Path, session_id: str = "a", **options: object) -> list[str]:
    with everturn.open(url(path)) as store:
        return [message.text.rstrip() for message in store.get_history(session_id, **options)]


def plain(path: Path, statement: str) -> None:
    """Run a statement as an engineer does, with a SQLite that knows nothing of checksums."""
    code = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit(); db.close()"
    subprocess.run([sys.executable, "-c", code, str(path), statement], check=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    write(path)
    return path


def flip_in(path: Path, text: bytes) -> None:
    content = path.read_bytes()
    at = content.index(text)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def test_every_page_of_a_new_file_has_a_checksum(path: Path) -> None:
    assert path.read_bytes()[20] == page_checksums.RESERVED
    db = page_checksums.connect(str(path))
    assert list(page_checksums.damaged(db, str(path), float("inf"))) == []
    db.close()


def test_the_default_vfs_of_the_process_stays_what_it_was(path: Path) -> None:
    code = (
        "import apsw, everturn, sys; a = apsw.vfs_names()[0]; everturn.open(sys.argv[1]); print(a, apsw.vfs_names()[0])"
    )
    before, after = subprocess.run(
        [sys.executable, "-c", code, url(path)], check=True, capture_output=True, text=True
    ).stdout.split()
    assert before == after


def test_plain_sqlite_can_read_it(path: Path) -> None:
    code = (
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM history').fetchone()[0])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    assert ran.stdout == "40\n"
    assert words(path) == WORDS


def test_a_flipped_bit_names_the_entry(path: Path) -> None:
    flip_in(path, b"word 7 ")
    with pytest.raises(CorruptEntry) as caught:
        words(path)
    assert (caught.value.session_id, caught.value.seq) == ("a", 8)


def test_what_an_engineer_changes_by_hand_names_the_entry(path: Path) -> None:
    plain(path, "UPDATE entries SET body = replace(body, 'word', 'work') WHERE seq = 8")
    with pytest.raises(CorruptEntry) as caught:
        words(path)
    assert (caught.value.session_id, caught.value.seq) == ("a", 8)
    assert words(path, on_corrupt="skip") == [word for word in WORDS if word != "word 7"]


def test_a_change_by_hand_in_the_row_of_a_session_is_an_error_and_no_other_history(path: Path) -> None:
    plain(path, "UPDATE sessions SET head = 3, messages = 3")
    for options in ({}, {"on_corrupt": "skip"}):
        with pytest.raises(CorruptEntry) as caught:
            words(path, **options)
        assert caught.value.session_id == "a"


def test_a_change_to_a_damaged_page_writes_nothing(path: Path) -> None:
    plain(path, "UPDATE sessions SET head = 3, messages = 3")
    with everturn.open(url(path)) as store, pytest.raises(MemoryStoreBackendError) as caught:
        store.add_messages("a", [ChatMessage("user", "one more")])
    assert caught.value.outcome == "not_written"


def test_verify_names_the_page_and_goes_on(path: Path) -> None:
    write(path, "b")
    flip_in(path, b"word 7 ")
    with everturn.open(url(path)) as store:
        report = store.verify()
    assert report.sessions == 2
    assert any(problem.session_id is None and "page" in problem.what for problem in report.problems)
    assert ("a", 8) in {(problem.session_id, problem.seq) for problem in report.problems}


def test_verify_goes_on_where_sessions_cannot_be_listed(path: Path) -> None:
    write(path, "b")
    plain(path, "UPDATE sessions SET changed_at = 0")
    with everturn.open(url(path)) as store:
        with pytest.raises(CorruptEntry):
            store.sessions()
        report = store.verify()
    assert (report.sessions, report.ok) == (2, False)
    assert report.entries == 80


def test_a_flip_in_the_header_does_not_end_the_checking(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] = 0
    path.write_bytes(content)
    with pytest.raises(MemoryStoreBackendError, match="damaged"):
        everturn.open(url(path))


def test_a_file_that_ends_within_a_page_is_not_opened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(MemoryStoreError):
        everturn.open(url(path))


def test_checksums_outlive_an_erasure_which_writes_the_file_anew(path: Path) -> None:
    write(path, "b")
    with everturn.open(url(path)) as store:
        assert store.erase("b").complete
        assert store.verify().ok
    db = page_checksums.connect(str(path))
    assert list(page_checksums.damaged(db, str(path), float("inf"))) == []
    db.close()


# --- files that others wrote -----------------------------------------------------------------------------------------


def test_pages_that_another_program_wrote_can_be_accepted(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    plain(path, f"VACUUM INTO '{copy}'")
    with pytest.raises(MemoryStoreBackendError, match="accept-pages"):
        everturn.open(url(copy))
    command = [sys.executable, "-m", "everturn.cli", "verify", url(copy), "--accept-pages"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "no damage" in ran.stdout) == (0, True), ran.stderr
    assert words(copy) == WORDS


def verified(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everturn.cli", "verify", url(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_verify_offers_to_accept_pages_only_if_no_entry_is_damaged(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"word 7 ")
    path.write_bytes(content[:at] + b"W" + content[at + 1 :])
    ran = verified(path)
    assert (ran.returncode, "entry" in ran.stdout, "restore a backup" in ran.stdout) == (1, True, True), ran.stderr
    assert "everturn verify" not in ran.stdout
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # in the checksum of the last page
    ran = verified(path)
    assert (ran.returncode, ran.stdout.count("--accept-pages")) == (1, 1), ran.stdout + ran.stderr
    path.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])  # in the page that is read first
    ran = verified(path)
    assert (ran.returncode, ran.stderr.count("everturn verify")) == (2, 1), ran.stderr
    assert "everturn verify --accept-pages" in ran.stderr


def test_what_is_damaged_otherwise_is_not_accepted(path: Path) -> None:
    content = path.read_bytes()
    at = content.index(b"word 7 ") // 4096 * 4096
    path.write_bytes(content[: at + 8] + bytes(64) + content[at + 72 :])  # where the page says where its rows are
    command = [sys.executable, "-m", "everturn.cli", "verify", url(path), "--accept-pages"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "left as it is" in ran.stderr


# --- files and places without them -----------------------------------------------------------------------------------


def test_a_file_without_checksums_still_opens(tmp_path: Path) -> None:
    path = tmp_path / "plain.db"
    write(path, page_checksums=False)
    assert path.read_bytes()[20] == 0
    assert words(path) == WORDS
    with everturn.open(url(path)) as store:
        assert store.verify().ok


@pytest.mark.parametrize("value", ["yes", 2])
def test_the_option_is_on_or_off(tmp_path: Path, value: object) -> None:
    with pytest.raises(InvalidInput):
        everturn.open(url(tmp_path / "memory.db"), page_checksums=value)


def test_a_vfs_of_ones_own_creates_files_without_and_writes_none_with(path: Path, tmp_path: Path) -> None:
    with PowerLossVFS("disk") as disk:
        with everturn.open(url(tmp_path / "own.db"), vfs=disk.name) as store:
            store.add_messages("a", [ChatMessage("user", "1")])
        with everturn.open(url(path), vfs=disk.name) as store:
            assert len(store.get_history("a")) == 40
            with pytest.raises(Unsupported, match="checksums"):
                store.add_messages("a", [ChatMessage("user", "1")])
    assert (tmp_path / "own.db").read_bytes()[20] == 0
    assert words(path) == WORDS


def test_without_the_extension_a_file_with_checksums_is_read_and_not_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_checksums, "_vfs", None)
    monkeypatch.setattr(page_checksums, "_is_missing", True)
    assert words(path) == WORDS
    with everturn.open(url(path)) as store:
        for change in (
            lambda: store.add_messages("a", [ChatMessage("user", "1")]),
            lambda: store.erase("a"),
            lambda: store.fork("a", "b"),
        ):
            with pytest.raises(Unsupported, match="apsw"):
                change()
    write(tmp_path / "new.db")
    assert (tmp_path / "new.db").read_bytes()[20] == 0


# --- copies ----------------------------------------------------------------------------------------------------------


def test_a_copy_of_a_damaged_page_does_not_seem_sound(path: Path, tmp_path: Path) -> None:
    from everturn.backends.sqlite.backup import copy_pages

    flip_in(path, b"word 7 ")
    copy_pages(path, tmp_path / "copy.db", lambda done, total: None)
    numbers = []
    for file in (path, tmp_path / "copy.db"):
        db = page_checksums.connect(str(file))
        numbers.append(list(page_checksums.damaged(db, str(file), float("inf"))))
        db.close()
    assert numbers[0] == numbers[1] != []


def test_a_stamp_is_what_the_extension_writes(path: Path) -> None:
    content = path.read_bytes()
    page_checksums.stamp(str(path))
    assert path.read_bytes() == content


def test_rows_are_compared_with_the_name_they_were_asked_by(tmp_path: Path) -> None:
    """As a flipped bit in the index of names would have it, in a file without page checksums."""
    path = tmp_path / "plain.db"
    for name in ("customer 1", "customer 2"):
        write(path, name, page_checksums=False)
    content = path.read_bytes()
    ends = [at for at in range(len(content)) if content.startswith(b"customer 2", at)]
    damaged = bytearray(content)
    for at in ends:
        page = at // 4096 * 4096
        if damaged[page] == 10:  # a leaf of an index; it has the name and, behind it, the number of the row
            damaged[at + 10] = 1
    assert damaged != content
    path.write_bytes(damaged)
    with everturn.open(url(path)) as store:
        for attempt in (
            lambda: store.get_history("customer 2"),
            lambda: store.get_history("customer 2", on_corrupt="skip"),
            lambda: store.add_messages("customer 2", [ChatMessage("user", "mine")]),
            lambda: store.info("customer 2"),
        ):
            with pytest.raises(CorruptEntry) as caught:
                attempt()
            assert caught.value.session_id == "customer 2"
        assert len(store.get_history("customer 1")) == 40


def test_an_emptied_table_of_versions_is_a_clear_error(path: Path) -> None:
    db = page_checksums.connect(str(path))
    db.execute("DELETE FROM schema_versions")
    db.close()
    with pytest.raises(InvalidInput, match="schema_versions"):
        everturn.open(url(path))


def test_files_from_before_a_crash_are_read_through_the_wal(tmp_path: Path) -> None:
    """A WAL that a killed process left is taken over with its checksums."""
    path = tmp_path / "memory.db"
    store = everturn.open(url(path))
    for word in WORDS:
        store.add_messages("a", [ChatMessage("user", word)])
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", tmp_path / f"crashed.db{suffix}")
    store.close()
    assert (tmp_path / "crashed.db-wal").stat().st_size
    assert words(tmp_path / "crashed.db") == WORDS
    with everturn.open(url(tmp_path / "crashed.db")) as crashed:
        assert crashed.verify().ok


def test_a_read_only_look_by_plain_sqlite_leaves_the_wal_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = everturn.open(url(path))
    store.add_messages("a", [ChatMessage("user", "1")])
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", tmp_path / f"crashed.db{suffix}")
    store.close()
    look = "execute('SELECT * FROM history').fetchall()"
    code = f"import sqlite3, sys; sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True).{look}"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "crashed.db")], check=True)
    assert words(tmp_path / "crashed.db") == ["1"]
