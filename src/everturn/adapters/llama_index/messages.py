"""LlamaIndex's messages as entries, and back. Every block and all of `additional_kwargs` comes back equal. Pure.

Role, content and tool calls are stored in the entry's own fields, for people and other frameworks. Anything that these
do not imply is stored in `metadata["llama_index"]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from llama_index.core.base.llms import types as llama
from msgspec.structs import replace
from pydantic import AnyUrl, BaseModel
from pydantic.fields import FieldInfo

from everturn import ChatMessage
from everturn.adapters._shared import values as python
from everturn.adapters._shared.pydantic_models import build_model
from everturn.adapters._shared.values import TAG, RoundTripError, equal
from everturn.model import JSON

OWN = "llama_index"  # key in an entry's metadata
ARCHIVED = "archived"  # status of a message that Memory took out of its queue

Block: TypeAlias = Any  # one of LlamaIndex's content blocks
Fields: TypeAlias = dict[str, Any]

_MODELS: Mapping[str, type[BaseModel]] = {
    kind.__name__: kind
    for kind in (
        llama.TextBlock,
        llama.ImageBlock,
        llama.AudioBlock,
        llama.VideoBlock,
        llama.DocumentBlock,
        llama.CachePoint,
        llama.CacheControl,
        llama.CitableBlock,
        llama.CitationBlock,
        llama.ThinkingBlock,
        llama.ToolCallBlock,
    )
}
_BLOCKS = {
    kind.model_fields["block_type"].default: kind for kind in _MODELS.values() if "block_type" in kind.model_fields
}
_WORDS: Mapping[str, str] = {role: role.value for role in llama.MessageRole}
_ROLES = {role.value: role for role in llama.MessageRole} | {
    "human": llama.MessageRole.USER,
    "ai": llama.MessageRole.ASSISTANT,
}


class BlockCodec(python.ValueCodec):
    """Encodes and decodes values inside blocks and `additional_kwargs`."""

    def _encode_other(self, value: Any) -> JSON:
        kind = type(value)
        if _MODELS.get(kind.__name__) is kind:
            return {TAG: "model", "of": [kind.__name__, self.encode_fields(value)]}
        if kind is AnyUrl:
            return {TAG: "url", "of": str(value)}
        if isinstance(value, Path):
            return {TAG: "path", "of": str(value)}
        if isinstance(value, BaseModel) and not isinstance(value, llama.BaseContentBlock):
            return self._encode(value.model_dump())  # a model client's object: as LlamaIndex itself stores it
        return super()._encode_other(value)

    def encode_fields(self, model: BaseModel) -> Fields:
        """Return the fields of a model that differ from their defaults, as JSON."""
        fields = type(model).model_fields
        return {
            name: self._encode(value)
            for name, value in vars(model).items()
            if name != "block_type"
            and (fields[name].is_required() or value != fields[name].get_default(call_default_factory=True))
        }

    def _decode_other(self, what: str, of: JSON) -> Any:
        match what:
            case "model":
                return self.decode_model(_MODELS.get(of[0]), of[0], of[1])
            case "url":
                return AnyUrl(of)
            case "path":
                return Path(of)
        return super()._decode_other(what, of)

    def decode_model(self, kind: type[BaseModel] | None, name: str, fields: Fields) -> Any:
        """Return the model of stored fields. Raises RoundTripError if its class is not in the installed version."""
        if kind is None:
            raise RoundTripError(f"LlamaIndex's {name!r} is not in the version installed here")
        return build_model(
            kind, {name: self._field(field, name, fields) for name, field in kind.model_fields.items()}, None
        )

    def _field(self, field: FieldInfo, name: str, fields: Fields) -> Any:
        if name in fields:
            return self._decode(fields[name])
        if field.is_required():
            raise RoundTripError(f"LlamaIndex asks for a {name!r} in the version installed here, and none was stored")
        return field.get_default(call_default_factory=True)


_codec = BlockCodec()


def to_entry(message: llama.ChatMessage, status: str | None = None) -> ChatMessage:
    """Return a message as an entry. Raises RoundTripError if `from_entry` would not return an equal message."""
    if type(message) is not llama.ChatMessage:
        raise RoundTripError(f"{type(message).__qualname__} is a class of yours, and would come back as another")
    kwargs = message.additional_kwargs
    if len(message.blocks) == 1 and not kwargs and status is None and type(message.blocks[0]) is llama.TextBlock:
        return ChatMessage(_WORDS.get(message.role) or _word(message.role), message.blocks[0].text)  # most messages
    calls = [(place, block) for place, block in enumerate(message.blocks) if type(block) is llama.ToolCallBlock]
    said = [block for block in message.blocks if type(block) is not llama.ToolCallBlock]
    content, native = _content(said)
    own: Fields = {"native": True} if native else {}
    entry = ChatMessage(
        role=_word(message.role),
        content=None if calls and not said else content,
        name=_text(kwargs.get("name")),
        tool_calls=[_openai_call(block) for _, block in calls] or None,
        tool_call_id=_text(kwargs.get("tool_call_id")),
    )
    if not said and not calls:
        own["empty"] = True
    elif calls and content == "" and said:
        own["text"] = ""  # other frameworks read empty content as none
    if [place for place, _ in calls] != list(range(len(said), len(message.blocks))):
        own["calls_at"] = [place for place, _ in calls]
    told = [_arguments(call["function"]["arguments"]) for call in entry.tool_calls or ()]
    if not equal(told, [block.tool_kwargs for _, block in calls]):
        own["arguments"] = [_codec.encode(block.tool_kwargs) for _, block in calls]
    if not equal(_told_kwargs(entry), kwargs):
        own["kwargs"] = _codec.encode(kwargs)
    if status is not None:
        own["status"] = status
    return replace(entry, metadata={OWN: own}) if own else entry


def _word(role: llama.MessageRole | str) -> str:
    """Return the text of a role. It may be a plain str: LlamaIndex does not validate assignments."""
    return _WORDS.get(role) or llama.MessageRole(role).value


def from_entry(entry: ChatMessage) -> llama.ChatMessage:
    """Return the message of an entry, whichever framework wrote it. Raises RoundTripError if a class is missing."""
    if not entry.metadata and type(entry.content) is str and entry.tool_calls is None and entry.role in _ROLES:
        return _message(_ROLES[entry.role], [_text_block(entry.content)], _told_kwargs(entry))  # most messages
    own = entry.metadata.get(OWN)
    if not isinstance(own, dict) or own.get("foreign"):
        return _foreign(entry)
    said: list[Block] = []
    if own.get("native"):
        said = [_from_part(part) for part in entry.content or ()]
    elif entry.content is not None and not own.get("empty"):
        said = _texts(entry.content)
    calls = _calls(entry)
    for block, arguments in zip(calls, own.get("arguments", ()), strict=False):
        vars(block)["tool_kwargs"] = _codec.decode(arguments)
    for place, block in zip(own.get("calls_at", range(len(said), len(said) + len(calls))), calls, strict=True):
        said.insert(place, block)
    kwargs = _codec.decode(own["kwargs"]) if "kwargs" in own else _told_kwargs(entry)
    return _message(_role(entry.role), said, kwargs)


def status_of(entry: ChatMessage) -> str | None:
    """Return the status in the entry's own metadata; None if it has none."""
    own = entry.metadata.get(OWN)
    return own.get("status") if isinstance(own, dict) else None


