"""Messages that share a row of the SQLite file: they come apart again, and damage shows where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everturn
from everturn import ChatMessage, CorruptEntry, MemoryStore, Record
from everturn.backends.sqlite import page_checksums
from everturn.backends.sqlite.packed_rows import (
    MOST_LINES,
    SHARED_BYTES,
    PackedRow,
    cut_row,
    earliest_start,
    packed,
    unpacked,
)
from everturn.backends.sqlite.row_checksums import column_sum, of_lines
from everturn.core.codec import Draft, checksum, encode

AT = 1_700_000_000.0


def draft(kind: str, text: str) -> Draft:
    return encode(ChatMessage("user", text) if kind == "message" else Record(kind, text), "entry", 10**6)


drafts = st.lists(
    st.builds(draft, st.sampled_from(["message", "message", "message", "note"]), st.text(max_size=900)), max_size=30
)


def row(run: PackedRow, turn: int = 1) -> tuple[Any, ...]:
    checksums = None if run.lines is None else of_lines(run.lines, column_sum(run.seq, turn, run.count, AT))
    return run.seq, AT, run.checksum, run.body, run.kind, turn, run.count, checksums


def entries(runs: list[PackedRow]) -> list[tuple[int, str, int, bytes]]:
    return [(seq, kind, check, body) for run in runs for seq, _, check, body, kind, _ in unpacked(row(run))]


@given(drafts, st.integers(1, 10**6))
def test_what_is_packed_is_unpacked(turn: list[Draft], first: int) -> None:
    runs = packed(first, turn)
    wanted = [(seq, one.kind, one.checksum, one.body) for seq, one in enumerate(turn, first)]
    assert entries(runs) == wanted
    assert sum(run.size for run in runs) == sum(len(one.body) for one in turn)
    for run in runs:
        assert run.count <= MOST_LINES
        assert run.count == 1 or (len(run.body) <= SHARED_BYTES + MOST_LINES and run.kind == "message")
        assert (run.lines is None) == (run.count == 1)
        assert earliest_start(run.seq + run.count - 1) <= run.seq


@given(drafts, st.data())
def test_a_row_can_be_cut_between_any_two_entries(turn: list[Draft], data: st.DataObject) -> None:
    for run in packed(1, turn):
        if run.count > 1:
            seq = data.draw(st.integers(run.seq + 1, run.seq + run.count - 1))
            halves = cut_row(row(run), [(run.seq, seq - 1), (seq, run.seq + run.count - 1)])
            assert halves is not None
            assert entries(halves) == entries([run])
            assert halves[1].seq == seq
            assert sum(half.size for half in halves) == run.size


def test_entries_of_other_kinds_and_long_messages_have_rows_of_their_own() -> None:
    turn = [draft("message", "a"), draft("note", "b"), draft("note", "c"), draft("message", "d" * SHARED_BYTES)]
    turn += [draft("message", "e"), draft("message", "f")]
    assert [(run.seq, run.kind, run.count) for run in packed(5, turn)] == [
        *[(5, "message", 1), (6, "note", 1), (7, "note", 1), (8, "message", 1), (9, "message", 2)]
    ]


@given(st.lists(st.text(max_size=300), min_size=2, max_size=MOST_LINES), st.data())
def test_damage_in_some_lines_leaves_the_others_as_they_were_also_in_parts(
    texts: list[str], data: st.DataObject
) -> None:
    """Bytes of the same length, as a disk damages them: whichever lines have some, these and no others show it."""
    turn = [draft("message", text) for text in texts]
    run, *more = packed(1, turn)
    lines = [bytearray(line) for line in run.body.split(b"\n")]
    hit = data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=1))
    for number in hit:
        place = data.draw(st.integers(0, len(lines[number]) - 1))
        lines[number][place] ^= 0x80 if lines[number][place] != 0x8A else 0x40  # an end of a line would part it in two
    damaged = (*row(run)[:3], b"\n".join(lines), *row(run)[4:])
    cut = data.draw(st.integers(1, run.count))
    halves = cut_row(damaged, [(1, cut), *([(cut + 1, run.count)] if cut < run.count else [])])
    assert halves is not None
    for found in (list(unpacked(damaged)), [entry for half in halves for entry in unpacked(row(half))]):
        assert {number for number, one in enumerate(found) if one[2] != checksum("message", one[3])} == hit
    assert more or run.count == len(turn)


RUN = packed(4, [draft("message", text) for text in "abc"])[0]


@pytest.mark.parametrize(
    "damage",
    [
        {"count": 2},
        {"count": 4},
        {"count": 1},
        {"count": 0},
        {"count": -7},
        {"count": 2**40},
        {"body": RUN.body.replace(b"a", b"x"), "checksums": None},
        {"body": RUN.body.replace(b"a", b"x"), "checksums": bytes(7)},
        {"body": RUN.body.replace(b"\n", b" ", 1)},
        {"body": RUN.body + b"\n"},
        {"body": b""},
    ],
)
def test_of_a_row_that_cannot_be_told_apart_nothing_is_believed(damage: dict[str, Any]) -> None:
    seq, at, check, body, kind, turn, count, checksums = row(RUN)
    damaged = (seq, at, check, damage.get("body", body), kind, turn)
    damaged += (damage.get("count", count), damage.get("checksums", checksums))
    found = list(unpacked(damaged))
    assert 1 <= len(found) <= MOST_LINES
    assert all(one[2] != checksum(kind, one[3]) for one in found)
    assert cut_row(damaged, [(4, 4), (5, 6)]) is None


# --- in a file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A session of three turns of three messages: seqs 1 to 9 in three rows."""
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        for turn in range(3):
            store.add_messages("a", [ChatMessage("user", f"{turn}-{number}") for number in range(3)])
    return tmp_path / "memory.db"


