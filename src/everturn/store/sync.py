"""MemoryStore: the blocking store, with the documentation of every method. operations.py does the work.

A blocking backend never suspends, so a method's coroutine runs to its end at the first `send`: `run_observed` does
that, and no event loop is needed. The methods of AsyncMemoryStore (aio.py) are made from these by
`tools/make_async_store.py`; run it after a change here.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from inspect import iscoroutine
from typing import Literal, Self, TypeVar

from everturn.backend import Backend
from everturn.errors import InvalidInput
from everturn.model import (
    JSON,
    Change,
    ChatMessage,
    Compaction,
    Context,
    Diff,
    Effect,
    Entry,
    ErasureReceipt,
    Hit,
    Match,
    Page,
    Receipt,
    SessionInfo,
    SessionState,
    Snapshot,
    Summary,
    ToolCall,
    Turn,
    VerifyReport,
)
from everturn.model.health import Health
from everturn.model.held_lease import HeldLease
from everturn.store.effects import Result
from everturn.store.fold import Embed, Summarize
from everturn.store.lease_holder import LeaseHolder
from everturn.store.leases import Lease
from everturn.store.observed import run_observed
from everturn.store.operations import Operations
from everturn.store.options import Settings

T = TypeVar("T")


class BlockingRuntime:
    """Runtime of a blocking store: it waits and computes in the calling thread."""

    clock = staticmethod(time.monotonic)
    awaits = False

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop to block: a blocking store blocks

    async def offload(self, think: Callable[[], T]) -> T:
        return think()

    async def answer(self, awaitable: Awaitable[T], path: str) -> T:
        if iscoroutine(awaitable):
            awaitable.close()
        raise InvalidInput("returned a coroutine; a blocking store takes plain functions", path=path)


class MemoryStore:
    """A durable store of conversations. Made by `everturn.open`; safe to share between threads and across a fork.

    Every change is all or nothing, and returns once it is kept. Every call ends within the store's `timeout`: transient
    faults are retried until then, and a change that did land is never made twice. An absent session reads as empty.
    """

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._operations = Operations(backend, settings, BlockingRuntime())

    # --- turns -------------------------------------------------------------------------------------------------------

    def add_messages(
        self,
        session_id: str,
        messages: Iterable[ChatMessage | Mapping[str, JSON]],
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Append one turn of messages: all or nothing, in this order, never mixed with another turn.

        An empty turn changes nothing, and its receipt names the present version.

        ```python
        receipt = store.add_messages("customer-42", [ChatMessage("user", "Hi!")], key="request-77")
        store.add_messages("customer-42", [ChatMessage("assistant", "Hello.")], expected_version=receipt)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            messages: The messages of the turn: ChatMessage values, or dicts with at least `role` and `content`. Fields
                that ChatMessage does not have are kept in its `extra`.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the turn and the `seqs` of its messages.

        Raises:
            InvalidInput: A value would not come back as it went in (NaN, bytes, lone surrogates). `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.add_messages(session_id, messages, key=key, expected_version=expected_version, lease=lease)
        )

    def append(
        self,
        session_id: str,
        entries: Iterable[Entry | Mapping[str, JSON]],
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Append one turn of messages, tool calls, summaries and records, mixed: all or nothing, in this order.

        An empty turn changes nothing, and its receipt names the present version.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            entries: The entries of the turn: ChatMessage, ToolCall, Summary and Record values. A dict is a message.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the turn and the `seqs` of its entries.

        Raises:
            InvalidInput: A value would not come back as it went in. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.append(session_id, entries, key=key, expected_version=expected_version, lease=lease)
        )

    def replace(
        self,
        session_id: str,
        entries: Iterable[Entry | Mapping[str, JSON]],
        *,
        after: int = 0,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Replace the end of the history by these entries, in one step that `undo` takes back.

        The history becomes the entries up to `after`, followed by the given ones: to edit a message, to ask the model
        again, to remove the last turn. Where that changes nothing, nothing is changed.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            entries: The new entries, as for `append`. With none, the end of the history is removed.
            after: The `seq` of the last entry that stays. 0: none stays.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change and the `seqs` of the new entries.

        Raises:
            InvalidInput: `after` is not the seq of an entry in the history, or a value would not come back as it went
                in. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.replace(
                session_id, entries, after=after, key=key, expected_version=expected_version, lease=lease
            )
        )

    def save_context(
        self,
        session_id: str,
        human: str,
        ai: str,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Append one turn of two messages, all or nothing: the human's words and the AI's answer.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            human: The text of a message with the role `user`.
            ai: The text of a message with the role `assistant`.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the turn and the `seqs` of both messages.

        Raises:
            InvalidInput: A text is no string, or cannot be stored.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.save_context(
                session_id, human, ai, key=key, expected_version=expected_version, lease=lease
            )
        )

    def load_memory(self, session_id: str) -> list[dict[str, str]]:
        """Return the history as pairs of strings, oldest first: the reverse of `save_context`.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.

        Returns:
            Dicts with `human` and `ai`, where `ai` is "" if there is no answer yet. An absent session has none.

        Raises:
            CorruptEntry: A stored message is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.load_memory(session_id))

    def get_history(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        at: Snapshot | str | int | None = None,
        heal: bool = False,
        on_corrupt: Literal["raise", "skip"] = "raise",
    ) -> list[ChatMessage]:
        """Return the messages of the history, oldest first, as they were at one moment.

        An absent session has no messages. A fault is an error, never an empty list.

        ```python
        prompt = [message.to_dict() for message in store.get_history("customer-42", limit=20, heal=True)]
        yesterday = store.get_history("customer-42", at=snapshot)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            limit: Return at most this many, the latest. The list then never begins with a tool result whose call was
                cut off. None: all of them.
            before: Return only messages with a `seq` below this one.
            after: Return only messages with a `seq` above this one.
            at: Read a past state: a snapshot, its id, or a version. None: the present state.
            heal: Make it a prompt that models accept. A tool call without a result gets one that says so; a result that
                answers no call, or answers one twice, is left out; a late result moves up to its call. Nothing is
                written.
            on_corrupt: "raise" raises CorruptEntry at a damaged or missing entry; "skip" leaves such entries out.

        Returns:
            The messages, each with its `seq` and `created_at`.

        Raises:
            CorruptEntry: A stored message is damaged or missing, and `on_corrupt` is "raise".
            SnapshotNotFound: `at` is no snapshot of this session.
            InvalidInput: `at` is a version that was never reached or has been reclaimed; or a bound is no whole number.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(
            self._operations.get_history(
                session_id, limit=limit, before=before, after=after, at=at, heal=heal, on_corrupt=on_corrupt
            )
        )

    # --- tool calls and summaries ------------------------------------------------------------------------------------

    def get_context(
        self,
        session_id: str,
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        at: Snapshot | str | int | None = None,
        heal: bool = True,
    ) -> Context:
        """Read a prompt for a model: system messages, summaries of hidden turns, and the newest whole turns that fit.

        All of it is of one moment. The last turn is always there, and a tool's result never without its call. The cost
        depends on the bounds, not on the length of the history: of older system messages it returns those at the
        beginning of the history and those that a trim or fold kept.

        ```python
        context = store.get_context("customer-42", max_tokens=8000)
        prompt = [message.to_prompt() for message in context.messages]
        answer = f"I have read {len(prompt)} messages."  # ask a model here
        store.add_messages("customer-42", [ChatMessage("assistant", answer)], expected_version=context)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            max_tokens: Return at most this many tokens, with system messages and summaries, except that the last turn
                is always returned: check `context.tokens`.
            count_tokens: Your function from a message to its number of tokens. None: an estimate, about four characters
                a token, and 1,000 for an image or a file.
            max_messages: Return at most this many messages.
            max_bytes: Return at most this many bytes, as JSON: many images exceed the size of a request first.
            at: Read a past state: a snapshot, its id, or a version. None: the present state.
            heal: Make it a prompt that models accept, as `get_history` does.

        Returns:
            The messages, how many tokens they have, how many messages were left out, and the summaries among them.
                Pass it as `expected_version`, to append the answer only if the session has not changed since.

        Raises:
            InvalidInput: A bound is below 1, or the counter returned something else than a count.
            SnapshotNotFound: `at` is a snapshot that the session does not have.
            CorruptEntry: A stored entry is damaged or missing.
            MemoryStoreBackendError: The backend failed.
        """
        return run_observed(
            self._operations.get_context(
                session_id,
                max_tokens=max_tokens,
                count_tokens=count_tokens,
                max_messages=max_messages,
                max_bytes=max_bytes,
                at=at,
                heal=heal,
            )
        )

    def get_turn(self, session_id: str, key: str) -> Turn | None:
        """Find the turn that was written with a key: ask before you pay a model for an answer that is stored already.

        ```python
        turn = store.get_turn("customer-42", "request-77")
        answer = turn.messages[-1].text if turn else None  # None: now ask a model
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            key: An idempotency key of your own, such as a request's id.

        Returns:
            The receipt of the first use, with `replayed=True`, and the entries of the turn. None if the key was not
                used in this session, or a rollback has dropped its turn.

        Raises:
            InvalidInput: The key is no text of 1 to 512 bytes without NUL.
            CorruptEntry: A stored entry is damaged or missing.
            Unsupported: The store was opened with `read_only`: a key is looked up where changes are made.
            MemoryStoreBackendError: The backend failed.
        """
        return run_observed(self._operations.get_turn(session_id, key))

    def add_tool_call(
        self,
        session_id: str,
        tool_call: ToolCall,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Append the record of one tool call, as a turn of its own.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            tool_call: The tool's name and arguments, with its result or error and its duration where they are known.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the turn and the record's seq.

        Raises:
            InvalidInput: It is no ToolCall, or a value would not come back as it went in. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.add_tool_call(
                session_id, tool_call, key=key, expected_version=expected_version, lease=lease
            )
        )

    def get_tool_calls(self, session_id: str) -> list[ToolCall]:
        """Return the records of tool calls in the history, oldest first.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.

        Returns:
            The records, each with its `seq` and `created_at`. An absent session has none.

        Raises:
            CorruptEntry: A stored record is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.get_tool_calls(session_id))

    def add_summary(
        self,
        session_id: str,
        summary: Summary,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Append a summary with its embedding, as a turn of its own.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            summary: The text, its embedding, and the first and last seq that it stands for. The first embedding of a
                session fixes the length of all that follow; numbers are kept as float32.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the turn and the summary's seq.

        Raises:
            InvalidInput: It is no Summary, its embedding has another length than the session's, or a value would not
                come back as it went in. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.add_summary(session_id, summary, key=key, expected_version=expected_version, lease=lease)
        )

    def get_summaries(self, session_id: str) -> list[Summary]:
        """Return the summaries in the history, oldest first. A trim does not hide them.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.

        Returns:
            The summaries, each with its `seq` and `created_at`. An absent session has none.

        Raises:
            CorruptEntry: A stored summary is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.get_summaries(session_id))

    def search_summaries(self, session_id: str, embedding: Collection[float], *, k: int = 5) -> list[Hit]:
        """Return the summaries of this session that are most like an embedding, best first.

        The similarity is the exact cosine. Of two that are equally like it, the one with the lower seq comes first.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            embedding: The numbers to compare with: a list, a tuple, or an array of numpy.
            k: Return at most this many.

        Returns:
            Hits with their `score` (higher is better) and `summary`. A session without summaries has none.

        Raises:
            InvalidInput: The embedding's length is not that of the session's summaries.
            CorruptEntry: A stored summary is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.search_summaries(session_id, embedding, k=k))

    # --- snapshots and the head --------------------------------------------------------------------------------------

    def save_snapshot(
        self,
        session_id: str,
        label: str | None = None,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Snapshot:
        """Save a snapshot: a lasting pointer to the present state. Costs the same at any length of the history.

        A snapshot outlives every rollback; only `delete_snapshot` and the end of the session remove it. An absent
        session begins with it.

        ```python
        snapshot = store.save_snapshot("customer-42", "before the refund")
        store.rollback_to_snapshot("customer-42", snapshot)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            label: A text for people, up to 512 bytes. Several snapshots may have the same.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            The snapshot. Its `id` is enough to find it again, from any process.

        Raises:
            InvalidInput: The label cannot be stored.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.save_snapshot(session_id, label, key=key, expected_version=expected_version, lease=lease)
        )

    def list_snapshots(self, session_id: str) -> list[Snapshot]:
        """Return the session's snapshots, in the order they were taken.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.

        Returns:
            The snapshots. An absent session has none.

        Raises:
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.list_snapshots(session_id))

    def delete_snapshot(
        self,
        session_id: str,
        snapshot: Snapshot | str,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Delete a snapshot. The history stays as it is; `compact` reclaims entries that only the snapshot reached.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            snapshot: A Snapshot of this session, or its id.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            SessionNotFound: There is no such session.
            SnapshotNotFound: The session has no such snapshot.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.delete_snapshot(
                session_id, snapshot, key=key, expected_version=expected_version, lease=lease
            )
        )

    def rollback_to_snapshot(
        self,
        session_id: str,
        snapshot: Snapshot | str,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Return to a snapshot's state: messages, tool calls, summaries and records together, in one atomic step.

        It moves a pointer and deletes nothing: `undo` takes it back, and a later snapshot can be returned to as well.
        Where the session is in that state already, nothing changes.

        ```python
        store.rollback_to_snapshot("customer-42", snapshot)
        store.undo("customer-42")
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            snapshot: A Snapshot of this session, or its id.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            SessionNotFound: There is no such session.
            SnapshotNotFound: The session has no such snapshot; also if it is one of an earlier session of this name.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.rollback_to_snapshot(
                session_id, snapshot, key=key, expected_version=expected_version, lease=lease
            )
        )

    def rollback(
        self,
        session_id: str,
        to: Snapshot | str | int,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Return to the state of a snapshot, or to the state after a version, in one atomic step.

        It moves a pointer and deletes nothing: `undo` takes it back. Where the session is in that state already,
        nothing changes: the receipt has the version that the session was at.

        ```python
        store.rollback("customer-42", 12)  # as it was after the change that made version 12
        store.undo("customer-42")
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            to: A Snapshot of this session, its id, or a version: an int, 0 for the empty session. The states of at
                least the latest 1,024 versions are known, unless `compact` reclaimed their entries.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            SessionNotFound: There is no such session.
            SnapshotNotFound: The session has no such snapshot; also if it is one of an earlier session of this name.
            InvalidInput: The version was never reached, or its state is no longer known.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.rollback(session_id, to, key=key, expected_version=expected_version, lease=lease)
        )

    def undo(
        self,
        session_id: str,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Take back the latest rollback, replace, trim, fold or clear. Ten steps are kept; there is no redo.

        Undo of a trim, fold or clear keeps the turns that came later. Undo of a rollback or replace drops them: if
        there are any, it raises VersionConflict unless `expected_version` names the present version.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            InvalidInput: There is nothing left to take back.
            SessionNotFound: There is no such session.
            VersionConflict: The session is not at `expected_version`, or turns would be dropped.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(self._operations.undo(session_id, key=key, expected_version=expected_version, lease=lease))

    # --- leases and effects ------------------------------------------------------------------------------------------

    def lease(self, session_id: str, *, seconds: float = 30, wait: float = 0, renew: bool = False) -> Lease:
        """Take the lease of a session: the right to work on it for a while. Released at the end of a `with` block.

        ```python
        with store.lease("customer-42", seconds=30, wait=10) as lease:
            store.add_messages("customer-42", [ChatMessage("assistant", "Hello.")], lease=lease)
        ```

        At most one worker holds it. A change that names it is refused from the moment another worker has it, or its
        time is over; also if nothing else has changed, and however long its worker slept. Reads, and changes that name
        no lease, go on as without it. It is no change itself: the version and the TTL stay. An absent session can be
        leased, and stays absent. A child of `os.fork` does not hold it.

        Args:
            session_id: Names the conversation.
            seconds: How long it lasts unless it is renewed: above 0, a day at most. Time is the backend's.
            wait: How many seconds to wait for it while another worker holds it. The store asks for it again from
                time to time, a few times a second at most.
            renew: Renew it in the background, three times as often as needed, until the block ends. False: call its
                `renew()` yourself.

        Returns:
            The lease, with its `token` and `until`, and the methods `renew` and `release`.

        Raises:
            LeaseHeld: Another worker holds it, and did so for as long as was waited.
            InvalidInput: `seconds` or `wait` is no such number.
            Unsupported: The backend has no leases.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return Lease(self._operations, session_id, seconds, renew=renew).take(wait)

    def get_lease(self, session_id: str) -> HeldLease | None:
        """Look who holds the lease of a session now. Changes nothing.

        ```python
        held = store.get_lease("customer-42")
        if held is not None:
            print(f"{held.by} works on it, for {held.left:.0f} s more at least")
        ```

        It is for people and their reports. By the time it returns, the lease may have ended: to know that nobody else
        works on a session, take the lease.

        Args:
            session_id: Names the conversation. It may be absent.

        Returns:
            The lease, with the name of its worker; None if nobody holds one.

        Raises:
            CorruptEntry: The stored lease is not what was written.
            Unsupported: The backend cannot tell.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.get_lease(session_id))

    def begin_effect(
        self,
        session_id: str,
        key: str,
        request: JSON = None,
        *,
        repeats: int = 0,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Effect:
        """Begin an effect: something to be done in the world for the session, such as a payment. It begins once.

        ```python
        effect = store.begin_effect("customer-42", "refund-1234", {"order": 1234, "amount": 20})
        if effect.status == "new":
            store.finish_effect("customer-42", "refund-1234", {"refund": "r-1"}, attempt=effect.attempt)
        ```

        Of any number of workers that begin it, one is told "new", and does it. The others see it "started", or its
        result. One that failed begins again, with the next attempt. No rollback, undo, trim, fold or clear touches an
        effect. `once` does all of it in one call.

        Args:
            session_id: Names the conversation.
            key: Names the effect, in this life of the session: 1 to 512 bytes, without NUL. People see it.
            request: JSON value that says what is to be done, for those who look into it later.
            repeats: Begin it again although it is started and in doubt, if this is the number of its attempt: doing it
                twice does no harm.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            The effect. Its `status` is "new" for the one caller that began it.

        Raises:
            KeyReused: It was begun with another request. The first one stands.
            InvalidInput: The key or the request cannot be stored. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.begin_effect(
                session_id, key, request, repeats=repeats, expected_version=expected_version, lease=lease
            )
        )

    def finish_effect(
        self,
        session_id: str,
        key: str,
        result: JSON = None,
        *,
        attempt: int = 0,
        note: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """End an effect that was done, with its result. Everybody who begins it from now on sees the result.

        Args:
            session_id: Names the conversation.
            key: Names the effect.
            result: JSON value.
            attempt: End it only if this attempt is the one that is started. 0: whichever it is.
            note: Reason of a person who ends it because it was in doubt.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt; the first one, with `replayed=True`, if it had finished before with the same result.

        Raises:
            KeyReused: It had finished before, with another result. The first one stands.
            EffectInDoubt: Another attempt than `attempt` is the present one.
            InvalidInput: It was never begun, or has failed, or the result cannot be stored. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.finish_effect(
                session_id,
                key,
                result,
                attempt=attempt,
                note=note,
                expected_version=expected_version,
                lease=lease,
            )
        )

    def fail_effect(
        self,
        session_id: str,
        key: str,
        error: JSON,
        *,
        attempt: int = 0,
        note: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """End an effect that was certainly not done, with the reason. It may begin again, with the next attempt.

        Args:
            session_id: Names the conversation.
            key: Names the effect.
            error: JSON value that says why it was not done: a text, or more.
            attempt: End it only if this attempt is the one that is started. 0: whichever it is.
            note: Reason of a person who ends it because it was in doubt.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt; the first one, with `replayed=True`, if it had failed before with the same error.

        Raises:
            KeyReused: It had failed before, with another error.
            EffectInDoubt: Another attempt than `attempt` is the present one.
            InvalidInput: It was never begun, or has finished, or the error cannot be stored. `path` names it.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.fail_effect(
                session_id,
                key,
                error,
                attempt=attempt,
                note=note,
                expected_version=expected_version,
                lease=lease,
            )
        )

    def get_effects(self, session_id: str) -> list[Effect]:
        """List the effects of the session's present life, in the order in which they were begun.

        Args:
            session_id: Names the conversation.

        Returns:
            The effects; none if the session is absent. One that is "started" is in progress, or in doubt.

        Raises:
            CorruptEntry: A stored effect is not what was written.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.get_effects(session_id))

    def once(
        self,
        session_id: str,
        key: str,
        do: Callable[[], Result | Awaitable[Result]],
        *,
        request: JSON = None,
        repeat_in_doubt: bool = False,
        failures: type[Exception] | tuple[type[Exception], ...] = (),
        lease: LeaseHolder | int | None = None,
    ) -> Result:
        """Do something in the world once: begin the effect, call `do`, finish with its result; or return that result.

        ```python
        sent = store.once("customer-42", "mail-1", lambda: {"sent": True}, request={"to": "a@example.com"})
        ```

        A worker that crashes on the way leaves the effect in doubt: nobody knows whether it was done. Later calls then
        raise EffectInDoubt and do nothing. So does an error of `do`, unless it is one of `failures`. The effect is
        ended also if the lease was lost while `do` ran, provided that nobody has begun it again.

        Args:
            session_id: Names the conversation.
            key: Names the effect, in this life of the session.
            do: Function without arguments that does it, and returns a JSON value. It may be a coroutine function in an
                asynchronous store.
            request: JSON value that says what is to be done, for those who look into it later.
            repeat_in_doubt: Do it again if it is in doubt, because doing it twice does no harm. One that is in progress
                under a lease that is held is not begun again.
            failures: Errors of `do` that say that nothing was done: the effect has failed then, and may begin again.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            The result of `do`, of this call or of the one that did it.

        Raises:
            EffectInDoubt: It was begun and never ended. `in_progress` says that its worker still holds its lease.
            KeyReused: It was begun with another request. The first one stands.
            InvalidInput: The key, the request or the result cannot be stored. `path` names it.
            LeaseLost: The lease that was named is not in force any more. Nothing was begun.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.once(
                session_id,
                key,
                do,
                request=request,
                repeat_in_doubt=repeat_in_doubt,
                failures=failures,
                lease=lease,
            )
        )

    def diff(
        self,
        session_id: str,
        a: Snapshot | str | int | None,
        b: Snapshot | str | int | None = None,
    ) -> Diff:
        """Compare two states of a session: the entries that `b` shows and `a` does not, and the other way round.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            a: A snapshot, its id, or a version. None: the present state.
            b: The other state, in the same way.

        Returns:
            The entries `added` and `removed` on the way from `a` to `b`, in order.

        Raises:
            SnapshotNotFound: A state is no snapshot of this session.
            InvalidInput: A version was never reached, or has been reclaimed.
            CorruptEntry: A stored entry is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.diff(session_id, a, b))

    def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at: Snapshot | str | int | None = None,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
    ) -> Receipt:
        """Copy a state into a new session, which appears in one step.

        Entries keep their seqs. Snapshots, undo steps and keys stay behind; `info` of the copy names its origin.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            new_session_id: Names the copy. There must be no session of this name.
            at: Read a past state: a snapshot, its id, or a version. None: the present state.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
                This is about the session that is copied.

        Returns:
            The receipt of the new session.

        Raises:
            SessionNotFound: There is nothing to copy.
            SnapshotNotFound: `at` is no snapshot of this session.
            InvalidInput: The new session exists already, or `at` is a version that cannot be read.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.fork(session_id, new_session_id, at=at, key=key, expected_version=expected_version)
        )

    # --- shortening and removing -------------------------------------------------------------------------------------

    def trim(
        self,
        session_id: str,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        keep_system: bool = True,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Hide the oldest turns until the history fits. `undo` brings them back.

        It keeps whole turns, always the last one, and a tool call together with its result. Summaries stay. If the
        history fits, or the session is absent, nothing changes. Turns that others append meanwhile stay in view.

        ```python
        store.trim("customer-42", max_messages=50)
        store.trim("customer-42", max_tokens=8000, count_tokens=lambda message: len(message.text) // 4)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            max_messages: Leave at most this many messages.
            max_tokens: Leave at most this many tokens, as `count_tokens` counts them. At least one of the two bounds
                is needed.
            count_tokens: Your function from a message to its number of tokens; needed with `max_tokens`.
            keep_system: Keep system messages in view. They count towards the bounds.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            InvalidInput: No bound was given, or only one of `max_tokens` and `count_tokens`.
            CorruptEntry: A stored message is damaged or missing.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.trim(
                session_id,
                max_messages=max_messages,
                max_tokens=max_tokens,
                count_tokens=count_tokens,
                keep_system=keep_system,
                key=key,
                expected_version=expected_version,
                lease=lease,
            )
        )

    def fold(
        self,
        session_id: str,
        summarize: Summarize,
        *,
        max_tokens: int | None = None,
        count_tokens: Callable[[ChatMessage], int] | None = None,
        max_messages: int | None = None,
        embed: Embed | None = None,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt | None:
        """Hide the oldest turns behind a summary, so that the rest fits. `undo` brings them back, in one step.

        Your function gets the oldest messages, and the summary that stands before them, if there is one. It is called
        outside of every lock and time-out: it may ask a model, and take minutes. The summary and the turns it stands
        for then change places in one request. Turns that others appended meanwhile stay in view. If another fold, a
        rollback, a clear or a trim came first, or your function raises, nothing is written. If several workers fold
        one session at once, only one of them calls its function.

        ```python
        summarize = lambda messages, earlier: f"They said hello, and {len(messages)} things more."  # ask a model here
        store.fold("customer-42", summarize, max_messages=20)
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            summarize: Called as `summarize(messages, earlier)`: whole turns, oldest first, and the Summary before
                them or None. Returns the text of a summary that stands for both, or a Summary. With an asynchronous
                store it may be a coroutine function; a plain one runs in a thread.
            max_tokens: Leave at most this many tokens of messages in view.
            count_tokens: Your function from a message to its number of tokens. None: an estimate, about four characters
                a token.
            max_messages: Leave at most this many messages in view. At least one of the two bounds is needed.
            embed: Your function from the summary's text to its embedding, so that `search_summaries` finds it.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            The receipt, with the seq of the summary. None if everything fits, or another change came first.

        Raises:
            InvalidInput: No bound was given, a bound is below 1, a counter returned no count, or `summarize` returned
                something else than a text or a Summary. Nothing was written.
            CorruptEntry: A stored message is damaged or missing.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.fold(
                session_id,
                summarize,
                max_tokens=max_tokens,
                count_tokens=count_tokens,
                max_messages=max_messages,
                embed=embed,
                key=key,
                expected_version=expected_version,
                lease=lease,
            )
        )

    def clear(
        self,
        session_id: str,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Empty the history in one step. Snapshots stay, and `undo` brings the history back.

        If the history is empty, or the session absent, nothing changes. To remove the data itself, use `erase`.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(self._operations.clear(session_id, key=key, expected_version=expected_version, lease=lease))

    def clear_all(self) -> int:
        """Clear every session, one after the other: each atomically, and each can be undone.

        Returns:
            The number of sessions that had something to clear.

        Raises:
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(self._operations.clear_all())

    def erase(
        self, session_id: str, *, expected_version: int | Receipt | SessionState | Context | None = None
    ) -> ErasureReceipt:
        """Remove a session physically: entries, snapshots, everything. It cannot be undone.

        An absent session is no error; its receipt counts zero. A session that begins under this name while the call
        runs is left alone. With `expected_version`, a session that has changed or begun anew since is left alone, too.

        ```python
        receipt = store.erase("customer-42")
        assert receipt.complete, "a reader or a replica can still see it: erase again when it has gone"
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.

        Returns:
            A receipt: the number of entries removed, whether nobody can read them any more (`complete`), and where
                bytes of them may remain until something else removes them (`remains`), such as the server's own log.

        Raises:
            VersionConflict: The session is not at `expected_version`. Nothing was removed.
            Unsupported: The backend cannot compare the version while it erases.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(self._operations.erase(session_id, expected_version=expected_version))

    def erase_all(
        self,
        *,
        prefix: str = "",
        where: Mapping[str, str] | None = None,
        changed_before: float | datetime | None = None,
        progress: Callable[[ErasureReceipt], object] | None = None,
    ) -> ErasureReceipt:
        """Erase all sessions of a user, or all that have not changed for long, each as `erase` does.

        It goes session by session. If it is interrupted, or fails midway, repeat the call: it goes on with the rest.
        With a prefix that ends in `/`, sessions that adapters keep beside it (`app/user#state`) are erased too.

        ```python
        from datetime import UTC, datetime, timedelta

        store.erase_all(prefix="customer-42/")
        store.erase_all(where={"user": "customer-42"})
        store.erase_all(changed_before=datetime.now(UTC) - timedelta(days=90))
        ```

        Args:
            prefix: Only sessions whose id begins with this.
            where: Only sessions with all these facts (`set_facts`), also if they are changed while this runs.
            changed_before: Only sessions whose latest change was before this moment: a datetime, or seconds since 1970.
                A session that is changed while this runs is left alone.
            progress: Called after each session with the receipt so far.

        Returns:
            One receipt for all: `sessions` says how many, `session_id` is the prefix.

        Raises:
            InvalidInput: Neither a prefix nor facts nor `changed_before` are given: that would erase everything.
            Unsupported: The backend cannot compare the version while it erases: `changed_before` and `where` need that.
            MemoryStoreBackendError: The backend failed. Sessions that were erased before stay erased.
        """
        return run_observed(
            self._operations.erase_all(prefix=prefix, where=where, changed_before=changed_before, progress=progress)
        )

    # --- facts -------------------------------------------------------------------------------------------------------

    def state(
        self,
        session_id: str,
        *,
        at: Snapshot | str | int | None = None,
        kind: str | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> SessionState:
        """Return everything about a session that two stores can be compared by: no clocks, no random ids.

        It may be passed as `expected_version`. An absent session has version 0 and no entries.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            at: Read a past state: a snapshot, its id, or a version. None: the present state.
            kind: Return only entries of this kind: "message", "tool_call", "summary", or that of a Record.
            before: Return only entries with a `seq` below this one.
            after: Return only entries with a `seq` above this one.

        Returns:
            The version, the entries in order, the snapshots' labels and versions, the undo steps and the TTL.

        Raises:
            SnapshotNotFound: `at` is no snapshot of this session.
            InvalidInput: `at` is a version that was never reached or has been reclaimed; or a bound is no whole number.
            CorruptEntry: A stored entry is damaged or missing.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.state(session_id, at=at, kind=kind, before=before, after=after))

    def info(self, session_id: str) -> SessionInfo:
        """Return numbers of a session: version, counts, sizes, times. Costs the same at any length.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.

        Returns:
            The numbers, and the facts of the session. Reading them does not refresh the TTL.

        Raises:
            SessionNotFound: There is no such session.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.info(session_id))

    def changes(self, session_id: str, limit: int = 100) -> list[Change]:
        """Return the latest changes of a session, newest first.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            limit: Return at most this many. At least the latest 1,024 are remembered.

        Returns:
            The changes, each with the version it made. An absent session has none.

        Raises:
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.changes(session_id, limit))

    def sessions(
        self,
        prefix: str = "",
        *,
        where: Mapping[str, str] | None = None,
        limit: int = 100,
        page: str | None = None,
        order: Literal["recent"] | None = None,
    ) -> Page:
        """Return one page of the sessions. A session that is there throughout is on at least one page.

        ```python
        for session in store.sessions(where={"user": "customer-42"}).sessions:
            print(session.session_id, session.facts.get("title"))
        ```

        Args:
            prefix: Return only sessions whose id begins with this text.
            where: Return only sessions with all these facts (`set_facts`). SQLite and PostgreSQL have an index of
                them; on Redis and DynamoDB every session is read, and a page may have few, or none, and a next page.
            limit: Return at most this many on a page, up to 1,000.
            page: The `next` of the page before. None: the first page.
            order: None: by id. "recent": the latest changed first.

        Returns:
            The sessions, each with its facts, and in `next` the token of the next page, or None on the last.

        Raises:
            InvalidInput: `page` is not the `next` of a page in this order, `limit` is below 1, or `where` is no dict
                of names and texts.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.sessions(prefix, where=where, limit=limit, page=page, order=order))

    def find(self, text: str, *, session_id: str | None = None, limit: int = 50) -> list[Match]:
        """Find entries in which a text occurs, newest first in each session. Every string of an entry is searched.

        Args:
            text: The text to look for, 1 to 1,000 characters. ASCII letters match in either case.
            session_id: Search this session only. None: all sessions.
            limit: Return at most this many.

        Returns:
            The entries, each with its session. Only entries that the history shows are found.

        Raises:
            InvalidInput: The text is empty or too long.
            CorruptEntry: A stored entry is damaged.
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.find(text, session_id=session_id, limit=limit))

    # --- housekeeping ------------------------------------------------------------------------------------------------

    def set_facts(
        self,
        session_id: str,
        facts: Mapping[str, str | None],
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Set facts of a session that people find it by: its user, its title. Its other facts stay as they are.

        It is a change like any other: one step, with a version, in `changes`. An absent session begins with it. Facts
        belong to the session, not to its history: no rollback, undo, trim, fold or clear touches them. A fork and a
        copy have them, too; erase removes them.

        ```python
        store.set_facts("chat-7", {"user": "customer-42", "title": "Refund of order 1234"})
        ```

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            facts: Names (1 to 64 bytes) and texts (up to 512 bytes), without NUL. None removes a fact. A session has 16
                facts at most. Facts that are so already change nothing.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            InvalidInput: A name or value is no text or too long, or the session would have more than 16 facts.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            KeyReused: The key was used before with other content. Nothing was changed.
            Unsupported: The backend has no facts.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.set_facts(session_id, facts, key=key, expected_version=expected_version, lease=lease)
        )

    def set_ttl(
        self,
        session_id: str,
        seconds: float | None,
        *,
        key: str | None = None,
        expected_version: int | Receipt | SessionState | Context | None = None,
        lease: LeaseHolder | int | None = None,
    ) -> Receipt:
        """Let a session expire this long after its latest change. Every change restarts the time; reads do not.

        Args:
            session_id: Names the conversation: a string of your own, 1 to 512 bytes, without NUL.
            seconds: The time to live. None: the session never expires.
            key: An idempotency key of your own, such as a request's id. Repeat the call with it as often as you like:
                the change is made once, and repeats get the first answer (a receipt then has `replayed=True`). A
                rollback that drops a turn frees its key. Other content under the same key raises KeyReused.
            expected_version: Make the change only if the session is at this version (0: only if it does not exist). A
                Receipt, SessionState or Context means its version, of the same life of the session.
            lease: Make the change only while this lease of the session is in force (`lease`, or its token).

        Returns:
            A receipt with the session's version after the change.

        Raises:
            SessionNotFound: There is no such session.
            InvalidInput: `seconds` is not a number above 0.
            VersionConflict: The session is not at `expected_version`. Nothing was changed.
            LeaseLost: The lease that was named is not in force any more. Nothing was changed.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(
            self._operations.set_ttl(session_id, seconds, key=key, expected_version=expected_version, lease=lease)
        )

    def verify(self, session_id: str | None = None) -> VerifyReport:
        """Look for gaps, bad checksums and dangling pointers. Nothing is changed.

        Args:
            session_id: Verify this session only. None: everything that is stored.

        Returns:
            A report with the number of sessions and entries read, and the `problems`; `ok` says that there are none.

        Raises:
            MemoryStoreBackendError: The backend failed, or did not answer within the `timeout`.
        """
        return run_observed(self._operations.verify(session_id))

    def compact(self, session_id: str | None = None, *, drop_undo: bool = False) -> Compaction:
        """Reclaim entries that no head, snapshot or undo step can reach, and never anything else.

        It goes in short steps that keep nobody waiting, and may be repeated at any time.

        Args:
            session_id: Compact this session only. None: all sessions, and the remains of those that expired.
            drop_undo: First forget the session's undo steps, all at once, so that entries which only `undo` could
                bring back are reclaimed too. The history and the version stay as they are.

        Returns:
            The number of sessions, entries and bytes that were reclaimed.

        Raises:
            InvalidInput: `drop_undo` was given without a `session_id`.
            MemoryStoreBackendError: The backend failed. Its `outcome` says whether a change may have been made.
        """
        return run_observed(self._operations.compact(session_id, drop_undo=drop_undo))

    def health(self) -> Health:
        """Look whether the store can be read and written now, for a readiness probe. Changes nothing.

        A fault is told in the report and not raised; the call ends within `timeout`.

        ```python
        if not store.health():
            print(store.health().problems)
        ```

        Returns:
            A report that is true in an `if` where reads and writes work. `problems` says what is wrong, in words;
                `disk_free`, `wal_bytes` and `replicas` are None where the backend has no such thing.
        """
        return run_observed(self._operations.health())

    def close(self) -> None:
        """Release the connections and files that this store opened. Calls after it fail; a second close does nothing.

        A client that was passed to `everturn.from_client` stays open.
        """
        return run_observed(self._operations.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def operations_of(store: MemoryStore) -> Operations:
    """Return the implementation behind a store, for work on two stores at once. All others call the methods."""
    return store._operations  # noqa: SLF001 - this is its module
