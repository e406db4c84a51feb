"""Turns a checkpoint, or the writes of a task, into entries. Only new values are stored. Pure.

A checkpoint becomes its new messages, as messages of the session, and one record (`lg.put`) with its new values and
refs to the old ones. checkpoint_log.py defines the record. The writes of a task become one record (`lg.writes`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage, RemoveMessage

from everturn import ChatMessage, Record
from everturn.adapters._shared.values import TAG, RoundTripError, equal
from everturn.adapters.langgraph.cache import ChannelContents, SeqMessages
from everturn.adapters.langgraph.checkpoint_log import (
    INPUT,
    MESSAGES,
    WRITES,
    Object,
    Ranges,
    Ref,
    StoredCheckpoint,
    extended,
    ranges_of,
    written,
)
from everturn.adapters.langgraph.config import SEPARATOR
from everturn.adapters.langgraph.errors import refused
from everturn.adapters.langgraph.message_refs import LEAST, Conversation, QuotingCodec, are_messages, conversation
from everturn.adapters.langgraph.values import ChannelCodec, StoredMessage
from everturn.model import JSON, Entry

SHORT = 40  # characters; a shorter value is stored in place, not as a ref
_OWN = frozenset({"id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"})


class CheckpointPut(msgspec.Struct, frozen=True):
    """A checkpoint to be put.

    `head`: the thread's latest checkpoint when the run read it, if known. `begins`: the run read an empty thread.
    """

    thread: str
    session_id: str
    parent: str | None
    head: str | None
    begins: bool
    id: str
    checkpoint: Mapping[str, Any]
    metadata: Object
    new_versions: Mapping[str, int | float | str]


class ComposedPut(msgspec.Struct, frozen=True):
    """The entries to append, the checkpoint's record last, and the checkpoint and values as they will read."""

    entries: list[Entry]
    stored: StoredCheckpoint
    contents: ChannelContents
    given: JSON  # the input, encoded as tasks will encode it when they pass it on


