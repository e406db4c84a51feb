"""The methods that read. Each is one request, and its result is of one moment. (`diff` is two requests.)

An absent session reads as empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar, cast

from everturn import events
from everturn.backend import Order, Query, Reading, Where
from everturn.core import codec, prompts, text_search, tool_calls, vectors
from everturn.core.codec import EntryRow
from everturn.core.message_batches import MessageReader, OnCorrupt
from everturn.core.paths import State
from everturn.core.validation import shown
from everturn.errors import InvalidInput
from everturn.model import (
    MESSAGE,
    SUMMARY,
    TOOL_CALL,
    Change,
    ChatMessage,
    Diff,
    Entry,
    Hit,
    Match,
    Page,
    SessionInfo,
    SessionState,
    Snapshot,
    Summary,
    ToolCall,
)
from everturn.store.arguments import LONGEST_ID, checked_at, checked_bound, checked_count, checked_id, checked_search
from everturn.store.entry_reader import EntryReader
from everturn.store.facts import where_argument
from everturn.store.healed_prompts import healed
from everturn.store.outcomes import no_session
from everturn.store.pages import refuse_absent_state
from everturn.store.retries import RetryingSender

Reader = TypeVar("Reader", MessageReader, EntryReader, "EmbeddingReader")
LONGEST_TEXT = 1000
LARGEST_PAGE = 1000


class EmbeddingReader:
    """Decodes the embeddings of summaries, and a whole summary only on demand."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self.rows: list[codec.MessageRow] = []
        self._found: list[tuple[bytes | None, int]] = []

    def take(self, rows: Sequence[codec.MessageRow]) -> None:
        """Decode the embeddings of a batch. Raises CorruptEntry at the first bad row."""
        self.rows += rows
        self._found += (codec.embedding_of(self._session_id, seq, check, body) for seq, _, check, body in rows)

    def in_view(self, state: State) -> tuple[list[bytes], list[int]]:
        """Return the embeddings that the state shows, and the index of each one's row."""
        shown = [
            (embedding, index)
            for index, (embedding, hides) in enumerate(self._found)
            if embedding is not None and hides <= state.floor
        ]
        return [embedding for embedding, _ in shown], [index for _, index in shown]

    def summary(self, index: int) -> Summary:
        """Decode the summary of one row."""
        summary = codec.decode(self._session_id, SUMMARY, *self.rows[index])
        return cast("Summary", summary)


