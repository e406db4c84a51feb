"""Erase: gone for good, from the file's own bytes too."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everturn import ErasureReceipt, Record, SessionNotFound, Summary, ToolCall
from tests.contract.places import Clock, File
from tests.contract.speech import in_another_process, say, say_each, user, words

MARKER = "PLANTED"


def test_an_erased_session_is_absent(store: Any) -> None:
    say(store, "a", "1")
    store.erase("a")
    assert store.get_history("a") == []
    assert store.sessions().sessions == ()
    with pytest.raises(SessionNotFound):
        store.info("a")


def test_the_receipt_says_what_was_removed(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.save_snapshot("a")
    stored = store.info("a").bytes
    assert store.erase("a") == ErasureReceipt("a", entries=3, snapshots=1, bytes=stored, complete=True)


def test_erase_counts_what_was_trimmed_cleared_and_rolled_back(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    store.replace("a", [user("x")], after=1)
    store.trim("a", max_messages=1)
    store.clear("a")
    assert store.erase("a").entries == 4


def test_erasing_an_absent_session_is_a_receipt_of_zeros(store: Any) -> None:
    assert store.erase("nobody") == ErasureReceipt("nobody", 0, 0, 0, complete=True)


def test_erase_touches_no_other_session(store: Any) -> None:
    for name in ("a", "ab", "A", "b"):
        say(store, name, name)
    store.erase("a")
    assert [words(store, name) for name in ("ab", "A", "b")] == [["ab"], ["A"], ["b"]]
    assert store.verify().ok


def test_a_session_of_the_same_name_is_a_new_life(store: Any) -> None:
    first = say(store, "a", "1")
    store.erase("a")
    second = say(store, "a", "2")
    assert second.life != first.life
    assert (second.version, second.seqs) == (1, (1,))


def test_a_fork_outlives_the_erasure_of_its_origin(store: Any) -> None:
    say(store, "a", "1")
    store.fork("a", "b")
    store.erase("a")
    assert words(store, "b") == ["1"]


def test_erase_removes_the_lives_that_expired_before(place: Any) -> None:
    store = place.open(ttl=10)
    clock = Clock()
    place.set_clock(store, clock)
    say_each(store, "a", "1", "2")
    clock.advance(11)
    say(store, "a", "3")
    assert store.erase("a").entries == 3


# --- raw bytes -----------------------------------------------------------------------------------------------------


def remnants(place: File, *markers: str) -> dict[str, int]:
    """How often each marker is found in the files' bytes, as another process reads them."""
    script = """
        from pathlib import Path
        path, *markers = argv
        files = [Path(path + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
        bytes = b"".join(file.read_bytes() for file in files if file.exists())
        for marker in markers:
            print(bytes.count(marker.encode()))
    """
    counts = in_another_process(script, place.path, *markers).split()
    return {marker: int(count) for marker, count in zip(markers, counts, strict=True) if count != "0"}


def test_the_search_for_remnants_finds_what_is_there(lasting: File) -> None:
    say(lasting.open(), "a", MARKER)
    assert remnants(lasting, MARKER) == {MARKER: 1}


def test_nothing_of_any_part_of_a_session_is_left_in_the_file(lasting: File) -> None:
    store = lasting.open()
    say(store, "bystander", "x" * 500)
    name = "NAME-OF-IT"
    store.append(
        name,
        [
            user("BODY", name="SPEAKER", metadata={"k": "METADATA"}),
            ToolCall("TOOLNAME", {"x": "ARGUMENT"}, result="RESULT"),
            Summary("SUMMARYTEXT", [1.0], (1, 1)),
            Record("RECORDKIND", {"x": "RECORDBODY"}),
        ],
        key="KEYTEXT",
    )
    snapshot = store.save_snapshot(name, "LABELTEXT")
    say(store, name, "LATER" * 1000)
    store.rollback_to_snapshot(name, snapshot)
    store.trim(name, max_messages=1)
    store.replace(name, [user("REPLACED")])
    store.clear(name)
    assert store.erase(name).complete
    markers = ["BODY", "SPEAKER", "METADATA", "TOOLNAME", "ARGUMENT", "RESULT", "SUMMARYTEXT", "RECORDKIND"]
    markers += ["RECORDBODY", "KEYTEXT", "LABELTEXT", "LATER", "REPLACED", name, snapshot.id]
    assert remnants(lasting, *markers) == {}
    assert words(store, "bystander") == ["x" * 500]


