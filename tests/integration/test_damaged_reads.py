"""Reads of a damaged SQLite file: what they must not take for an answer, and what `verify` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStore, Summary, ToolCall
from everturn.backends.sqlite import page_checksums
from tests.row_seals import seal


@pytest.fixture
def store(path: Path) -> Iterator[MemoryStore]:
    with everturn.open(f"sqlite:///{path}", synchronous="OFF") as store:
        yield store


def say(store: MemoryStore, session_id: str, text: str) -> None:
    store.add_messages(session_id, [ChatMessage("user", text)])


def words(store: MemoryStore, session_id: str) -> list[str | None]:
    return [message.text for message in store.get_history(session_id)]


def planted(path: Path, *statements: str) -> None:
    """Change what is stored behind the store's back."""
    db = page_checksums.connect(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()


def test_a_read_that_fails_midway_leaves_no_reader_in_the_past(store: MemoryStore, path: Path) -> None:
    """Its error holds on to the frames that read, and these to a statement: so long, it was still that moment."""
    for number in range(200):
        say(store, "damaged", str(number))
    planted(path, "UPDATE entries SET body = 'x' WHERE session = 1 AND seq = 5")
    say(store, "sound", "before")
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("damaged")
    say(store, "sound", "behind")
    assert words(store, "sound") == ["before", "behind"]
    assert caught.value.seq == 5  # and so it is still held on to


# --- files without page checksums ------------------------------------------------------------------------------------


@pytest.fixture
def plain(path: Path) -> Iterator[MemoryStore]:
    with everturn.open(f"sqlite:///{path}?page_checksums=off", synchronous="OFF") as store:
        for name in ("a", "b", "c", "d", "e"):
            say(store, f"customer {name}", name)
        yield store


@pytest.mark.parametrize(("name", "damage", "sound"), [("b", b"z", "e"), ("c", b"z", "a"), ("d", b"A", "a")])
def test_a_name_that_a_damaged_index_hides_is_not_taken_for_absent(
    path: Path, plain: MemoryStore, name: str, damage: bytes, sound: str
) -> None:
    plain.close()
    root = _root(path, "sessions_by_name")
    content = bytearray(path.read_bytes())
    at = content.index(f"customer {name}".encode(), root)
    content[at + 9 : at + 10] = damage
    path.write_bytes(content)
    with everturn.open(f"sqlite:///{path}") as store:
        with pytest.raises(CorruptEntry):
            store.get_history(f"customer {name}")
        with pytest.raises(CorruptEntry):
            say(store, f"customer {name}", "this would begin another")
        for order in (None, "recent"):
            with pytest.raises(CorruptEntry):
                store.sessions(order=order)
        assert words(store, f"customer {sound}") == [sound]


@pytest.mark.parametrize("changed_at", [9e300, 0.0])
def test_a_session_whose_time_of_change_is_damaged_is_not_left_out_of_the_recent_ones(
    store: MemoryStore, path: Path, changed_at: float
) -> None:
    for name in "abc":
        say(store, name, name)
    store.close()
    planted(path, f"UPDATE sessions SET changed_at = {changed_at} WHERE session_id = 'b'")
    with everturn.open(f"sqlite:///{path}") as damaged, pytest.raises(CorruptEntry):
        damaged.sessions(order="recent")


def _root(path: Path, index: str) -> int:
    """Find the offset of the first page of an index in the file."""
    db = page_checksums.connect(str(path))
    root: int = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)).get
    db.close()
    return (root - 1) * 4096


def test_an_absent_name_is_absent_in_a_sound_file(plain: MemoryStore) -> None:
    for name in ("", "bb", "z"):
        assert words(plain, f"customer {name}") == []


