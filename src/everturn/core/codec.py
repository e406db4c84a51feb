"""Encodes entries as stored bodies with checksums, and decodes them again; a damaged body raises CorruptEntry.

Pure: no IO. A body is UTF-8 JSON, so that people and other programs can read the store without us. validation.py
decides which values may be stored at all.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from sys import byteorder
from typing import Any, TypeAlias
from zlib import adler32

import msgspec

from everturn.core.signal_exceptions import is_interruption
from everturn.core.validation import check, check_dict, check_list, check_text, name_of
from everturn.errors import CorruptEntry, InvalidInput
from everturn.model import JSON, MESSAGE, SUMMARY, TOOL_CALL, ChatMessage, Entry, Record, Summary, ToolCall

MAX_ROLE = 64
FOLD_MARK = "fold"  # in the `extra` of a summary: a fold wrote it

_encode = msgspec.json.Encoder().encode


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An encoded entry that is about to be stored. The backend gives it a seq."""

    kind: str
    body: bytes
    checksum: int
    dimension: int | None = None  # of a summary's embedding


def checksum(kind: str, body: bytes) -> int:
    """Compute Adler-32 of the body. Kinds other than message are part of it, so that a damaged kind is noticed too."""
    return adler32(body) if kind == MESSAGE else adler32(body, adler32(kind.encode()))


def digest(*parts: bytes) -> bytes:
    """Compute a fingerprint of 16 bytes, for keys and for the content they were used with."""
    import hashlib  # it takes as long to import as all of this package, and few calls have a key

    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def canonical(body: bytes) -> bytes:
    """Rewrite the body with its keys in order: two bodies that decode to equal values are the same content."""
    return msgspec.json.encode(_decode_any(body), order="sorted")


# --- in: entries to drafts -------------------------------------------------------------------------------------------


def encode(entry: Entry | Mapping[str, JSON], path: str, limit: int) -> Draft:
    """Encode an entry. Raises InvalidInput, naming `path`, if it would not come back equal."""
    if isinstance(entry, Record):
        return _draft(_record_kind(entry, path), _dump(entry.body, f"{path}.body"), path, limit)
    if isinstance(entry, (ChatMessage, Mapping)):
        return encode_message(entry, path, limit)
    if isinstance(entry, ToolCall):
        return _draft(TOOL_CALL, _encode_tool_call(entry, path), path, limit)
    if isinstance(entry, Summary):
        body = _encode_summary(entry, path)
        return _draft(SUMMARY, body, path, limit, None if entry.embedding is None else len(entry.embedding))
    raise InvalidInput(f"{name_of(entry)} is not an entry; use ChatMessage, ToolCall, Summary or Record", path=path)


def encode_message(message: ChatMessage | Mapping[str, JSON], path: str, limit: int) -> Draft:
    """Encode a message, or a dict that has the fields of one. Raises InvalidInput, as `encode` does."""
    if isinstance(message, ChatMessage):
        return _draft(MESSAGE, _encode_message(message, path), path, limit)
    if isinstance(message, Mapping):
        return encode_message(_message_from(message, path), path, limit)
    raise InvalidInput(f"{name_of(message)} is not a message; use ChatMessage, or append for other entries", path=path)


def _draft(kind: str, body: bytes, path: str, limit: int, dimension: int | None = None) -> Draft:
    if len(body) > limit:
        raise InvalidInput(f"{len(body):,} bytes is over the limit of {limit:,} (option max_message_bytes)", path=path)
    return Draft(kind, body, checksum(kind, body), dimension)


def _message_from(fields: Mapping[str, JSON], path: str) -> ChatMessage:
    try:
        return ChatMessage.from_dict(fields)
    except InvalidInput as exc:
        raise InvalidInput(str(exc).partition(": ")[2], path=f"{path}.{exc.path}") from None


def _encode_message(message: ChatMessage, path: str) -> bytes:
    role, content, metadata = message.role, message.content, message.metadata
    if type(role) is not str or not role.isascii() or not 0 < len(role) <= MAX_ROLE:
        check_text(role, f"{path}.role", longest=MAX_ROLE)
    if type(content) is not str or not content.isascii():
        _check_content(message, path)
    for name, value in (("name", message.name), ("tool_call_id", message.tool_call_id), ("id", message.id)):
        if value is not None:
            check_text(value, f"{path}.{name}")
    if message.tool_calls is not None:
        check_list(message.tool_calls, f"{path}.tool_calls")
    if metadata or type(metadata) is not dict:
        check_dict(metadata, f"{path}.metadata")
    return _with_extra(message, message.extra, path)