def opened(path: Path) -> MemoryStore:
    return everturn.open(f"sqlite:///{path}")


def sql(path: Path, statement: str) -> list[Any]:
    db = page_checksums.connect(str(path))
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def test_a_turn_is_a_row(path: Path) -> None:
    assert sql(path, "SELECT seq, turn, count FROM entries WHERE session > 0 ORDER BY id") == [
        (1, 1, 3),
        (4, 4, 3),
        (7, 7, 3),
    ]


@pytest.mark.parametrize(
    ("damage", "bad"),
    [
        ("body = replace(body, '1-1', '1-9')", {5}),
        ("body = replace(body, char(10), ' ')", {4, 5, 6}),
        ("body = replace(body, '}', '?')", {4, 5, 6}),
        ("count = 2", {4, 5}),
        ("count = 4", {4, 5, 6}),
        ("checksum = checksum + 1", {4, 5, 6}),
        ("turn = 5", {4, 5, 6}),
        ("created_at = created_at + 0.000001", {4, 5, 6}),
    ],
)
def test_damage_inside_a_row_is_loud_and_only_what_is_damaged_is_skipped(
    path: Path, damage: str, bad: set[int]
) -> None:
    sql(path, f"UPDATE entries SET {damage} WHERE seq = 4")
    with opened(path) as store:
        with pytest.raises(CorruptEntry) as caught:
            store.get_history("a")
        assert caught.value.seq == min(bad)
        with pytest.raises(CorruptEntry):
            store.state("a")
        left = [message.seq for message in store.get_history("a", on_corrupt="skip")]
        assert left == [seq for seq in range(1, 10) if seq not in bad and not (damage == "count = 2" and seq == 6)]
        assert {problem.seq for problem in store.verify("a").problems} >= bad


@pytest.mark.parametrize(
    "damage",
    ["checksums = NULL", "checksums = CAST(x'00000001' || substr(checksums, 5) AS BLOB)"],
)
def test_checksums_that_were_damaged_themselves_are_found_by_verify_and_hide_nothing(path: Path, damage: str) -> None:
    sql(path, f"UPDATE entries SET {damage} WHERE seq = 4")
    with opened(path) as store:
        assert [message.seq for message in store.get_history("a")] == list(range(1, 10))
        assert [entry.seq for entry in store.state("a").entries] == list(range(1, 10))
        (problem,) = store.verify("a").problems
        assert problem.seq == 4