def archived(entry: ChatMessage) -> ChatMessage:
    """Return the entry with the archived status in its metadata."""
    own = entry.metadata.get(OWN)
    said = own if isinstance(own, dict) else {"foreign": True}
    return replace(entry, metadata=entry.metadata | {OWN: said | {"status": ARCHIVED}})


# --- blocks ----------------------------------------------------------------------------------------------------------


def _content(said: Sequence[Block]) -> tuple[str | list[JSON], bool]:
    """Return the content of blocks, and whether its parts are LlamaIndex's own (not plain text)."""
    if all(type(block) is llama.TextBlock for block in said):
        if len(said) <= 1:
            return (said[0].text if said else ""), False
        return [{"type": "text", "text": block.text} for block in said], False
    return [_to_part(block) for block in said], True


def _to_part(block: Block) -> JSON:
    kind = type(block)
    if _MODELS.get(kind.__name__) is not kind:
        raise RoundTripError(f"{kind.__qualname__} is a block of yours, and would not come back")
    return {"type": block.block_type} | _codec.encode_fields(block)


def _from_part(part: JSON) -> Block:
    fields = {name: value for name, value in part.items() if name != "type"}
    return _codec.decode_model(_BLOCKS.get(part["type"]), part["type"], fields)


def _texts(content: str | list[JSON]) -> list[Block]:
    return [_text_block(content)] if isinstance(content, str) else [_text_block(part["text"]) for part in content]