class CheckpointComposer:
    """Composes the entries of one checkpoint, to be stored from seq `first` on, as changes of the checkpoint `base`."""

    def __init__(
        self,
        codec: ChannelCodec,
        put: CheckpointPut,
        base: StoredCheckpoint | None,
        known: ChannelContents,
        *,
        first: int,
        directly: bool,
        unclaimed: SeqMessages = (),
        input_messages: Conversation | None = None,
        begins: bool = False,
    ) -> None:
        """`directly`: no other checkpoint is stored between the base and this one. `unclaimed`: messages that others
        appended after the base, and that no checkpoint has yet. `input_messages`: those of a subgraph's input, if
        stored already. `begins`: the session has no messages."""
        self._codec = codec
        self._put = put
        self._base = base
        self._known = known
        self._first = first
        self._directly = directly
        self._unclaimed = unclaimed
        self._input_messages = input_messages
        self._begins = begins
        self._refs: dict[str, Ref] = {}
        self._inline: dict[str, JSON] = {}
        self._pieces: dict[str, list[JSON]] = {}
        self._entries: list[ChatMessage] = []
        self._said: SeqMessages | None = None
        self._nodes: dict[str, JSON] = {}
        self._lists: dict[str, list[JSON]] = {}
        self._quoting: QuotingCodec | None = None

    def compose(self, *, early: Sequence[int] = (), awaiting: Sequence[tuple[str, int]] = ()) -> ComposedPut:
        """Compose the entries. Raises InvalidInput, naming the channel, if a value would not come back equal."""
        checkpoint = self._put.checkpoint
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        if self._begins and SEPARATOR in self._put.session_id and INPUT in values and MESSAGES not in values:
            self._write_input_messages(values[INPUT])
        told = len(self._entries)
        # The messages first: other channels quote them.
        channels = {MESSAGES: None} if MESSAGES in values or MESSAGES in versions else {}
        for channel in {**channels, **versions, **values}:
            try:
                self._write_channel(channel, values, versions)
            except RoundTripError as exc:
                raise refused(self._put.thread, self._put.id, channel, exc) from exc
        state: Object = {
            "versions": dict(versions),
            "seen": {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()},
            "meta": self._put.metadata,
            "refs": self._refs,
        }
        for name, value in checkpoint.items():
            if name not in _OWN:
                state[name] = self._codec.encode_readable(value)
        stored = StoredCheckpoint(
            self._seq,
            self._put.id,
            checkpoint["ts"],
            self._put.parent,
            checkpoint.get("updated_channels"),
            state,
            self._inline,
            self._pieces,
            len(self._entries) - told,
            tuple(early),
            tuple(awaiting),
        )
        stored, record = written(stored, self._base if self._directly else None)
        left = self._known.left & {seq for seq, _ in self._said or ()} if self._known.left else self._known.left
        given = stored.values.get(INPUT)
        if self._input_messages is not None and given is not None:
            given = self._codec.encode(values[INPUT])
        input_messages = self._input_messages.said if told and self._input_messages else ()
        return ComposedPut(
            [*self._entries, record],
            stored,
            ChannelContents(self._said, left, self._nodes, self._lists, input_messages),
            given,
        )

    def _write_input_messages(self, given: Any) -> None:
        """Store the messages of a subgraph's input as messages, and quote them in the input.

        The subgraph's next checkpoint has the same messages: stored in the input, they would be stored twice.
        """
        messages = given.get(MESSAGES) if type(given) is dict and not self._codec.opaque else None
        if type(messages) is not list or len(messages) < LEAST or not are_messages(messages):
            return
        if any(message.id is None or isinstance(message, RemoveMessage) for message in messages):
            return  # LangGraph will give it an id, and so make it a different message
        try:
            said = tuple([self._write_message(message) for message in messages])
        except RoundTripError as exc:
            raise refused(self._put.thread, self._put.id, INPUT, exc) from exc
        self._input_messages = Conversation(said, [[said[0][0], said[-1][0]]])

    @property
    def _seq(self) -> int:
        return self._first + len(self._entries)

    def _write_channel(self, channel: str, values: Mapping[str, Any], versions: Mapping[str, Any]) -> None:
        old = self._base.refs.get(channel) if self._base else None
        is_new = channel in self._put.new_versions or channel not in versions
        if not is_new and old is not None and self._base and self._base.versions.get(channel) == versions[channel]:
            self._keep_channel(channel, old)
            return
        if channel not in values:
            return
        value = values[channel]
        if channel == MESSAGES and type(value) is list and value and not self._codec.opaque and are_messages(value):
            self._write_messages_channel(channel, value, old)
        elif type(value) is list:
            self._write_list(channel, [self._encoded(item) for item in value], old)
        else:
            self._write_value(channel, self._encoded(value), old)

    def _encoded(self, value: Any) -> JSON:
        if self._quoting is None:  # the channel of messages came first
            said = conversation(self._refs, self._said, self._known.left)
            self._quoting = QuotingCodec(self._codec, said if said.said else self._input_messages or said)
        return self._quoting.encode(value)

    def _keep_channel(self, channel: str, old: Ref) -> None:
        self._refs[channel] = old
        if channel in self._known.nodes:
            self._nodes[channel] = self._known.nodes[channel]
        if channel in self._known.lists:
            self._lists[channel] = self._known.lists[channel]
        if isinstance(old, dict) and "said" in old:
            self._keep_conversation(channel, old)

    def _write_value(self, channel: str, node: JSON, old: Ref) -> None:
        if len(repr(node)) <= SHORT:
            self._refs[channel] = {"is": node}
            return
        known = self._known.nodes.get(channel) if isinstance(old, int) and channel != INPUT else None
        if known is not None and equal(known, node):
            self._refs[channel] = old
        else:
            self._refs[channel] = self._seq
            self._inline[channel] = node
        self._nodes[channel] = node

    def _write_list(self, channel: str, nodes: list[JSON], old: Ref) -> None:
        known = self._known.lists.get(channel) if isinstance(old, dict) and "list" in old else None
        seq = self._seq
        if known is not None and len(known) <= len(nodes) and equal(known, nodes[: len(known)]):
            added = nodes[len(known) :]
            ranges = extended(old, seq, seq, directly=self._directly) if added else old["list"]
        else:
            added, ranges = nodes, [[seq, seq]]
        if added or known is None:
            self._pieces[channel] = added
        self._refs[channel] = {"list": ranges, "n": len(nodes)}
        if not added and isinstance(old, dict) and "closed" in old:
            self._refs[channel]["closed"] = True
        self._lists[channel] = nodes

    # --- messages ----------------------------------------------------------------------------------------------------

    def _write_messages_channel(self, channel: str, messages: list[BaseMessage], old: Ref) -> None:
        is_old = isinstance(old, dict) and "said" in old
        known = (self._known.said or ()) if is_old else ()
        same = self._codec.unchanged(messages, known)
        if same == len(known) and not (self._unclaimed and len(messages) > same):
            added = [self._write_message(message) for message in messages[same:]]
            if not added:
                self._keep_conversation(channel, old)
                return
            self._said = (*known, *added)
            ranges = extended(old if is_old else {}, added[0][0], added[-1][0], directly=self._directly)
            self._refs[channel] = {"said": ranges, "n": len(messages)}
            return
        self._said = tuple(self._matched(messages, (*known, *self._unclaimed)))
        last = self._entries and self._said[-1][0] == self._first + len(self._entries) - 1
        following = _following(old["said"] if is_old else [], [seq for seq, _ in known], self._known.left)
        following |= dict(pairwise(seq for seq, _ in self._unclaimed))
        following |= dict(pairwise(range(self._first, self._first + len(self._entries))))
        ranges = ranges_of([seq for seq, _ in self._said], following, self._known.left)
        self._refs[channel] = {"said": ranges, "n": len(messages)} | ({} if last else {"closed": True})

    def _keep_conversation(self, channel: str, old: Ref) -> None:
        self._said = self._known.said
        self._refs[channel] = old | {"closed": True} if self._unclaimed else old

    def _matched(self, messages: list[BaseMessage], known: SeqMessages) -> list[tuple[int, StoredMessage]]:
        """Match messages of an edited list with stored ones, by id and content; the others are written anew."""
        by_id = {kept.name: (seq, kept) for seq, kept in known}
        found = []
        for message in messages:
            there = by_id.pop(message.id, None) if message.id is not None else None
            found.append(there if there and self._codec.unchanged([message], [there]) else self._write_message(message))
        return found

    def _write_message(self, message: BaseMessage) -> tuple[int, StoredMessage]:
        entry = self._codec.encode_message(message)
        self._entries.append(entry)
        return self._first + len(self._entries) - 1, self._codec.stored_message(entry)