def test_a_row_that_is_gone_is_noticed(path: Path) -> None:
    sql(path, "DELETE FROM entries WHERE seq = 4")
    with opened(path) as store:
        with pytest.raises(CorruptEntry) as caught:
            store.get_history("a")
        assert caught.value.seq == 4
        assert len(store.get_history("a", on_corrupt="skip")) == 6


@pytest.mark.parametrize("after", range(1, 10))
def test_a_head_may_stand_inside_a_row(path: Path, after: int) -> None:
    with opened(path) as store:
        store.replace("a", [ChatMessage("user", "new"), ChatMessage("user", "er")], after=after)
        wanted = [*range(1, after + 1), 10, 11]
        assert [message.seq for message in store.get_history("a")] == wanted
        assert [entry.seq for entry in store.state("a").entries] == wanted
        assert store.info("a").messages == len(wanted)
        fork = store.fork("a", "b")
        assert [message.seq for message in store.get_history("b")] == wanted
        assert store.verify().ok
        store.add_messages("b", [ChatMessage("user", "on")], expected_version=fork)
        assert [message.content for message in store.get_history("b")][-2:] == ["er", "on"]
    rows = "SELECT seq + count - 1 FROM entries WHERE session = 2 AND seq <= 9 ORDER BY seq DESC LIMIT 1"
    assert sql(path, rows) == [(after,)]


@pytest.mark.parametrize("after", range(1, 9))
def test_compact_takes_what_is_unreachable_inside_a_row_too(path: Path, after: int) -> None:
    with opened(path) as store:
        store.replace("a", [ChatMessage("user", "new")], after=after)
        for _ in range(10):  # so that undo cannot bring it back
            store.clear("a")
            store.undo("a")
        for number in range(11):
            store.replace("a", [ChatMessage("user", f"again {number}")], after=after)
        before = store.get_history("a")
        store.compact("a")
        assert store.get_history("a") == before
        assert store.verify().ok
        ((stored,),) = sql(path, "SELECT sum(count) FROM entries WHERE session > 0 AND seq <= 9")
        assert stored == after
        ((counted, recorded),) = sql(
            path, "SELECT sum(octet_length(body) - count + 1), (SELECT bytes FROM sessions) FROM entries"
        )
        assert counted == recorded


@pytest.mark.parametrize("limit", range(1, 10))
def test_limits_and_bounds_may_fall_inside_a_row(path: Path, limit: int) -> None:
    with opened(path) as store:
        assert [message.seq for message in store.get_history("a", limit=limit)] == list(range(10 - limit, 10))
        assert [message.seq for message in store.get_history("a", after=limit)] == list(range(limit + 1, 10))
        assert [message.seq for message in store.get_history("a", before=limit)] == list(range(1, limit))


def test_a_file_of_rows_for_each_message_and_one_of_rows_for_turns_are_the_same(path: Path) -> None:
    with opened(path) as store:
        packed_state = store.state("a")
        everturn.copy(store, other := opened(path.with_name("other.db")))
        assert other.state("a") == packed_state
        assert other.get_history("a") == store.get_history("a")
        other.close()
    assert sql(path.with_name("other.db"), "SELECT DISTINCT count FROM entries") == [(1,)]


# --- what a review found ---------------------------------------------------------------------------------------------


