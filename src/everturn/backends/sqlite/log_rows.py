"""Fetches the rows of ranges of the log: ranges that lie close together by one statement, and no rows between them.

visible_ranges.py finds the ranges, reads.py hands the entries over. In a batch, every entry is one that was asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, islice, pairwise
from typing import Any, TypeAlias, TypeVar

import msgspec

from everturn.backend import Take
from everturn.backends.sqlite import statements
from everturn.backends.sqlite.packed_rows import MOST_LINES, earliest_start, repeated, seqs_of, unpacked
from everturn.backends.sqlite.visible_ranges import LogView, VisibleRanges, newest_ranges
from everturn.core.codec import EntryRow, MessageRow, checksum
from everturn.core.message_batches import BATCH, Runs
from everturn.core.paths import Range, size
from everturn.model import MESSAGE

SQL = statements.load("log_rows.sql")
MESSAGE_ROWS, TURN_ROWS, WHOLE_ROWS = SQL["message_rows"], SQL["message_rows_with_turns"], SQL["whole_rows"]
CLOSE = 32  # seqs between two ranges of one stretch: to pass over so many rows takes as long as another statement
GROWTH = 8  # a window is at most so many times longer than the messages that are still wanted


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """A part of the log that one statement reads, from `first` to `last`. The first row may begin at `start` already.

    `wanted` has a byte for each seq from `first` on, 1 if the seq is wanted; None: all are.
    """

    start: int
    first: int
    last: int
    wanted: bytes | None = None

    def bindings(self, base: int) -> tuple[int, int, int, bytes | None, int]:
        """Make the parameters of a statement: first and last id to look at, first id wanted, `wanted`, `base`."""
        return base + self.start, base + self.last, base + self.first, self.wanted, base

    def wants(self, seq: int) -> bool:
        return self.first <= seq <= self.last and (self.wanted is None or self.wanted[seq - self.first] == 1)

    def lines(self, firsts: Sequence[int], counts: Sequence[int]) -> bytes:
        """Tell which lines of rows are wanted: a byte for each line, 1 if it is.

        Given the first seq of each row and the number of its lines.
        """
        total = sum(counts)
        if not 0 <= total <= MOST_LINES * len(counts):  # a damaged number, which must not fill the memory
            return b"\1" * len(counts)
        before, beyond = self.first - firsts[0], firsts[-1] + counts[-1] - 1 - self.last
        if self.wanted is None and before <= 0 and beyond <= 0:
            return b"\1" * total
        before, beyond = max(0, before), max(0, beyond)
        if self.wanted is None:
            return (b"\0" * before + b"\1" * (total - before - beyond) + b"\0" * beyond)[:total]
        wanted, start = b"\0" * before + self.wanted, self.first - before
        if firsts[-1] + counts[-1] - firsts[0] == total:  # the rows follow each other
            found = wanted[firsts[0] - start : firsts[0] - start + total]
            return found + b"\0" * (total - len(found))
        found = b"".join([wanted[at - start : at - start + count] for at, count in zip(firsts, counts, strict=True)])
        return found + b"\0" * (total - len(found))


Piece: TypeAlias = tuple[Stretch, list[Any]]  # a stretch, and rows of it


def stretches(visible: VisibleRanges, walked: Sequence[Range]) -> list[Stretch]:
    """Divide ranges into stretches, in order. A range of the path joins the one before it if it is close to it."""
    path = visible.path
    ends = [at for at, (before, part) in enumerate(pairwise(path), 1) if part[0] - before[1] > CLOSE]
    found = [_stretch_of(path[begin:end]) for begin, end in pairwise([0, *ends, len(path)])] if path else []
    if found and found[0].first != visible.start:
        found[0] = msgspec.structs.replace(found[0], start=visible.start)
    if not visible.kept:
        return found
    return [Stretch(earliest_start(seq, walked), seq, seq) for seq, _ in visible.kept] + found


def _stretch_of(ranges: Sequence[Range]) -> Stretch:
    start, end = ranges[0][0], ranges[-1][1]
    if len(ranges) == 1:
        return Stretch(start, start, end)
    wanted = bytearray(end - start + 1)
    for first, last in ranges:
        if first == last:
            wanted[first - start] = 1
        else:
            wanted[first - start : last - start + 1] = b"\1" * (last - first + 1)
    return Stretch(start, start, end, bytes(wanted))


def pieces(view: LogView, visible: VisibleRanges, sql: str) -> Iterator[list[Piece]]:
    """Yield the rows of ranges in order, some at a time: as many as are decoded at a time.

    It keeps none of them: memory that has just been freed is still in the processor's cache for the next ones.
    """
    found: list[Piece] = []
    count = 0
    for stretch in stretches(visible, view.walk.walked if visible.kept else ()):
        cursor = view.db.execute(sql, stretch.bindings(view.base))
        size_of_last = BATCH
        while size_of_last == BATCH:
            found.append((stretch, list(islice(cursor, BATCH))))
            size_of_last = len(found[-1][1])
            count += size_of_last
            if count >= BATCH:
                yield found
                found, count = [], 0
    if count:
        yield found


class MessageBatch:
    """Messages of some rows, still encoded. Entries of other kinds among them are checked and set aside."""

    __slots__ = ("_columns", "_lines", "_message_seqs", "bad", "seqs")

    def __init__(self, some: Sequence[Piece]) -> None:
        parts = [(stretch, tuple(zip(*rows, strict=True))) for stretch, rows in some if rows]
        lines = [stretch.lines(part[0], part[4]) for stretch, part in parts]
        self._columns: Sequence[Any] = parts[0][1] if len(parts) == 1 else _joined([part for _, part in parts])
        self._lines = lines[0] if len(lines) == 1 else b"".join(lines)
        self.seqs = self._message_seqs = self._wanted_seqs()
        self.bad = 0  # the seq of an entry of another kind that does not match its checksum
        kinds = self._columns[5]
        if kinds.count(None) != len(kinds):
            self._set_aside_others()

    def _wanted_seqs(self) -> Sequence[int]:
        firsts, counts = self._columns[0], self._columns[4]
        seqs = seqs_of(firsts, counts) if firsts else ()
        return [*compress(seqs, self._lines)] if 0 in self._lines else seqs

    @property
    def messages(self) -> int:
        return len(self._message_seqs)

    def _set_aside_others(self) -> None:
        firsts, _, checksums, bodies, counts, kinds = self._columns[:6]
        for at, kind in enumerate(kinds):
            if kind is not None and checksum(kind, bodies[at]) != checksums[at]:
                self.bad = self.bad or firsts[at] + counts[at] - 1  # it may be several messages, and no other entry
        are_messages = [kind is None for kind in kinds]
        self._lines = bytes(compress(self._lines, repeated(are_messages, counts)))
        self._columns = [tuple(compress(column, are_messages)) for column in self._columns]
        self._message_seqs = self._wanted_seqs()

    @property
    def turns(self) -> Iterable[int]:
        """The first seq of the turn of each message, of rows that were read with their turns."""
        of_lines = repeated(self._columns[6], self._columns[4])
        return compress(of_lines, self._lines) if 0 in self._lines else of_lines

    def drop_oldest(self, messages: int) -> None:
        """Drop so many messages, not all of them, and the entries before those that stay."""
        start = self._message_seqs[messages]
        if self.seqs[0] == start:
            return
        self._message_seqs = self._message_seqs[messages:]
        self._lines = self._lines.replace(b"\1", b"\0", messages)
        self.seqs = self.seqs[bisect_left(self.seqs, start) :]
        if self.bad < start:
            self.bad = 0

    def hand_over(self, view: LogView, take: Take) -> None:
        """Hand the messages to `take`, by whole rows where it can."""
        seqs, lines = self._message_seqs, self._lines
        if not seqs:
            return
        _, times, checksums, bodies, counts = self._columns[:5]
        if not lines[0]:  # leave out rows at the beginning of which nothing is wanted
            unwanted, skip = lines.index(1), 0
            while counts[skip] <= unwanted:
                unwanted -= counts[skip]
                lines = lines[counts[skip] :]
                skip += 1
            times, checksums, bodies, counts = times[skip:], checksums[skip:], bodies[skip:], counts[skip:]
        of_lines = repeated(times, counts)
        wanted = lines if 0 in lines else None
        of_messages = of_lines if wanted is None else compress(of_lines, wanted)
        take(Runs(seqs, of_messages, checksums, bodies, wanted, lambda: one_by_one(view, seqs)))


_NO_ROWS: tuple[tuple[Any, ...], ...] = ((),) * 7


def _joined(parts: Sequence[Any]) -> Sequence[Any]:
    return [tuple(chain.from_iterable(column)) for column in zip(*parts, strict=True)] or _NO_ROWS


class EntryBatch:
    """Entries of some rows, of every kind, one by one, with all that is known of each."""

    __slots__ = ("bad", "entries")

    def __init__(self, some: Sequence[Piece]) -> None:
        found = ((stretch, entry) for stretch, rows in some for row in rows for entry in unpacked(row))
        self.entries: list[EntryRow] = [entry for stretch, entry in found if stretch.wants(entry[0])]
        self.bad = 0  # whoever takes the entries compares their checksums

    @property
    def seqs(self) -> Sequence[int]:
        return [entry[0] for entry in self.entries]

    @property
    def messages(self) -> int:
        return sum(entry[4] == MESSAGE for entry in self.entries)

    def drop_oldest(self, messages: int) -> None:
        """Drop so many messages, not all of them, and the entries before those that stay."""
        start = [entry[0] for entry in self.entries if entry[4] == MESSAGE][messages]
        self.entries = [entry for entry in self.entries if entry[0] >= start]


Batch = TypeVar("Batch", MessageBatch, EntryBatch)


def latest(
    view: LogView, limit: int, sql: str, batch_of: Callable[[Sequence[Piece]], Batch]
) -> tuple[list[Batch], VisibleRanges, bool]:
    """Fetch the latest `limit` messages and what lies between them, in windows from the newest seq back.

    Returns them, the ranges that they must fill, and whether there are older ones. Where only the log can tell that, it
    fetches one message more. A window is as long as will do if it has as many messages as those before it had.
    """
    batches: list[Batch] = []
    must = VisibleRanges([], [])
    enough = missing = wanted = limit if view.is_whole and view.state.messages > limit else limit + 1
    while True:
        window = newest_ranges(view, wanted)
        must = must.after(window)
        found = [batch_of(some) for some in pieces(view, window, sql)]
        batches = found + batches
        missing -= sum([batch.messages for batch in found])
        if missing <= 0 or size(window.all) < wanted:
            break
        view = msgspec.structs.replace(view, last=window.all[0][0] - 1)
        seen = size(must.all)
        wanted = min(GROWTH, seen // max(1, limit + 1 - missing) + 1) * missing
    if missing > 0:
        return batches, must, False
    too_many = enough - missing - limit
    while batches[0].messages <= too_many:
        too_many -= batches.pop(0).messages
    batches[0].drop_oldest(too_many)
    return batches, must.since(batches[0].seqs[0]), True


def one_by_one(view: LogView, seqs: Sequence[int]) -> list[MessageRow]:
    """Fetch messages with a checksum each, to find the damaged ones."""
    wanted = set(seqs)
    rows = view.db.execute(
        WHOLE_ROWS, Stretch(earliest_start(seqs[0], view.walk.walked), seqs[0], seqs[-1]).bindings(view.base)
    )
    entries = (entry for row in rows for entry in unpacked(row))
    return [entry[:4] for entry in entries if entry[4] == MESSAGE and entry[0] in wanted]
