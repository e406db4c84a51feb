"""What is known of the sessions of LangGraph threads, and remembered. Reads nothing and changes nothing.

A view is of one version of a session. What it remembers is only ever used for that version, which the store checks
with every put; entries never change, so that nothing else can go stale.
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

MOST_SESSIONS, MOST_MESSAGES = 256, 50_000  # remembered
PASSED = 16  # checkpoints of a view that are known by name

SeqMessages: TypeAlias = tuple[tuple[int, StoredMessage], ...]  # messages with their seqs
Awaiting: TypeAlias = tuple[tuple[str, int, Object], ...]  # records of writes, and the checkpoint each waits for


class ChannelContents(msgspec.Struct, frozen=True):
    """The values of a checkpoint, as far as they have been read: JSON, and messages."""

    said: SeqMessages | None = None
    left: frozenset[int] = frozenset()  # those said in a branch that was left
    nodes: Mapping[str, JSON] = {}
    lists: Mapping[str, list[JSON]] = {}
    input_messages: SeqMessages = ()  # what a subgraph was given to begin with, at the checkpoint of that


class ThreadView(msgspec.Struct, frozen=True):
    """A session at one version: the checkpoint its thread stands at, and what hangs on it."""

    session_id: str
    life: str = ""
    version: int = 0
    last_seq: int = 0
    stored: StoredCheckpoint | None = None
    writes: tuple[tuple[int, Object], ...] = ()  # of the point's tasks
    awaiting: Awaiting = ()  # of checkpoints that have not come yet
    unclaimed: bool = False  # messages that are no checkpoint's stand behind the point
    passed: tuple[str, ...] = ()  # the checkpoints before the point, the latest few: what comes for them comes late
    contents: ChannelContents = ChannelContents()

    @property
    def expected(self) -> Receipt | int:
        """For `expected_version`."""
        return Receipt(self.session_id, self.life, self.version) if self.version else 0


class ThreadCache:
    """The views that were learnt last. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._views: OrderedDict[str, ThreadView] = OrderedDict()
        self._messages = 0
        self._inputs: OrderedDict[tuple[str, str], JSON] = OrderedDict()

    def get(self, session_id: str) -> ThreadView | None:
        return self._views.get(session_id)  # one step of the interpreter: it needs no lock

    def put(self, view: ThreadView) -> None:
        """Remember a view, unless a later one is known."""
        with self._lock:
            known = self._views.get(view.session_id)
            if known is None or known.life != view.life or known.version <= view.version:
                self._set(view)

    def follow(self, receipt: Receipt, step: Callable[[ThreadView], ThreadView]) -> None:
        """Take the step from the view before the receipt to the one after it, if that is known."""
        with self._lock:
            known = self._views.get(receipt.session_id)
            if known is not None and known.life == receipt.life and known.version == receipt.version - 1:
                self._set(step(known))

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._drop(session_id)

    def expect(self, session_id: str, checkpoint: str, given: JSON) -> None:
        """Remember the input that a checkpoint is about to be put with (None: with none): its first task passes it
        on."""
        if given is None and (session_id, checkpoint) not in self._inputs:
            return
        with self._lock:
            self._inputs.pop((session_id, checkpoint), None)
            if given is not None:
                self._inputs[session_id, checkpoint] = given
            if len(self._inputs) > MOST_SESSIONS:
                self._inputs.popitem(last=False)

    def input_of(self, session_id: str, checkpoint: str) -> JSON:
        """None if it is not known."""
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