def _following(ranges: Ranges, seqs: Sequence[int], left: Container[int]) -> dict[int, int]:
    """Map each message of the ranges to the next one in the same range."""
    following: dict[int, int] = {}
    at = 0
    for first, last, *is_left in ranges:
        start = at
        while at < len(seqs) and first <= seqs[at] <= last and (seqs[at] in left) == bool(is_left):
            at += 1
        following |= dict(pairwise(seqs[start:at]))
    return following


# --- writes ----------------------------------------------------------------------------------------------------------


def writes_record(
    checkpoint: str, task: str, path: str, writes: Sequence[tuple[str, JSON]], given: JSON = None
) -> tuple[Object, Record]:
    """Return the writes of a task as they will read, and their record.

    A long value that a task only passes on from the input (`given`) is stored as a reference to the input.
    """
    known = given if isinstance(given, dict) and TAG not in given else {}
    told: list[list[JSON]] = []
    for channel, node in writes:
        came_in = channel in known and len(repr(node)) > SHORT and equal(known[channel], node)
        told.append([channel, {TAG: "input", "of": channel} if came_in else node])
    body: Object = {"for": checkpoint, "task": task, "path": path, "writes": told}
    return body, Record(WRITES, body)


def is_input(node: JSON) -> bool:
    """Whether a write is a reference to the input of its checkpoint."""
    return type(node) is dict and node.get(TAG) == "input"


def passes_input_on(records: Sequence[tuple[int, Object]]) -> bool:
    """Whether any of these writes refers to the input of its checkpoint."""
    return any(is_input(node) for _, body in records for _, node in body["writes"])
