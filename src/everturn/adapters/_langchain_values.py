"""What LangChain's messages hold, as JSON and back, faithfully or not at all. Knows no store and no LangGraph.

JSON's own types stand as they are, so that a store can be read by people. Everything else is an object with a "!",
which says what it is. Classes of others are not restored here: no pickle, no import of what a file asks for.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from enum import Enum
from typing import Any

from langchain_core.messages import BaseMessage

from everturn import ChatMessage
from everturn.adapters import _langchain_messages as messages
from everturn.model import JSON

MARK = "!"


class Unfaithful(ValueError):
    """A value that would not come back as it is, or has not. The text says what and why; its reader knows where."""


class Values:
    """Encodes and decodes. A framework that has values of its own adds them where this class knows no more."""

    # --- in ----------------------------------------------------------------------------------------------------------

    def encode(self, value: Any) -> JSON:
        """The value as JSON. Raises Unfaithful if `decode` would not give it back."""
        return self._encode(value)

    def _encode(self, value: Any) -> JSON:
        kind = type(value)
        if kind is str:
            return checked(value)
        if messages.is_json(value) and kind is not list and kind is not dict:
            return value
        if kind is list:
            return [self._encode(item) for item in value]
        if kind is dict:
            if MARK not in value and all(type(name) is str for name in value):
                return {checked(name): self._encode(item) for name, item in value.items()}
            return {MARK: "dict", "of": [[self._encode(name), self._encode(item)] for name, item in value.items()]}
        if kind in _COLLECTIONS:
            return {MARK: kind.__name__, "of": [self._encode(item) for item in value]}
        if kind is int:
            return {MARK: "int", "of": str(value)}
        if kind is bytes:
            return {MARK: "bytes", "of": b64encode(value).decode()}
        if isinstance(value, BaseMessage) and messages.is_known(value):
            return {MARK: "message", "of": self.encode_message(value, names_itself=False).to_dict()}
        if isinstance(value, BaseMessage) and (plain := messages.without_extra(value)) is not None:
            return {MARK: "extended", "of": [self._encode(plain), self._encode(value.model_extra)]}
        return self._encode_other(value)

    def _encode_other(self, value: Any) -> JSON:
        if base := base_of(value):
            return self._encode(base(value))
        raise Unfaithful(f"{type(value).__qualname__} cannot be stored as JSON and come back as it is")

    def encode_message(self, message: BaseMessage, *, names_itself: bool = False) -> ChatMessage:
        """A message as an entry. `names_itself`: see `_langchain_messages.to_entry`."""
        return messages.to_entry(message, self._encode, names_itself=names_itself)

    # --- out ---------------------------------------------------------------------------------------------------------

    def decode(self, node: JSON) -> Any:
        """The value. Raises Unfaithful if what it needs is not here, or not allowed."""
        return self._decode(node)

    def _decode(self, node: JSON) -> Any:
        kind = type(node)
        if kind is list:
            return [self._decode(item) for item in node]
        if kind is not dict:
            return node
        if MARK not in node:
            return {name: self._decode(item) for name, item in node.items()}
        what, of = node[MARK], node["of"]
        match what:
            case "message":
                return self.decode_message(ChatMessage.from_dict(of))
            case "extended":
                return messages.with_extra(self._decode(of[0]), self._decode(of[1]))
            case "dict":
                return {self._decode(name): self._decode(item) for name, item in of}
            case "int":
                return int(of)
            case "bytes":
                return b64decode(of)
        if made := _BY_NAME.get(what):
            return made(self._decode(item) for item in of)
        return self._decode_other(what, of)

    def _decode_other(self, what: str, of: JSON) -> Any:  # noqa: ARG002 - what a framework's own values are made from
        raise Unfaithful(f"{what!r} is a form that LangGraph's adapter writes: read it with its to_langchain(history)")

    def decode_message(self, entry: ChatMessage) -> BaseMessage:
        """The message an entry stands for, whoever wrote it. Raises Unfaithful if its class is not here."""
        if (whole := messages.whole(entry)) is not None:
            message: BaseMessage = self._decode(whole)
            return message
        kind, fields = self._fields(entry, None)
        return messages.build(kind, fields, messages.mutable(fields))

    def _fields(self, entry: ChatMessage, unnamed: str | None) -> tuple[type[BaseMessage], messages.Fields]:
        try:
            return messages.from_entry(entry, self._decode, unnamed=unnamed)
        except KeyError as exc:
            raise Unfaithful(f"LangChain's message class {exc} is not in the version installed here") from exc


_COLLECTIONS = (tuple, set, frozenset)
_BY_NAME = {kind.__name__: kind for kind in _COLLECTIONS}


def base_of(value: Any) -> type | None:
    """The type of JSON's that a value of a subclass is equal to (a `defaultdict`, LangChain's `message.text`)."""
    bases: tuple[type[Any], ...] = (str, int, float, list, dict)
    if isinstance(value, Enum) or type(value) in bases:
        return None
    return next((base for base in bases if isinstance(value, base) and value == base(value)), None)


_SURROGATE = re.compile("[\ud800-\udfff]")


def checked(text: str) -> str:
    """The text, if it can be stored. Raises Unfaithful."""
    if not text.isascii() and (found := _SURROGATE.search(text)):
        raise Unfaithful(f"the lone surrogate U+{ord(found[0]):04X} at {found.start()} cannot be stored")
    return text