def _check_content(message: ChatMessage, path: str) -> None:
    if message.content is None and message.tool_calls:
        return
    if not isinstance(message.content, (str, list)):
        raise InvalidInput(
            f"content is a string or a list of parts (None only beside tool_calls), not {name_of(message.content)}",
            path=f"{path}.content",
        )
    check(message.content, f"{path}.content")


def _with_extra(entry: ChatMessage | ToolCall, extra: dict[str, JSON] | None, path: str) -> bytes:
    """Encode an entry without the marks of a store (seq, created_at). Unknown fields stand beside the known ones."""
    if entry.seq is None and entry.created_at is None and extra is None:
        return _encode(entry)
    return _encode_beside(msgspec.structs.replace(entry, seq=None, created_at=None, extra=None), extra, path)


def _encode_beside(stored: msgspec.Struct, extra: dict[str, JSON] | None, path: str) -> bytes:
    if not extra:
        return _encode(stored)
    check_dict(extra, f"{path}.extra")
    if clash := sorted(extra.keys() & set(stored.__struct_encode_fields__)):
        raise InvalidInput("is a field of its own, not an extra one", path=f"{path}.extra.{clash[0]}")
    return _encode(msgspec.to_builtins(stored) | extra)


def _encode_tool_call(call: ToolCall, path: str) -> bytes:
    check_text(call.name, f"{path}.name")
    for name in ("call_id", "error"):
        if (value := getattr(call, name)) is not None:
            check_text(value, f"{path}.{name}")
    if call.duration is not None and type(call.duration) not in (int, float):
        raise InvalidInput(f"duration is a number of seconds, not {name_of(call.duration)}", path=f"{path}.duration")
    for name in ("arguments", "result", "duration"):
        check(getattr(call, name), f"{path}.{name}")
    return _with_extra(call, call.extra, path)


