"""Channel values as JSON and back, or a refusal.

_shared/values.py has Python's values, langchain/values.py has messages. Here are LangGraph's own types and the caller's
classes. A class is restored only if it is allowed by name. No pickle.
"""

from __future__ import annotations

import dataclasses
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import msgspec
import ormsgpack
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from pydantic import BaseModel

from everturn import ChatMessage, InvalidInput
from everturn.adapters._shared.values import TAG, RoundTripError, checked, equal, short
from everturn.adapters.langchain import messages
from everturn.adapters.langchain import values as langchain
from everturn.model import JSON

Name: TypeAlias = tuple[str, ...]  # module and class
Allow: TypeAlias = "Collection[Name | type] | Mapping[str, type]"
"""Classes that may be restored; for renamed ones a mapping of old dotted names to classes."""
Allowed: TypeAlias = dict[Name, type | None]  # None: import it by its name


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A stored message, with the fields of LangChain's message, decoded once. No fields for a class of the caller's.

    gc=False: there are thousands, and none is part of a reference cycle.
    """

    entry: ChatMessage
    template: messages.MessageTemplate | None = None
    fields: messages.Fields = {}

    @property
    def name(self) -> str | None:
        """Id of the message; None if it has none."""
        return self.entry.id if self.template is None else self.fields["id"]


class ChannelCodec(langchain.LangChainCodec):
    """Encodes and decodes channel values. With the caller's `serde`, everything goes through it (`opaque`)."""

    def __init__(self, serde: SerializerProtocol | None, allow: Allow) -> None:
        self.allowed: Allowed = allowed_by(allow)
        self.opaque = serde is not None
        self.serde: SerializerProtocol = serde or StrictSerializer(self.allowed)

    def allowing(self, more: Allow) -> ChannelCodec:
        """Return a codec that may restore more classes."""
        values = ChannelCodec(self.serde if self.opaque else None, ())
        given = {name: kind for name, kind in self.allowed.items() if kind is not None}
        values.allowed = {**self.allowed, **allowed_by(more), **given}
        if not self.opaque:
            values.serde = StrictSerializer(values.allowed)
        return values

    # --- in ----------------------------------------------------------------------------------------------------------

    def encode(self, value: Any) -> JSON:
        """Return the value as JSON. Raises RoundTripError if `decode` would not return an equal value."""
        return self._encode_with_serde(value) if self.opaque else self._encode(value)

    def encode_readable(self, value: Any) -> JSON:
        """Return the value as JSON even with the caller's `serde`: for metadata, which `list` filters by."""
        return self._encode(value)

    def _encode_other(self, value: Any) -> JSON:
        if isinstance(value, BaseMessage):
            return super()._encode_other(value)
        kind = type(value)
        if kind is _DeltaSnapshot:
            return {TAG: "snapshot", "of": self._encode(value.value)}
        if kind is Send:
            return {TAG: "send", "of": [self._encode(part) for part in (value.node, value.arg, value.timeout)]}
        if isinstance(value, BaseException):
            return repr(value)  # as LangGraph stores an error
        if _is_plain(kind):
            return self._encode_dataclass(value)
        if isinstance(value, BaseModel):
            return self._encode_model(value)
        return super()._encode_other(value)

    def _encode_unknown(self, value: Any) -> JSON:
        return self._encode_with_serde(value)

    def encode_message(self, message: BaseMessage, *, names_itself: bool = True) -> ChatMessage:
        """Return a message as an entry. `names_itself`: as in langchain/messages.py."""
        entry = messages.to_entry(message, self._encode, names_itself=names_itself)
        if entry.metadata or entry.tool_calls or type(entry.content) is not str:
            _check_text(entry.to_dict())
        else:
            for text in (entry.content, entry.name, entry.id, entry.tool_call_id):
                if text is not None and not text.isascii():
                    checked(text)
        return entry

    def _encode_dataclass(self, value: Any) -> JSON:
        name = _name(type(value))
        fields = {field.name: self._encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        node = {TAG: "object", "of": [*name, fields]}
        _compare(value, self._decode(node))
        return node

    def _encode_model(self, value: BaseModel) -> JSON:
        """Encode a Pydantic model by field. `model_dump` would turn messages inside it into dicts."""
        fields = {name: self._encode(getattr(value, name)) for name in type(value).model_fields}
        more = {name: self._encode(item) for name, item in (value.__pydantic_extra__ or {}).items()}
        node = {TAG: "model", "of": [*_name(type(value)), fields, more, sorted(value.model_fields_set)]}
        _compare(value, self._decode(node))
        return node

    def _encode_with_serde(self, value: Any) -> JSON:
        if self.opaque:
            # LangGraph writes tuples (of interrupts) and exceptions, which a caller's serializer may not know.
            if type(value) is tuple:
                return {TAG: "tuple", "of": [self._encode_with_serde(item) for item in value]}
            if isinstance(value, BaseException):
                value = repr(value)
        try:
            kind, packed = self.serde.dumps_typed(value)
        except (TypeError, ValueError) as exc:
            raise RoundTripError(f"{type(value).__qualname__} cannot be serialized: {exc}") from exc
        node = {TAG: "serde", "of": [kind, b64encode(packed).decode()]}
        if not self.opaque:  # a caller's serializer may lose what it likes
            _compare(value, self._decode(node))
        return node

    # --- out ---------------------------------------------------------------------------------------------------------

    def _decode_other(self, what: str, of: JSON) -> Any:
        match what:
            case "serde":
                return self._decode_with_serde(of[0], b64decode(of[1]))
            case "snapshot":
                return _DeltaSnapshot(self._decode(of))
            case "send":
                name, argument, timeout = map(self._decode, of)
                return Send(name, argument) if timeout is None else Send(name, argument, timeout=timeout)
            case "object":
                return self._decode_object(*of)
            case "model":
                return self._decode_model(*of)
        return super()._decode_other(what, of)

    def decode_message(self, entry: ChatMessage) -> BaseMessage:
        """Return the message of an entry, whichever framework wrote it."""
        if entry.seq is None or entry.id is not None:
            return super().decode_message(entry)
        return self.to_message(self.stored_message(entry))

    def stored_message(self, entry: ChatMessage) -> StoredMessage:
        """Return a message of an entry in a form to compare with and to copy from many times."""
        if (entry.id is not None or entry.seq is None) and (
            plain_text_fields := messages.plain_text_fields(entry)
        ) is not None:
            return StoredMessage(entry, plain_text_fields[0], plain_text_fields[1])
        if messages.whole(entry) is not None:
            return StoredMessage(entry)
        # A graph needs ids. The seq is unique in the session and never changes, so it makes an id.
        kind, fields = self._fields(entry, None if entry.seq is None else messages.name_at(entry.seq))
        return StoredMessage(entry, messages.MessageTemplate.of(kind, fields), fields)

    def to_message(self, kept: StoredMessage) -> BaseMessage:
        """Build a new message, which the caller may change."""
        if kept.template is None:
            whole: BaseMessage = self._decode(messages.whole(kept.entry))
            return whole
        return kept.template.build(kept.fields.copy())

    def to_messages(self, said: Iterable[tuple[int, StoredMessage]]) -> list[BaseMessage]:
        """Build new messages, which the caller may change."""
        return [
            self.to_message(kept) if kept.template is None else kept.template.build(kept.fields.copy())
            for _, kept in said
        ]

    def unchanged(self, said: Sequence[BaseMessage], known: Iterable[tuple[int, StoredMessage]]) -> int:
        """Count the messages, from the first on, that equal the stored ones. Nodes may change messages in place."""
        count = 0
        for message, (_, kept) in zip(said, known, strict=False):
            template, fields, own = kept.template, kept.fields, message.__dict__
            is_same = (  # fast check, for LangChain's own classes; else compare the encoded forms
                template is not None
                and type(message) is template.kind
                and own == fields
                and not message.__pydantic_extra__
                and not message.__pydantic_private__
                and (not template.mutable or all(equal(fields[name], own[name]) for name in template.mutable))
            )
            if not is_same and not self._is_equal(message, kept):
                break
            count += 1
        return count

    def _is_equal(self, message: BaseMessage, kept: StoredMessage) -> bool:
        return message.id == kept.name and equal(kept.entry.to_dict(), self.encode_message(message).to_dict())

    def _decode_object(self, module: str, name: str, fields: dict[str, JSON]) -> Any:
        made = allowed_class((module, name), self.allowed)
        given = {field: self._decode(node) for field, node in fields.items()}
        later = {field.name for field in dataclasses.fields(made) if not field.init} if _is_plain(made) else set()
        try:
            value = made(**{field: item for field, item in given.items() if field not in later})
        except (TypeError, ValueError) as exc:
            raise RoundTripError(f"{module}.{name} cannot be made from what was stored: {exc}") from exc
        for field in later:
            object.__setattr__(value, field, given[field])
        return value

    def _decode_model(
        self, module: str, name: str, fields: dict[str, JSON], more: dict[str, JSON], given: list[str]
    ) -> Any:
        made = allowed_class((module, name), self.allowed)
        if not (isinstance(made, type) and issubclass(made, BaseModel)):
            raise RoundTripError(f"{module}.{name} was a Pydantic model when it was stored, and is none now")
        values = {field: self._decode(node) for field, node in {**fields, **more}.items()}
        return made.model_construct(_fields_set=set(given), **values)

    def _decode_with_serde(self, kind: str, packed: bytes) -> Any:
        try:
            return self.serde.loads_typed((kind, packed))
        except RoundTripError:
            raise
        except Exception as exc:  # a serializer of the caller's may raise anything
            raise RoundTripError(f"{type(exc).__name__}: {exc}") from exc


class StrictSerializer(jsonplus.JsonPlusSerializer):
    """LangGraph's msgpack serializer without pickle, and strict: a class that cannot be restored is an error."""

    def __init__(self, allowed: Allowed) -> None:
        super().__init__(pickle_fallback=False, allowed_msgpack_modules=None)
        self._allowed = allowed

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value. Raises RoundTripError where LangGraph's own serializer would return a partial one."""
        kind, packed = data
        if kind != "msgpack":
            return super().loads_typed(data)
        failures: list[RoundTripError] = []
        try:
            return self._unpack(packed, failures)
        except ValueError as exc:
            raise failures[0] if failures else RoundTripError(str(exc)) from exc

    def _unpack(self, packed: bytes, failures: list[RoundTripError]) -> Any:
        def rebuild(code: int, inner: bytes) -> Any:
            try:
                return self._rebuilt(code, self._unpack(inner, failures))
            except RoundTripError as exc:
                failures.append(exc)  # ormsgpack replaces an exception of its hook
                raise

        return ormsgpack.unpackb(packed, ext_hook=rebuild, option=ormsgpack.OPT_NON_STR_KEYS)

    def _rebuilt(self, code: int, parts: Any) -> Any:
        if code == jsonplus.EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(parts)
        if code == jsonplus.EXT_NUMPY_ARRAY:
            import numpy as np

            dtype, shape, order, buffer = parts
            return np.frombuffer(buffer, dtype=np.dtype(dtype)).reshape(shape, order=order)
        module, name, payload = parts[:3]
        if code == jsonplus.EXT_METHOD_SINGLE_ARG:
            if (module, name, parts[3]) not in SAFE_MSGPACK_METHODS:
                raise RoundTripError(f"{module}.{name}.{parts[3]} may not be called")
            return getattr(_imported(module, name), parts[3])(payload)
        made = allowed_class((module, name), self._allowed)
        try:
            if code == jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG:
                return made(payload)
            if code == jsonplus.EXT_CONSTRUCTOR_POS_ARGS:
                return made(*payload)
            return made(**payload)
        except (TypeError, ValueError) as exc:
            raise RoundTripError(f"{module}.{name} cannot be made from what was stored: {exc}") from exc


# --- names -----------------------------------------------------------------------------------------------------------


def allowed_by(allow: Allow) -> Allowed:
    """Return the names that may be restored, each with its class, if that was given.

    Raises InvalidInput for two classes of one name: only the name is stored.
    """
    if isinstance(allow, Mapping):
        renamed = {tuple(old.rpartition(".")[::2]): now for old, now in allow.items()}
        return {**allowed_by(allow.values()), **renamed}
    allowed: Allowed = {}
    for one in allow:
        name, given = _name(one), one if isinstance(one, type) else None
        known = allowed.get(name, given)
        if None not in (known, given) and known is not given:
            raise InvalidInput(f"two classes are named {'.'.join(name)!r}; rename one of them", path="allow")
        allowed[name] = known if given is None else given
    return allowed


def allowed_class(name: Name, allowed: Allowed) -> Any:
    """Return the class of a name. Raises RoundTripError if it is not allowed, or does not exist."""
    if (made := allowed.get(name)) is not None:
        return made
    if name not in allowed and name not in SAFE_MSGPACK_TYPES and name not in _OF_LANGGRAPH:
        raise RoundTripError(
            f"{'.'.join(name)} is not among the types that may be restored; "
            f"to allow it: EverturnSaver(store, allow=[{name[-1]}])"
        )
    return _imported(*name)


# States of LangGraph's own agents: safe, because making one runs no code.
_STATES = "langgraph.prebuilt.chat_agent_executor"
_OF_LANGGRAPH = frozenset({(_STATES, "AgentStatePydantic"), (_STATES, "AgentStateWithStructuredResponsePydantic")})


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise RoundTripError(
            f"{module}.{name} is not here any more ({exc}). If it was renamed, say what it is now: "
            f'EverturnSaver(store, allow={{"{module}.{name}": {name}}})'
        ) from exc


def _name(of: Name | type) -> Name:
    return (of.__module__, of.__name__) if isinstance(of, type) else tuple(of)


def _is_plain(made: Any) -> bool:
    return isinstance(made, type) and dataclasses.is_dataclass(made)


# --- faithfulness ----------------------------------------------------------------------------------------------------


def _check_text(node: JSON) -> None:
    """Check the texts of JSON that did not go through `_encode`. Raises RoundTripError for a lone surrogate."""
    if type(node) is str:
        checked(node)
    elif type(node) is list:
        for item in node:
            _check_text(item)
    elif type(node) is dict:
        for name, item in node.items():
            checked(name)
            _check_text(item)


def _compare(value: Any, restored: Any) -> None:
    """Check that a restored value equals the original. Raises RoundTripError if not."""
    if not _same(value, restored):
        raise RoundTripError(
            f"{type(value).__qualname__} would come back as something else ({short(value)} as {short(restored)})"
        )


def _same(value: Any, restored: Any) -> bool:
    if type(value) is not type(restored):
        return False
    if type(value).__module__ == "numpy":
        return bool(value.dtype == restored.dtype and value.shape == restored.shape) and (
            value.tobytes() == restored.tobytes()
        )
    try:
        return bool(value == restored) or repr(value) == repr(restored)  # NaN is not equal to itself
    except (TypeError, ValueError):
        return repr(value) == repr(restored)
