"""Decodes rows of messages a batch at a time: most of the time of a read is spent here. (One entry: codec.decode.)

Pure: no IO. A backend hands its rows over in the shape that it has them in: tuples, Columns or Runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
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

    wanted: bytes | None = None  # as Runs has it

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

    `wanted` has a byte for each line, 1 if it is one of the messages; None: all are. `entries()` gives the messages one
    by one, each with a checksum of its own.
    """

    def __init__(
        self,
        seqs: Sequence[int],
        times: Iterable[float],
        checksums: Sequence[int],
        bodies: Sequence[bytes],
        wanted: bytes | None,
        entries: Callable[[], Sequence[MessageRow]],
    ) -> None:
        self.seqs = seqs
        self.times = times
        self.checksums = checksums
        self.bodies = bodies
        self.wanted = wanted
        self.entries = entries

    def __len__(self) -> int:
        return len(self.seqs)

    def __getitem__(self, index: Any) -> Any:
        return self.entries()[index]

    def __iter__(self) -> Iterator[MessageRow]:
        return iter(self.entries())


class MessageReader:
    """Turns rows of messages into ChatMessages, a batch at a time, in order."""

    def __init__(self, session_id: str, on_corrupt: OnCorrupt = "raise") -> None:
        self._session_id = session_id
        self._skip = on_corrupt == "skip"
        self.messages: list[ChatMessage] = []
        self.first_skipped = 0  # the seq of the first bad row that was skipped

    def take(self, rows: Sequence[MessageRow]) -> None:
        """Decode a batch. Raises CorruptEntry at the first bad row, unless told to skip."""
        # One call for the batch, where all is well with it: half the time of a call for each.
        batch = rows if type(rows) is Runs or type(rows) is Columns else Columns.of(rows)
        messages: list[ChatMessage] = []
        if tuple(map(adler32, batch.bodies)) == tuple(batch.checksums):
            messages = _decoded(batch.bodies, batch.wanted) or []
        if len(messages) == len(batch.seqs):
            deque(map(_set, messages, repeat("seq"), batch.seqs), 0)
            deque(map(_set, messages, repeat("created_at"), batch.times), 0)
            self.messages += messages
            return
        for row in batch:
            try:
                message = decode(self._session_id, MESSAGE, *row)
            except CorruptEntry:
                if not self._skip:
                    raise
                self.first_skipped = self.first_skipped or row[0]
            else:
                self.messages.append(cast("ChatMessage", message))


def _decoded(bodies: Iterable[bytes], wanted: bytes | None) -> list[ChatMessage] | None:
    """Decode the wanted messages in these lines. None if a line is damaged or has an unknown field: then decode one by
    one."""
    try:
        messages = _decode_lines(b"\n".join(bodies))
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        if is_interruption(exc):
            raise
        return None
    if wanted is None:
        return messages
    # Left out only now: to decode a line takes less time than to tell it from the others.
    return [*compress(messages, wanted)] if len(messages) == len(wanted) else None