def test_eight_messages_that_split_a_page_leave_nothing_behind(file: File) -> None:
    """The smallest case found: a page split copies rows to a sibling, and the old copies are never overwritten."""
    store = file.open()
    for name, size in (
        ("a", 200),
        ("a", 900),
        ("b", 1500),
        ("a", 900),
        ("a", 200),
        ("b", 1500),
        ("a", 200),
        ("b", 900),
    ):
        text = MARKER if name == "a" else "harmless"
        say(store, name, (text * size)[:size])
    assert store.erase("a").complete
    assert remnants(file, MARKER) == {}


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_left_after_thousands_of_interleaved_entries(file: File, seed: int) -> None:
    chance = random.Random(seed)
    sessions = chance.choice([2, 5])
    sizes = [10, 50, 200, 900] + ([2000, 5000, 20000] if seed % 2 else [])
    store = file.open()
    for _ in range(2000):
        name = chance.randrange(sessions)
        text = MARKER if name == 0 else "harmless"
        size = chance.choice(sizes)
        say(store, f"session-{name}", (text * (size // 7 + 1))[:size])
        if chance.random() < 0.01:
            store.compact(f"session-{name}")
    others = {name: words(store, f"session-{name}") for name in range(1, sessions)}
    assert store.erase("session-0").complete
    assert remnants(file, MARKER) == {}
    assert {name: words(store, f"session-{name}") for name in others} == others
    assert store.verify().ok


def test_nothing_is_left_of_a_session_that_was_trimmed_and_compacted(file: File) -> None:
    store = file.open()
    for number in range(600):
        say(store, "a", MARKER * (number % 300))
        say(store, "b", "harmless" * (number % 200))
    store.trim("a", max_messages=1)
    for _ in range(11):
        store.replace("a", [user("x")])
    store.compact()
    store.erase("a")
    assert remnants(file, MARKER) == {}


def test_nothing_is_left_of_many_summaries_and_labels(file: File) -> None:
    store = file.open()
    for number in range(400):
        for name, text in (("a", MARKER), ("b", "harmless")):
            store.append(name, [Summary(text * (number % 40), [1.0] * 64, (0, 0)), Record(text[:60], text)])
            store.save_snapshot(name, text * 20)
    assert store.erase("a").complete
    assert remnants(file, MARKER) == {}


def test_nothing_is_left_of_the_names_of_many_sessions(file: File) -> None:
    store = file.open()
    names = [f"{number:04}-{'harmless' if number % 2 else MARKER}{'-' * (number % 200)}" for number in range(400)]
    random.Random(1).shuffle(names)
    for name in names:
        say(store, name, "x")
    for name in names:
        if MARKER in name:
            store.erase(name)
    assert remnants(file, MARKER) == {}


# --- readers that hold on ------------------------------------------------------------------------------------------


@contextmanager
def reader_of(path: Path) -> Iterator[None]:
    """Another process in the middle of a read transaction on the file."""
    script = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN")
db.execute("SELECT count(*) FROM entries").fetchall()
print("reading", flush=True)
sys.stdin.readline()
db.close()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        try:
            yield
        finally:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(timeout=30) == 0


def test_erase_is_incomplete_while_a_reader_needs_the_log(lasting: File) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with reader_of(lasting.path):
        receipt = store.erase("a")
        assert (receipt.entries, receipt.complete) == (1, False)
        assert store.get_history("a") == []
    assert remnants(lasting, MARKER) != {}  # which is why the receipt said so


def test_erasing_again_when_the_reader_has_gone_completes_it(lasting: File) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with reader_of(lasting.path):
        store.erase("a")
    assert store.erase("a").complete
    assert remnants(lasting, MARKER) == {}


def test_writers_go_on_while_an_erasure_is_incomplete(lasting: File) -> None:
    store = lasting.open()
    say(store, "a", MARKER)
    with reader_of(lasting.path):
        store.erase("a")
        say(store, "b", "1")
        assert words(store, "b") == ["1"]
