"""Quotes: messages of the thread inside other values are stored as refs to their seqs, not again.

A `Send` carries the whole state to a task, and a node may write all messages to another channel. Stored as they are,
these would make a thread grow with the square of its messages.

    {"!": "quote", "of": [{"said": ranges of seqs, "n": how many}, [further items of the list]]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from langchain_core.messages import BaseMessage

from everturn.adapters._shared.values import TAG
from everturn.adapters.langgraph.cache import ChannelContents, SeqMessages, ThreadView
from everturn.adapters.langgraph.checkpoint_log import INPUT, MESSAGES, Ranges, Ref, StoredCheckpoint, seqs_in
from everturn.adapters.langgraph.values import ChannelCodec, StoredMessage
from everturn.model import JSON

LEAST = 2  # messages that make a quote worth it


class UnknownMessages(Exception):
    """A quote refers to messages that have not been read."""


def are_messages(values: Iterable[object]) -> bool:
    """Whether all values are LangChain's messages."""
    for kind in {*map(type, values)}:  # noqa: SIM110 - at every step of a graph, and all() takes twice as long
        if BaseMessage not in kind.__mro__:  # pydantic's issubclass is slow
            return False
    return True


class Conversation(msgspec.Struct, frozen=True):
    """The messages of a checkpoint, their ranges of seqs, and the seqs of those on a left branch (`left`)."""

    said: SeqMessages = ()
    ranges: Ranges = []
    left: frozenset[int] = frozenset()

    def first(self, count: int) -> Ref:
        """Return a ref to the first `count` messages."""
        last_seq = self.said[count - 1][0]
        ranges: Ranges = []
        for first, last, *is_left in self.ranges:
            if first <= last_seq <= last and bool(is_left) == (last_seq in self.left):
                return {"said": [*ranges, [first, last_seq, *is_left]], "n": count}
            ranges.append([first, last, *is_left])
        raise AssertionError(self.ranges)  # pragma: no cover - each of its messages is in one


def conversation_of(stored: StoredCheckpoint, contents: ChannelContents) -> Conversation:
    """Return the conversation of a checkpoint; an empty one if it has no messages, or they are not known."""
    return conversation(stored.refs, contents.said, contents.left)


def conversation_in(view: ThreadView | None) -> Conversation:
    """Return the conversation of a thread's latest checkpoint.

    Writes of a task may quote it, whichever checkpoint they are for: they may come before their own checkpoint is
    stored, or after the next one.
    """
    return Conversation() if view is None or view.stored is None else conversation_of(view.stored, view.contents)


def conversation(refs: Mapping[str, Ref], said: SeqMessages | None, left: frozenset[int]) -> Conversation:
    """Return the conversation of a checkpoint with these refs; an empty one if its messages are not known."""
    ref = refs.get(MESSAGES)
    return Conversation(said, ref["said"], left) if said and isinstance(ref, dict) and "said" in ref else Conversation()


def input_messages_ref(stored: StoredCheckpoint | None) -> Ref:
    """Return the ref of the messages in a subgraph's input, if this is its first checkpoint; else None."""
    given = stored.values.get(INPUT) if stored is not None and MESSAGES not in stored.refs else None
    quote = given.get(MESSAGES) if type(given) is dict and TAG not in given else None
    return quote["of"][0] if type(quote) is dict and quote.get(TAG) == "quote" else None


class QuotingCodec(ChannelCodec):
    """Encodes and decodes values with quotes of a conversation."""

    def __init__(self, codec: ChannelCodec, conversation: Conversation) -> None:
        self.allowed, self.opaque, self.serde = codec.allowed, codec.opaque, codec.serde
        self._plain = codec
        self._conversation = conversation
        self._quotes: dict[int, tuple[object, JSON]] = {}  # by id() of a list: many tasks get the same list
        self._resolved: dict[str, list[StoredMessage]] = {}
        self.has_quoted = False

    def _encode(self, value: Any) -> JSON:
        if type(value) is list and len(value) >= LEAST and self._conversation.said and are_messages(value):
            if id(value) not in self._quotes:
                self._quotes[id(value)] = value, self._quoted(value)
            return self._quotes[id(value)][1]
        return super()._encode(value)

    def _encode_other(self, value: Any) -> JSON:
        # Inside a message nothing is quoted: its fields are stored as they are, and may look like a quote.
        return self._plain.encode(value) if isinstance(value, BaseMessage) else super()._encode_other(value)

    def _quoted(self, messages: list[Any]) -> JSON:
        same = self.unchanged(messages, self._conversation.said)
        if same < LEAST:
            return super()._encode(messages)
        self.has_quoted = True
        return {TAG: "quote", "of": [self._conversation.first(same), [self._encode(item) for item in messages[same:]]]}

    def unquoted(self, node: JSON) -> JSON:
        """Return an encoded value with the messages themselves in place of quotes."""
        if type(node) is list:
            return [self.unquoted(item) for item in node]
        if type(node) is not dict:
            return node
        match node.get(TAG):
            case "quote":
                ref, more = node["of"]
                return [self._plain.encode(self.to_message(kept)) for kept in self._messages(ref)] + self.unquoted(more)
            case "message":
                return node
        return {name: self.unquoted(item) for name, item in node.items()}

    def _decode_other(self, what: str, of: JSON) -> Any:
        if what == "quote":
            ref, more = of
            return [*map(self.to_message, self._messages(ref)), *map(self._decode, more)]
        return super()._decode_other(what, of)

    def _messages(self, ref: Ref) -> list[StoredMessage]:
        name = repr(ref["said"])
        if name not in self._resolved:
            said, left = dict(self._conversation.said), self._conversation.left
            found = seqs_in(ref["said"], sorted(said.keys() - left), sorted(said.keys() & left))
            if len(found) != ref["n"]:  # it refers to other messages, too; with an equal count they are the same
                raise UnknownMessages
            self._resolved[name] = [said[seq] for seq in found]
        return self._resolved[name]

    def resolve(self, ref: Ref, said: SeqMessages) -> None:
        """Add the messages of a quote that are not in the conversation."""
        self._resolved[repr(ref["said"])] = [kept for _, kept in said]

    def unresolved(self, nodes: Iterable[JSON]) -> list[Ref]:
        """Return the refs of quotes in nodes whose messages are not known yet, each once."""
        refs = {repr(ref["said"]): ref for node in nodes for ref in quotes_in(node)}
        return [ref for ref in refs.values() if not self._is_known(ref)]

    def _is_known(self, ref: Ref) -> bool:
        try:
            self._messages(ref)
        except UnknownMessages:
            return False
        return True


def quotes_in(node: JSON) -> Iterator[Ref]:
    """Yield the ref of every quote in a value."""
    if type(node) is list:
        for item in node:
            yield from quotes_in(item)
    elif type(node) is dict:
        match node.get(TAG):
            case "quote":
                yield node["of"][0]
                yield from quotes_in(node["of"][1])
            case "message":
                pass
            case _:
                for item in node.values():
                    yield from quotes_in(item)


def requoted(node: JSON, moved: Callable[[Ranges], Ranges]) -> JSON:
    """Return a value with the ranges of its quotes replaced by `moved`."""
    if type(node) is list:
        return [requoted(item, moved) for item in node]
    if type(node) is not dict:
        return node
    match node.get(TAG):
        case "quote":
            ref, more = node["of"]
            return {TAG: "quote", "of": [ref | {"said": moved(ref["said"])}, requoted(more, moved)]}
        case "message":
            return node
    return {name: requoted(item, moved) for name, item in node.items()}
