"""ThreadCache: the latest known state of each thread, so that a put need not read it again. No IO.

A ThreadView is of one version of a session, and is used for that version only: the store checks it with every put.
Entries never change, so nothing else in it can become stale.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TypeAlias

import msgspec

from everturn import Receipt
from everturn.adapters.langgraph.checkpoint_log import Object, StoredCheckpoint
from everturn.adapters.langgraph.values import StoredMessage
from everturn.model import JSON

MOST_SESSIONS, MOST_MESSAGES = 256, 50_000  # most that are cached
PASSED = 16  # earlier checkpoints whose ids a view keeps

SeqMessages: TypeAlias = tuple[tuple[int, StoredMessage], ...]  # messages with their seqs
Awaiting: TypeAlias = tuple[tuple[str, int, Object], ...]  # records of writes, and the checkpoint each waits for


class ChannelContents(msgspec.Struct, frozen=True):
    """Values of a checkpoint's channels, as far as they have been read: JSON, and messages."""

    said: SeqMessages | None = None
    left: frozenset[int] = frozenset()  # seqs of those that are on a branch that was left
    nodes: Mapping[str, JSON] = {}
    lists: Mapping[str, list[JSON]] = {}
    input_messages: SeqMessages = ()  # messages in a subgraph's input, if this is its first checkpoint


class ThreadView(msgspec.Struct, frozen=True):
    """A session at one version: its thread's latest checkpoint with its writes and values."""

    session_id: str
    life: str = ""
    version: int = 0
    last_seq: int = 0
    stored: StoredCheckpoint | None = None
    writes: tuple[tuple[int, Object], ...] = ()  # of the checkpoint's tasks, with their seqs
    awaiting: Awaiting = ()  # writes whose checkpoint has not been put yet
    unclaimed: bool = False  # messages after the checkpoint that belong to none
    passed: tuple[str, ...] = ()  # ids of the latest few checkpoints before it: writes for these come late
    contents: ChannelContents = ChannelContents()

    @property
    def expected(self) -> Receipt | int:
        """Value for `expected_version` of a change based on this view."""
        return Receipt(self.session_id, self.life, self.version) if self.version else 0


class ThreadCache:
    """The latest views, least recently set dropped first. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._views: OrderedDict[str, ThreadView] = OrderedDict()
        self._messages = 0
        self._inputs: OrderedDict[tuple[str, str], JSON] = OrderedDict()

    def get(self, session_id: str) -> ThreadView | None:
        """Return the view of a session; None if it is not cached."""
        return self._views.get(session_id)  # atomic in CPython: needs no lock

    def put(self, view: ThreadView) -> None:
        """Cache a view, unless a later one of the same life is cached."""
        with self._lock:
            known = self._views.get(view.session_id)
            if known is None or known.life != view.life or known.version <= view.version:
                self._set(view)

    def follow(self, receipt: Receipt, step: Callable[[ThreadView], ThreadView]) -> None:
        """Replace the view before a change by the one after it, which `step` makes, if the former is cached."""
        with self._lock:
            known = self._views.get(receipt.session_id)
            if known is not None and known.life == receipt.life and known.version == receipt.version - 1:
                self._set(step(known))

    def forget(self, session_id: str) -> None:
        """Drop the view of a session."""
        with self._lock:
            self._drop(session_id)

    def expect(self, session_id: str, checkpoint: str, given: JSON) -> None:
        """Cache the input of a checkpoint that is about to be put (None: it has none), for its tasks' writes."""
        if given is None and (session_id, checkpoint) not in self._inputs:
            return
        with self._lock:
            self._inputs.pop((session_id, checkpoint), None)
            if given is not None:
                self._inputs[session_id, checkpoint] = given
            if len(self._inputs) > MOST_SESSIONS:
                self._inputs.popitem(last=False)

    def input_of(self, session_id: str, checkpoint: str) -> JSON:
        """Return the input of a checkpoint; None if it is not cached."""
        with self._lock:
            return self._inputs.get((session_id, checkpoint))

    def _set(self, view: ThreadView) -> None:
        if (known := self._views.pop(view.session_id, None)) is not None:
            self._messages -= len(known.contents.said or ())
        self._views[view.session_id] = view
        self._messages += len(view.contents.said or ())
        while len(self._views) > 1 and (len(self._views) > MOST_SESSIONS or self._messages > MOST_MESSAGES):
            self._drop(next(iter(self._views)))

    def _drop(self, session_id: str) -> None:
        view = self._views.pop(session_id, None)
        if view is not None:
            self._messages -= len(view.contents.said or ())