def test_many_messages_that_a_trim_kept_in_shared_rows_come_once(tmp_path: Path) -> None:
    roles = ("system", "user", "system", "user", "system")
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        for turn in range(70):
            store.add_messages("a", [ChatMessage(role, f"{turn}-{number}") for number, role in enumerate(roles)])
        store.add_messages("a", [ChatMessage("user", "last")])
        store.trim("a", max_messages=1)
        seqs = [message.seq or 0 for message in store.get_history("a")]
        assert seqs == sorted(set(seqs))
        assert len(seqs) == 211
        assert [message.seq for message in store.get_history("a", after=1)] == seqs[1:]
        assert [message.seq for message in store.get_history("a", limit=150)] == seqs[-150:]
        assert [entry.seq for entry in store.state("a").entries] == seqs
        store.fork("a", "b")
        assert [message.seq for message in store.get_history("b")] == seqs
        assert store.verify().ok


@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("bad", range(1, 7))
@pytest.mark.parametrize("how", ["fork", "compact"])
def test_what_is_damaged_stays_so_when_its_row_is_cut(tmp_path: Path, how: str, bad: int, after: int) -> None:
    path = tmp_path / "memory.db"
    with opened(path) as store:
        store.add_messages("a", [ChatMessage("user", f"text {number}") for number in range(1, 7)])
        store.replace("a", [], after=after)
        for number in range(11):
            store.replace("a", [ChatMessage("user", f"more {number}")], after=after)
        store.rollback_to_snapshot("a", store.save_snapshot("a"))
    sql(path, f"UPDATE entries SET body = replace(body, 'text {bad}', 'tExt {bad}') WHERE seq = 1")
    with opened(path) as store:
        if how == "compact":
            store.compact("a")
        else:
            store.fork("a", "b")
        name = "a" if how == "compact" else "b"
        if bad <= after:
            with pytest.raises(CorruptEntry) as caught:
                store.get_history(name)
            assert caught.value.seq == bad
            with pytest.raises(CorruptEntry):
                store.state(name)
            assert bad in {problem.seq for problem in store.verify(name).problems}
        left = [message.seq for message in store.get_history(name, on_corrupt="skip")]
        assert left[:-1] == [seq for seq in range(1, after + 1) if seq != bad]


@pytest.mark.parametrize("bounds", [{"after": seq} for seq in range(6)] + [{"before": seq} for seq in range(5, 10)])
def test_a_row_whose_kind_is_damaged_is_missed_wherever_a_read_begins(path: Path, bounds: dict[str, int]) -> None:
    sql(path, "UPDATE entries SET kind = 'messagf' WHERE seq = 4")
    with opened(path) as store, pytest.raises(CorruptEntry):
        store.get_history("a", **bounds)  # type: ignore[arg-type]  # bounds of it


def test_rows_that_overlap_are_noticed(path: Path) -> None:
    sql(path, "UPDATE entries SET id = id + 1 WHERE seq = 4")
    with opened(path) as store:
        for bounds in ({"after": 1}, {"before": 9}, {"limit": 8}):
            with pytest.raises(CorruptEntry):
                store.get_history("a", **bounds)  # type: ignore[arg-type]
        with pytest.raises(CorruptEntry):
            store.state("a")
        assert not store.verify("a").ok


def test_damage_beside_the_path_is_nothing_to_the_history(path: Path) -> None:
    with opened(path) as store:
        store.replace("a", [ChatMessage("user", f"{number}") for number in range(3)], after=3)
    sql(path, "UPDATE entries SET count = 8 WHERE seq = 7")  # seqs 4 to 9 were left
    with opened(path) as store:
        wanted = [1, 2, 3, 10, 11, 12]
        for limit in range(1, 7):
            assert [message.seq for message in store.get_history("a", limit=limit)] == wanted[-limit:]
        store.replace("a", [], after=3)
        assert [message.seq for message in store.get_history("a")] == [1, 2, 3]


@pytest.mark.parametrize("count", [0, -5, 9, 2**40])
def test_erase_takes_a_row_whatever_its_count_says(path: Path, count: int) -> None:
    sql(path, f"UPDATE entries SET count = {count} WHERE seq = 4")
    with opened(path) as store:
        assert not store.verify("a").ok
        receipt = store.erase("a")
    assert receipt.complete
    assert 0 < receipt.entries < 20
    assert sql(path, "SELECT count(*) FROM entries WHERE session > 0") == [(0,)]
