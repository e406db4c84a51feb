"""Decodes rows of messages a batch at a time: most of the time of a read is spent here. (One entry: codec.decode.)

Pure: no IO. A backend hands its rows over in the shape that it has them in: tuples, Columns, Runs or Unbroken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice, repeat
from typing import Any, Literal, TypeAlias, cast
from zlib import adler32

import msgspec

from everturn.core.codec import MessageRow, decode
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry
from everturn.model import MESSAGE, ChatMessage

BATCH = 64  # rows decoded at a time: what fits the processor's cache decodes a third faster than 1,000 at once
OnCorrupt: TypeAlias = Literal["raise", "skip"]

_set = msgspec.structs.force_setattr
_decode_lines = msgspec.json.Decoder(ChatMessage).decode_lines


class Columns(Sequence[MessageRow]):
    """Rows of messages as columns. A batch is decoded column by column; single rows are looked at where one is bad."""

    def __init__(
        self, seqs: Sequence[int], times: Sequence[float], checksums: Sequence[int], bodies: Sequence[bytes]
    ) -> None:
        self.seqs = seqs
        self.times = times
        self.checksums = checksums
        self.bodies = bodies

    @classmethod
    def of(cls, rows: Sequence[MessageRow]) -> Columns:
        """Turn rows into columns. There is at least one row."""
        if isinstance(rows, cls):
            return rows
        seqs, times, checksums, bodies = zip(*rows, strict=True)
        return cls(seqs, times, checksums, bodies)

    def __len__(self) -> int:
        return len(self.seqs)

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]

    def __iter__(self) -> Iterator[MessageRow]:
        return zip(self.seqs, self.times, self.checksums, self.bodies, strict=True)


class Runs(Sequence[MessageRow]):
    """Messages that share stored rows, one line each. Seqs and times are per message, checksums and bodies per row.

    `entries()` gives them one by one, each with a checksum of its own.
    """

    def __init__(
        self,
        seqs: Sequence[int],
        times: Iterable[float],
        checksums: Sequence[int],
        bodies: Sequence[bytes],
        entries: Callable[[], Sequence[MessageRow]],
    ) -> None:
        self.seqs = seqs
        self.times = times
        self.checksums = checksums
        self.bodies = bodies
        self.entries = entries

    def __len__(self) -> int:
        return len(self.seqs)

    def __getitem__(self, index: Any) -> Any:
        return self.entries()[index]

    def __iter__(self) -> Iterator[MessageRow]:
        return iter(self.entries())


class Unbroken(Sequence[MessageRow]):
    """Rows of every message from seq `first` to seq `last`, several to a row: count, created_at, checksum, body, id.

    The id of a row is `base` and the seq of its first message.

    MessageReader decodes them by `decode_unbroken`, without looking at single messages: a load of a plain history is a
    third faster for it. To any other reader it looks empty, and the backend then sends plain rows.
    """

    def __init__(self, first: int, last: int, base: int, rows: Iterator[tuple[int, float, int, bytes, int]]) -> None:
        self.first = first
        self.last = last
        self.base = base
        self.rows = rows

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: Any) -> Any:
        return ()[index]


def decode_unbroken(unbroken: Unbroken) -> list[ChatMessage] | None:
    """Decode all of the messages. None if one of them is damaged, missing, or not in its place."""
    messages: list[ChatMessage] = []
    while batch := list(islice(unbroken.rows, BATCH)):
        counts, times, checksums, bodies, ids = zip(*batch, strict=True)
        *wanted, _ = accumulate(counts, initial=unbroken.base + unbroken.first + len(messages))
        if tuple(map(adler32, bodies)) != checksums or ids != tuple(wanted):
            return None
        found = _decoded(bodies)
        if found is None or len(found) != sum(counts):
            return None
        deque(map(_set, found, repeat("created_at"), chain.from_iterable(map(repeat, times, counts))), 0)
        messages += found
    if len(messages) != unbroken.last - unbroken.first + 1:
        return None
    deque(map(_set, messages, repeat("seq"), range(unbroken.first, unbroken.last + 1)), 0)
    return messages


class MessageReader:
    """Turns rows of messages into ChatMessages, a batch at a time, in order."""

    def __init__(self, session_id: str, on_corrupt: OnCorrupt = "raise") -> None:
        self._session_id = session_id
        self._skip = on_corrupt == "skip"
        self.messages: list[ChatMessage] = []

    def take(self, rows: Sequence[MessageRow]) -> bool:
        """Decode a batch. Raises CorruptEntry at the first bad row, unless told to skip.

        Returns False for an Unbroken with a damaged or missing message. Then nothing of it was taken, and the backend
        hands the same messages over one by one, so that the bad one is found.
        """
        if isinstance(rows, Unbroken):
            unbroken = decode_unbroken(rows)
            self.messages += unbroken or ()
            return unbroken is not None
        # One call for the batch, where all is well with it: half the time of a call for each.
        batch = rows if isinstance(rows, Runs) else Columns.of(rows)
        messages: list[ChatMessage] = []
        if tuple(map(adler32, batch.bodies)) == tuple(batch.checksums):
            messages = _decoded(batch.bodies) or []
        if len(messages) == len(batch.seqs):
            deque(map(_set, messages, repeat("seq"), batch.seqs), 0)
            deque(map(_set, messages, repeat("created_at"), batch.times), 0)
            self.messages += messages
            return True
        for row in batch:
            try:
                message = decode(self._session_id, MESSAGE, *row)
            except CorruptEntry:
                if not self._skip:
                    raise
            else:
                self.messages.append(cast("ChatMessage", message))
        return True


def _decoded(bodies: Iterable[bytes]) -> list[ChatMessage] | None:
    """Decode the messages in these lines. None if one is damaged or has an unknown field: then decode one by one."""
    try:
        return _decode_lines(b"\n".join(bodies))
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        if is_interruption(exc):
            raise
        return None
