"""Pages of a history, read from the newest message backwards: for trim, fold and context, which want the newest turns.

All pages are of one state: later ones are read at the version of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everturn.backend import At, Query, Reading, Status
from everturn.core import codec
from everturn.core.codec import EntryRow
from everturn.core.message_batches import MessageReader
from everturn.model import MESSAGE, SUMMARY, ChatMessage, Summary
from everturn.store.outcomes import no_snapshot, no_version
from everturn.store.retries import RetryingSender

FIRST_PAGE = 1000  # messages: most sessions are read with one request
LARGEST_PAGE = 10_000
PAGE_BYTES = 8 * 2**20


class PagedReads(RetryingSender):
    """Reads pages."""

    async def _page(self, query: Query, deadline: float) -> MessagePage:
        """Read one page. Raises CorruptEntry if an entry is missing. (An absent state: refuse_absent_state.)"""

        async def send(_retry: object, by: float) -> MessagePage:
            reader = MessageReader(query.session_id) if query.kind else TurnReader(query.session_id)
            reading = await self.backend.read(query, reader.take, by)
            if isinstance(reader, MessageReader):
                return MessagePage(query, reading, reader.messages, reading.turns if query.front else None, [])
            return MessagePage(query, reading, reader.messages, reader.turns, reader.summaries)

        page = await self.send_with_retries(send, deadline)
        if page.reading.first_missing:
            raise codec.missing(query.session_id, page.reading.first_missing)
        return page

    async def _latest_page(
        self, session_id: str, at: At, size: int, deadline: float
    ) -> tuple[MessagePage, list[ChatMessage]]:
        """Read the latest messages, and those at the front of the history that came in the same answer."""
        query = Query(session_id, MESSAGE, at, limit=size, front=True)
        page = await self._page(query, deadline)
        if not page.reading.cut:
            return page, []
        start, turns = len(page.messages) - size, page.turns or ()
        latest = MessagePage(query, page.reading, page.messages[start:], turns[start:], [])
        return latest, page.messages[:start]


def refuse_absent_state(query: Query, reading: Reading) -> None:
    """Raise the error for a snapshot or version that the session does not have. An absent session is no error."""
    if reading.status is Status.NO_SNAPSHOT or (reading.session is None and isinstance(query.at, str)):
        raise no_snapshot(query.session_id, str(query.at))
    if reading.status is Status.NO_VERSION or (reading.session is None and query.at):
        raise no_version(query.session_id, query.at)


class TurnReader:
    """Decodes the messages and summaries among rows of all kinds. `turns` has the first seq of each message's turn."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._reader = MessageReader(session_id)
        self.turns: list[int] = []
        self.summaries: list[Summary] = []

    @property
    def messages(self) -> list[ChatMessage]:
        return self._reader.messages

    def take(self, rows: Sequence[EntryRow]) -> None:
        """Decode a batch. Raises CorruptEntry at the first bad row, of whichever kind."""
        for row in rows:
            if row[4] == MESSAGE:
                continue
            if row[4] == SUMMARY or codec.checksum(row[4], row[3]) != row[2]:
                entry = codec.decode(self._session_id, row[4], *row[:4])  # raises, if it is damaged
                if isinstance(entry, Summary):
                    self.summaries.append(entry)
        messages = [row for row in rows if row[4] == MESSAGE]
        if messages:
            self._reader.take([row[:4] for row in messages])
            self.turns += [row[5] for row in messages]


class MessagePage(msgspec.Struct, frozen=True):
    """Some messages of a state, in order, and their turns and the summaries among them, if these were read."""

    query: Query
    reading: Reading
    messages: list[ChatMessage]
    turns: Sequence[int] | None
    summaries: list[Summary]

    @property
    def has_more(self) -> bool:
        """Whether there may be older ones."""
        return self.reading.cut or self.query.after > 0

    def next_query(self, session_id: str, kind: str | None, at: At, size: int | None = None) -> Query:
        """Make the query for the next older page: by seqs, which is fastest, or by count if few seqs are visible."""
        low = self.query.after + 1 if self.query.after else self.messages[0].seq or 1
        high = (self.messages[-1].seq or 0) if self.messages else low
        size = size or self._size_of_next()
        hidden = max(self.reading.state.cleared, self.reading.state.floor)
        if low - size > hidden and 2 * len(self.messages) > high - low:
            return Query(session_id, kind, at, after=low - size - 1, before=low)
        return Query(session_id, kind, at, before=low, limit=size)

    def _size_of_next(self) -> int:
        """Estimate how many messages fill a page, from the length of a few of these."""
        some = self.messages[:: max(1, len(self.messages) // 20)]
        length = sum(len(message.text) for message in some) / max(1, len(some))
        return max(FIRST_PAGE // 10, min(LARGEST_PAGE, int(PAGE_BYTES / (length + 200))))
