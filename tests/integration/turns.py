"""Turns that say who wrote them, a record of those that were acknowledged, and the check of a history against it."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import everturn
from everturn import ChatMessage, MemoryStore

SESSION = "the conversation"


def turn(writer: str, number: int) -> list[ChatMessage]:
    return [ChatMessage("user", f"{writer} {number} asks"), ChatMessage("assistant", f"{writer} {number} answers")]


def url(path: Path | str) -> str:
    return f"sqlite:///{path}"


class Acknowledged:
    """Writes down every acknowledged turn at once, so that a kill of the writer loses no record."""

    def __init__(self, folder: Path | str, writer: str) -> None:
        self._file = os.open(Path(folder) / f"{writer}.acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, number: int) -> None:
        os.write(self._file, b"%d\n" % number)

    def close(self) -> None:
        os.close(self._file)


def acknowledged(folder: Path) -> dict[str, list[int]]:
    """Read the turns acknowledged to each writer, in order."""
    return {
        file.stem: [int(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*.acknowledged"))
    }


def write(store: MemoryStore, folder: Path | str, writer: str, numbers: Iterable[int]) -> None:
    """Append turns one by one, and write down each when it is acknowledged."""
    record = Acknowledged(folder, writer)
    for number in numbers:
        store.add_messages(SESSION, turn(writer, number))
        record(number)
    record.close()


def write_turns(path: str, folder: str, writer: str, count: str) -> None:
    """A writer with a store of its own: the body of a process."""
    with everturn.open(url(path), timeout=50) as store:
        write(store, folder, writer, range(int(count)))


def check_turns(messages: Sequence[ChatMessage]) -> list[tuple[str, int]]:
    """The turns of a history, as (writer, number). Fails if one is torn, doubled or out of its writer's order."""
    assert len(messages) % 2 == 0, "a turn is torn"
    turns: list[tuple[str, int]] = []
    for asked, answered in zip(messages[::2], messages[1::2], strict=True):
        writer, number, _ = asked.text.rsplit(" ", 2)
        assert [asked.text, answered.text] == [message.text for message in turn(writer, int(number))], "a torn turn"
        turns.append((writer, int(number)))
    twice = [turn for turn, times in Counter(turns).items() if times > 1]
    assert not twice, f"doubled: {twice}"
    for writer, numbers in numbers_by_writer(turns).items():
        assert all(a < b for a, b in pairwise(numbers)), f"{writer} was reordered"
    seqs = [message.seq for message in messages]
    assert seqs == list(range(1, len(seqs) + 1)), "the seqs have gaps"
    return turns


def numbers_by_writer(turns: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for writer, number in turns:
        numbers[writer].append(number)
    return numbers


def check(messages: Sequence[ChatMessage], record: Mapping[str, list[int]], *, killed: Iterable[str] = ()) -> None:
    """Every acknowledged turn is there once and whole, and no other; a killed writer may have one more, its last."""
    found = numbers_by_writer(check_turns(messages))
    assert set(found) <= set(record), "a turn of nobody's"
    for writer, numbers in record.items():
        lost = set(numbers) - set(found.get(writer, []))
        assert not lost, f"{writer}: acknowledged, and lost: {sorted(lost)}"
        more = [number for number in found.get(writer, []) if number not in set(numbers)]
        allowed = [[], [max(numbers, default=-1) + 1]] if writer in set(killed) else [[]]
        assert more in allowed, f"{writer}: never acknowledged, and there: {more}"


def check_file(path: Path, folder: Path, *, killed: Iterable[str] = ()) -> None:
    """Check a file with a store of its own; and that the file is sound."""
    with everturn.open(url(path)) as store:
        check(store.get_history(SESSION), acknowledged(folder), killed=killed)
        report = store.verify()
        assert report.ok, report.problems