def test_tool_calls_that_a_damaged_index_hides_are_missed(path: Path, plain: MemoryStore) -> None:
    plain.append("customer a", [ToolCall("f", {}), ToolCall("g", {})])
    plain.append("customer a", [Summary("x", [1.0], (1, 1)), Summary("y", [1.0], (1, 1))])
    plain.close()
    root = _root(path, "entries_not_messages")
    content = bytearray(path.read_bytes())
    for kind in (b"tool_call", b"summary"):
        at = content.index(kind, root)
        content[at] ^= 1
    path.write_bytes(content)
    with everturn.open(f"sqlite:///{path}") as store:
        with pytest.raises(CorruptEntry):
            store.get_tool_calls("customer a")
        with pytest.raises(CorruptEntry):
            store.get_summaries("customer a")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE sessions SET changed_at = changed_at + 1 WHERE no = 1", "latest change"),
        ("UPDATE sessions SET created_at = created_at + 1 WHERE no = 1", "first change"),
        ("UPDATE sessions SET bytes = bytes + 1 WHERE no = 1", "bytes"),
        ("UPDATE sessions SET life = 'x' WHERE no = 1", "its life"),
        ("UPDATE changes SET created_at = created_at + 1 WHERE id = (1 << 32) + 1", "entries that it wrote"),
        ("UPDATE changes SET kind = 'bppend' WHERE id = (1 << 32) + 1", "bppend"),
        ("UPDATE changes SET count = 3 WHERE id = (1 << 32) + 1", "said to have written"),
        ("UPDATE changes SET label = CAST(x'ff' AS TEXT) WHERE session = 1 AND label IS NOT NULL", "cannot be read"),
        ("UPDATE sessions SET last_seq = 34 WHERE no = 1", "said to have written"),
        ("UPDATE changes SET snapshot_id = 'x' WHERE kind = 'rollback'", "which no change took"),
        ("UPDATE snapshots SET label = 'another'", "snapshot"),
        ("UPDATE entries SET created_at = created_at + 1 WHERE id = (1 << 32) + 4", "first of its turn"),
    ],
)
@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "unsealed"])
def test_verify_names_what_is_stored_twice_and_not_alike(
    path: Path, plain: MemoryStore, damage: str, named: str, *, is_sealed: bool
) -> None:
    snapshot = plain.save_snapshot("customer a", "a label")
    say(plain, "customer a", "left")
    plain.rollback_to_snapshot("customer a", snapshot)
    plain.add_messages("customer a", [ChatMessage("user", "x" * 2000), ChatMessage("user", "y" * 2000)])
    assert plain.verify().ok
    planted(path, damage)
    if is_sealed and "x'ff'" not in damage:
        db = page_checksums.connect(str(path))
        seal(db)
        db.close()
    report = plain.verify()
    # A row of a session that does not match its checksum keeps sessions from being listed, which is told too.
    assert {problem.session_id for problem in report.problems} - ({None} if not is_sealed else set()) == {"customer a"}
    assert any(named in problem.what for problem in report.problems)
    assert report.sessions == 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cleared     INTEGER", "bleared     INTEGER"),
        ("moved_to INTEGER", "moved_tp INTEGER"),
        ("UNIQUE INDEX", "       INDEX"),
    ],
)
def test_verify_names_a_damaged_schema_and_goes_on(path: Path, plain: MemoryStore, old: str, new: str) -> None:
    plain.close()
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
    with everturn.open(f"sqlite:///{path}") as store:
        report = store.verify()
    assert any("not defined as everturn defines it" in problem.what for problem in report.problems)
    assert report.sessions == 5


# --- salvage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["created_at = created_at + 1", "id = id - 3"])
def test_what_is_skipped_past_damage_has_the_seq_and_time_that_it_was_written_with(
    path: Path, store: MemoryStore, damage: str
) -> None:
    for number in range(6):
        say(store, "a", str(number))
    sound = [(message.seq, message.created_at) for message in store.get_history("a")]
    store.close()
    planted(path, "DELETE FROM entries WHERE seq = 2", f"UPDATE entries SET {damage} WHERE seq = 5")
    with everturn.open(f"sqlite:///{path}") as again:
        left = [(message.seq, message.created_at) for message in again.get_history("a", on_corrupt="skip")]
    assert left == [told for told in sound if told[0] not in (2, 5)]