class ReadOperations(RetryingSender):
    """The methods that read. They change nothing, not even a TTL. A fault is an error, never an empty answer."""

    async def get_history(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        at: Snapshot | str | int | None = None,
        heal: bool = False,
        on_corrupt: OnCorrupt = "raise",
    ) -> list[ChatMessage]:
        """Return the messages of the history, in order, each with its `seq`.

        `limit`: at most the n latest, and never beginning with a tool result whose call is cut off. `before` and
        `after`: seqs, both excluded. `at`: a snapshot or a version. `heal`: make it a prompt that models
        accept (core/healing.py). Raises CorruptEntry at a damaged or missing entry, unless `on_corrupt="skip"`.
        """
        if on_corrupt not in ("raise", "skip"):
            raise InvalidInput(f"is 'raise' or 'skip', not {shown(on_corrupt)}", path="on_corrupt")
        limit, before = checked_bound(limit, "limit"), checked_bound(before, "before")
        query = Query(
            *(checked_id(session_id), MESSAGE, checked_at(at), checked_bound(after, "after") or 0, before, limit),
            skip=on_corrupt == "skip",
        )
        reading, reader = await self._read(query, lambda: MessageReader(session_id, on_corrupt))
        messages = reader.messages
        if on_corrupt == "raise":
            _refuse_gaps(reading, query, len(messages))
        else:
            self._tell_skipped(session_id, reader.first_skipped or reading.first_missing)
            messages = tool_calls.in_order(messages)
        if limit is not None and reading.cut:
            messages = tool_calls.without_orphans(messages)
        return healed(messages, self.source) if heal else messages

    def _tell_skipped(self, session_id: str, seq: int | None) -> None:
        if seq:
            told: dict[str, Any] = {"session_id": session_id, "seq": seq, "reason": "skipped, as the caller asked for"}
            events.tell(events.CORRUPT_ENTRY, self.source, operation="get_history", **told)

    async def load_memory(self, session_id: str) -> list[dict[str, str]]:
        """Return the history as pairs of strings: the human's words and the AI's answer ("" if there is none yet)."""
        return tool_calls.pairs(await self.get_history(session_id))

    async def get_tool_calls(self, session_id: str) -> list[ToolCall]:
        """Return the records of tool calls in the history, in order."""
        query = Query(checked_id(session_id), TOOL_CALL)
        reading, reader = await self._read(query, lambda: EntryReader(session_id, TOOL_CALL))
        _refuse_gaps(reading, query)
        return [entry for entry in reader.entries if isinstance(entry, ToolCall)]

    async def get_summaries(self, session_id: str) -> list[Summary]:
        """Return the summaries in the history, in order; a trim does not hide them.

        One that a fold wrote is there until undo takes the fold back.
        """
        query = Query(checked_id(session_id), SUMMARY)
        reading, reader = await self._read(query, lambda: EntryReader(session_id, SUMMARY))
        _refuse_gaps(reading, query)
        return [entry for entry in _in_view(reader.entries, reading) if isinstance(entry, Summary)]

    async def search_summaries(self, session_id: str, embedding: Collection[float], *, k: int = 5) -> list[Hit]:
        """Return the `k` summaries of this session most like the embedding: exact cosine similarity, ties by seq.

        Raises InvalidInput if the embedding's length is not the session's.
        """
        k = checked_count(k, "k")
        wanted = codec.float32(embedding, "embedding")
        query = Query(checked_id(session_id), SUMMARY)
        reading, reader = await self._read(query, lambda: EmbeddingReader(session_id))
        _refuse_gaps(reading, query)
        embeddings, indexes = reader.in_view(reading.state)
        if not embeddings:
            return []
        if len(wanted) != len(embeddings[0]):
            lengths = len(wanted) // 4, len(embeddings[0]) // 4
            raise InvalidInput(
                f"has {lengths[0]} numbers, but those of session {session_id!r} have {lengths[1]}",
                path="embedding",
            )
        best = await self.runtime.offload(lambda: vectors.nearest(wanted, embeddings, k))
        return [Hit(score, reader.summary(indexes[place])) for score, place in best]

    async def list_snapshots(self, session_id: str) -> list[Snapshot]:
        """Return the session's snapshots, in the order they were taken."""
        query = Query(checked_id(session_id), limit=0, snapshots=True)
        reading, _ = await self._read(query, lambda: EntryReader(session_id))
        return list(reading.snapshots)

    async def diff(
        self, session_id: str, a: Snapshot | str | int | None, b: Snapshot | str | int | None = None
    ) -> Diff:
        """Compare two states: the entries that `b` (None: now) shows and `a` does not, and the other way round."""
        deadline = self.runtime.clock() + self.settings.timeout  # of both requests together
        first = {entry.seq: entry for entry in await self._entries(session_id, a, deadline)}
        second = {entry.seq: entry for entry in await self._entries(session_id, b, deadline)}
        return Diff(
            session_id,
            tuple(entry for seq, entry in second.items() if seq not in first),
            tuple(entry for seq, entry in first.items() if seq not in second),
        )

    async def _entries(self, session_id: str, at: Snapshot | str | int | None, deadline: float) -> list[Entry]:
        query = Query(checked_id(session_id), at=checked_at(at))
        reading, reader = await self._read(query, lambda: EntryReader(session_id), deadline)
        _refuse_gaps(reading, query, reader.messages)
        return _in_view(reader.entries, reading)

    async def state(
        self,
        session_id: str,
        *,
        at: Snapshot | str | int | None = None,
        kind: str | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> SessionState:
        """Return everything about the session that can be compared, now or as it was `at` a snapshot or version.

        `kind`, `after` and `before` (seqs, both excluded) narrow down the entries: an adapter reads the records that it
        wrote last without reading all.
        """
        query = Query(
            checked_id(session_id),
            None if kind is None else checked_search(kind, "kind", codec.MAX_ROLE),
            checked_at(at),
            checked_bound(after, "after") or 0,
            checked_bound(before, "before"),
            snapshots=True,
        )
        reading, reader = await self._read(query, lambda: EntryReader(session_id, kind))
        _refuse_gaps(reading, query, reader.messages if kind in (None, MESSAGE) else None)
        session = reading.session
        if session is None:
            return SessionState(session_id, 0, 0, (), (), 0, None, None)
        return SessionState(
            session_id,
            session.version,
            session.last_seq,
            tuple(_in_view(reader.entries, reading)),
            tuple((snapshot.label, snapshot.version) for snapshot in reading.snapshots),
            session.undo_steps,
            session.ttl,
            session.forked_from,
            session.life,
            session.facts,
        )

    async def info(self, session_id: str) -> SessionInfo:
        """Return facts about the session, cheap at any length. Raises SessionNotFound."""
        query = Query(checked_id(session_id), limit=0)
        reading = await self.send_with_retries(lambda _, by: self.backend.read(query, _ignore, by))
        if reading.session is None:
            raise no_session(session_id)
        return reading.session

    async def changes(self, session_id: str, limit: int = 100) -> list[Change]:
        """Return the latest changes, newest first. At least the latest 1,024 are remembered."""
        session_id, limit = checked_id(session_id), checked_count(limit, "limit")
        return await self.send_with_retries(lambda _, by: self.backend.changes(session_id, limit, by))

    async def sessions(
        self,
        prefix: str = "",
        *,
        where: Where | None = None,
        limit: int = 100,
        page: str | None = None,
        order: Order = None,
    ) -> Page:
        """List sessions whose id begins with `prefix`, by id, or latest changed first with `order="recent"`.

        `where`: only sessions with these facts. `page` is the `next` of the page before. A session that is there
        throughout is on at least one page.
        """
        prefix = checked_search(prefix, "prefix", LONGEST_ID)
        limit = checked_count(limit, "limit", 1)
        if page is not None and not isinstance(page, str):
            raise InvalidInput("is the `next` of a page", path="page")
        if order not in (None, "recent"):
            raise InvalidInput(f"is None or 'recent', not {shown(order)}", path="order")
        facts, size = where_argument(self.backend, where), min(limit, LARGEST_PAGE)
        return await self.send_with_retries(lambda _, by: self.backend.sessions(prefix, size, page, order, by, **facts))

    async def find(self, text: str, *, session_id: str | None = None, limit: int = 50) -> list[Match]:
        """Find entries in the history of one session, or of all, that contain the text; newest first in each session.

        ASCII letters match in either case. Searches every string of an entry.
        """
        text = checked_search(text, "text", LONGEST_TEXT)
        if not text:
            raise InvalidInput("must have at least one character", path="text")
        if session_id is not None:
            session_id = checked_id(session_id)
        if checked_count(limit, "limit") == 0:
            return []
        matches: list[Match] = []

        def look_closer(found_in: str, row: EntryRow) -> bool:
            entry = codec.decode(found_in, row[4], *row[:4])
            if text_search.mentions(entry, text):
                matches.append(Match(found_in, entry))
            return len(matches) < limit

        async def send(_retry: object, by: float) -> None:
            matches.clear()
            await self.backend.find(text, session_id, look_closer, by)

        await self.send_with_retries(send)
        return [match for match in matches if await self._is_in_view(match)]

    async def _is_in_view(self, match: Match) -> bool:
        """Whether the history shows a match: a summary stays on the path when undo takes its fold back, and is not
        shown."""
        if not isinstance(match.entry, Summary) or not prompts.is_fold(match.entry):
            return True
        query = Query(match.session_id, limit=0)
        reading = await self.send_with_retries(lambda _, by: self.backend.read(query, _ignore, by))
        return prompts.is_in_view(match.entry, reading.state)

    async def _read(
        self, query: Query, new_reader: Callable[[], Reader], deadline: float | None = None
    ) -> tuple[Reading, Reader]:
        """Read into a new reader. Raises the error for a refusal; an absent session is no error."""

        async def send(_retry: object, by: float) -> tuple[Reading, Reader]:
            reader = new_reader()
            return await self.backend.read(query, reader.take, by), reader

        reading, reader = await self.send_with_retries(send, deadline)
        refuse_absent_state(query, reading)
        return reading, reader


def _in_view(entries: Sequence[Entry], reading: Reading) -> list[Entry]:
    """Leave out the summaries of folds that were undone."""
    return [entry for entry in entries if not isinstance(entry, Summary) or prompts.is_in_view(entry, reading.state)]


def _ignore(rows: object) -> None:
    """Take no rows: the query asks for none."""


def _refuse_gaps(reading: Reading, query: Query, messages: int | None = None) -> None:
    """Raise CorruptEntry if an entry that should be there is missing."""
    if reading.first_missing:
        raise codec.missing(query.session_id, reading.first_missing)
    whole = query.after == 0 and query.before is None and query.limit is None
    if messages is not None and whole and messages != reading.state.messages:
        raise codec.miscounted(query.session_id, reading.state.head, messages, reading.state.messages)