def _text_block(text: str) -> llama.TextBlock:
    return build_model(llama.TextBlock, {"block_type": "text", "text": text}, None, {"block_type", "text"})


def _message(role: llama.MessageRole, blocks: list[Block], kwargs: Fields) -> llama.ChatMessage:
    fields = {"role": role, "additional_kwargs": kwargs, "blocks": blocks}
    return build_model(llama.ChatMessage, fields, None, {"role", "additional_kwargs", "blocks"})


def _told_kwargs(entry: ChatMessage) -> Fields:
    told: Fields = {}
    if entry.name is not None:
        told["name"] = entry.name
    if entry.tool_call_id is not None:
        told["tool_call_id"] = entry.tool_call_id
    return told


# --- tool calls ------------------------------------------------------------------------------------------------------


def _openai_call(block: llama.ToolCallBlock) -> JSON:
    """Return a tool call in the form of OpenAI's chat API, which most readers know."""
    arguments = block.tool_kwargs
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            arguments = "{}"  # not JSON: stored in the metadata instead
    return {
        "id": block.tool_call_id,
        "type": "function",
        "function": {"name": block.tool_name, "arguments": arguments},
    }


def _calls(entry: ChatMessage) -> list[Block]:
    return [_called(call) for call in entry.tool_calls or () if isinstance(call, dict)]


def _called(call: Mapping[str, Any]) -> llama.ToolCallBlock:
    """Return a tool call as a block, from OpenAI's, Anthropic's or LangChain's form."""
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    identity, name = call.get("id", call.get("call_id")), named.get("name")
    fields = {
        "block_type": "tool_call",
        "tool_call_id": _text(identity),
        "tool_name": _text(name) or "",
        "tool_kwargs": _arguments(named.get("arguments", named.get("args", named.get("input")))),
    }
    return build_model(llama.ToolCallBlock, fields, None)


def _arguments(arguments: Any) -> Any:
    """Return arguments as a dict if they are a JSON object; else the text that the model wrote."""
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments
        return read if isinstance(read, dict) else arguments
    return arguments if isinstance(arguments, dict) else {} if arguments is None else json.dumps(arguments)


# --- messages of other frameworks ------------------------------------------------------------------------------------


def _role(role: str) -> llama.MessageRole:
    return _ROLES.get(role, llama.MessageRole.ASSISTANT)


def _foreign(entry: ChatMessage) -> llama.ChatMessage:
    kwargs = _told_kwargs(entry)
    blocks: list[Block] = []
    if entry.role == "reasoning":  # an item of the OpenAI Agents SDK
        return _message(_role(entry.role), [llama.ThinkingBlock(content=entry.text)], kwargs)
    if entry.role not in _ROLES:
        kwargs["role"] = entry.role
    if isinstance(entry.content, str):
        blocks = [_text_block(entry.content)] if entry.content or not (entry.tool_calls or "role" in kwargs) else []
    else:
        known = [_foreign_part(part) for part in entry.content or ()]
        blocks = [block for block in known if block is not None]
        if len(blocks) < len(known):
            kwargs["parts"] = entry.content
    return _message(_role(entry.role), blocks + _calls(entry), kwargs)


def _foreign_part(part: JSON) -> Block | None:
    """Return the block of a part of OpenAI's, Anthropic's or LangChain's; None if LlamaIndex has no such block."""
    if isinstance(part, str):
        return _text_block(part)
    if not isinstance(part, dict):
        return None
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return _text_block(part[name])
    for name in ("thinking", "reasoning"):
        if isinstance(part.get(name), str):
            return llama.ThinkingBlock(content=part[name])
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    try:
        return llama.ImageBlock(url=url) if isinstance(url, str) else None
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return value if type(value) is str else None