class _StoredSummary(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A summary's body: the embedding is little-endian float32, base64 in JSON (a third of its decimal size)."""

    text: str
    embedding: bytes | None
    covers: tuple[int, int]

    def vector(self) -> tuple[float, ...] | None:
        if self.embedding is None:
            return None
        vector = array("f", self.embedding)
        if byteorder == "big":
            vector.byteswap()
        return tuple(vector)


def _encode_summary(summary: Summary, path: str) -> bytes:
    check_text(summary.text, f"{path}.text")
    first, last = _covers(summary.covers, f"{path}.covers")
    embedding = None  # only a fold writes summaries that are not to be searched
    if summary.embedding is not None or not hides(summary.extra, (first, last)):
        embedding = float32(summary.embedding, f"{path}.embedding")
    stored = _StoredSummary(summary.text, embedding, (first, last))
    return _encode_beside(stored, summary.extra, path)


def _covers(covers: object, path: str) -> tuple[int, int]:
    if isinstance(covers, Sequence) and len(covers) == 2 and all(type(seq) is int and seq >= 0 for seq in covers):
        return covers[0], covers[1]
    raise InvalidInput("covers is (first_seq, last_seq)", path=path)


_NO_VECTOR = (str, bytes, bytearray, memoryview, AbstractSet, Mapping)  # iterable, but not numbers in an order


def float32(embedding: object, path: str) -> bytes:
    """Pack an embedding as little-endian float32. Raises InvalidInput if it is empty or a number does not fit."""
    if isinstance(embedding, _NO_VECTOR) or not (isinstance(embedding, Iterable) and hasattr(embedding, "__len__")):
        raise InvalidInput(f"an embedding is a sequence of numbers, not {name_of(embedding)}", path=path)
    try:
        vector = array("f", embedding)
    except (TypeError, OverflowError, ValueError) as exc:
        raise InvalidInput(f"an embedding is a sequence of float32 numbers: {exc}", path=path) from None
    if not vector:
        raise InvalidInput("an embedding has at least one number", path=path)
    for index, number in enumerate(vector):
        if not math.isfinite(number):
            raise InvalidInput(f"{number} cannot be stored as float32", path=f"{path}[{index}]")
    if byteorder == "big":
        vector.byteswap()
    return vector.tobytes()


def _record_kind(record: Record, path: str) -> str:
    check_kind(record.kind, f"{path}.kind")
    if record.kind in (MESSAGE, TOOL_CALL, SUMMARY):
        raise InvalidInput(f"{record.kind!r} is everturn's own kind; choose another", path=f"{path}.kind")
    return str.__str__(record.kind)  # of a member of an enumeration the text, and not its name


def check_kind(kind: object, path: str) -> None:
    """Raise InvalidInput unless it can name a kind of entry: 1 to 64 characters without NUL."""
    if type(kind) is not str or not kind.isascii() or not 0 < len(kind) <= MAX_ROLE:
        check_text(kind, path, longest=MAX_ROLE)  # unusual, if not wrong
    if "\0" in str(kind):  # a column of its own, unlike text in a body: PostgreSQL cannot store it
        raise InvalidInput("must not contain NUL", path=path)


def encode_json(value: JSON, path: str) -> bytes:
    """Encode a JSON value. Raises InvalidInput, naming `path`, if it would not come back equal."""
    return _dump(value, path)


def _dump(value: JSON, path: str) -> bytes:
    check(value, path)
    return _encode(value)


# --- out: stored rows to entries -------------------------------------------------------------------------------------

_set = msgspec.structs.force_setattr
_decode_message = msgspec.json.Decoder(ChatMessage).decode
_decode_any = msgspec.json.Decoder().decode

MessageRow: TypeAlias = tuple[int, float, int, bytes]  # seq, created_at, checksum, body
EntryRow: TypeAlias = tuple[int, float, int, bytes, str, int]  # the same, and kind, turn


def decode(session_id: str, kind: str, seq: int, created_at: float, check: int, body: bytes) -> Entry:
    """Decode the entry of one row. Raises CorruptEntry if its bytes are not those that were written."""
    if checksum(kind, body) != check:
        raise damaged(session_id, seq)
    try:
        entry = _decode_body(kind, body)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as exc:
        if is_interruption(exc):
            raise
        raise _corrupt(session_id, seq, f"its body cannot be read: {exc}") from exc
    _set(entry, "seq", seq)
    _set(entry, "created_at", created_at)
    return entry


def _decode_body(kind: str, body: bytes) -> Entry:
    if kind == MESSAGE:
        try:
            return _decode_message(body)
        except msgspec.ValidationError:
            return ChatMessage.from_dict(_decode_any(body))
    if kind == TOOL_CALL:
        known, extra = _split(body, ToolCall)
        return ToolCall(**known, extra=extra)
    if kind == SUMMARY:
        known, extra = _split(body, _StoredSummary)
        stored = msgspec.convert(known, _StoredSummary)
        return Summary(stored.text, stored.vector(), stored.covers, extra=extra)
    return Record(kind, _decode_any(body))


def _split(body: bytes, struct: type[msgspec.Struct]) -> tuple[dict[str, Any], dict[str, JSON] | None]:
    fields = _decode_any(body)
    if not isinstance(fields, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - of the stored body, not of an argument
    known = struct.__struct_encode_fields__
    extra = {name: value for name, value in fields.items() if name not in known}
    return {name: value for name, value in fields.items() if name in known}, extra or None


def embedding_of(session_id: str, seq: int, check: int, body: bytes) -> tuple[bytes | None, int]:
    """Decode two parts of a stored summary: its embedding, as float32 bytes, and its `hides`. Raises CorruptEntry."""
    if checksum(SUMMARY, body) != check:
        raise damaged(session_id, seq)
    try:
        known, extra = _split(body, _StoredSummary)
        stored = msgspec.convert(known, _StoredSummary)
        return stored.embedding, hides(extra, stored.covers)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        if is_interruption(exc):
            raise
        raise _corrupt(session_id, seq, f"its body cannot be read: {exc}") from exc


def hides(extra: dict[str, JSON] | None, covers: tuple[int, int]) -> int:
    """Return the seq up to which a state must hide entries so that the summary is in view. 0: it is always in view.

    The summary of a fold stands for entries that the fold hid. When undo shows these entries again, the summary stands
    for nothing, and is not in view. It stays on the path, because turns that came later follow it there.
    """
    return covers[1] if extra is not None and extra.get(FOLD_MARK) is True else 0


def damaged(session_id: str, seq: int) -> CorruptEntry:
    """Make the error for an entry that is not as it was written."""
    return _corrupt(session_id, seq, "its bytes do not match their checksum")


def missing(session_id: str, seq: int) -> CorruptEntry:
    """Make the error for an entry that a session points to and that is not there."""
    return _corrupt(session_id, seq, "it should be there, and is not")


def miscounted(session_id: str, seq: int, found: int, expected: int) -> CorruptEntry:
    """Make the error for a history that does not have as many messages as were written."""
    return _corrupt(session_id, seq, f"{found} messages lead to it, where {expected} were written")


def _corrupt(session_id: str, seq: int, why: str) -> CorruptEntry:
    return CorruptEntry(
        f"session {session_id!r}, entry {seq}: {why}. Nothing was changed. To see all that is damaged: "
        "store.verify(), or everturn verify. To read what is left: get_history(..., on_corrupt='skip'), or "
        "everturn show --skip-corrupt",
        session_id=session_id,
        seq=seq,
    )
