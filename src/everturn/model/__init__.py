"""Values that callers pass and get back: entries, receipts, snapshots, facts. Frozen, and pure.

Entries and the answers to most calls are here; each file beside this one has the values of one method:

session_info.py  SessionInfo and Page, of `info` and `sessions`
effect.py        Effect, of `begin_effect` and the methods beside it
held_lease.py    HeldLease, of `get_lease`
copy_report.py   CopyReport, of `everturn.copy`
health.py        Health, of `health`

core/validation.py decides which values may be stored. Nothing here knows a backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from everturn.errors import InvalidInput
from everturn.model.copy_report import CopyOutcome, CopyProgress, CopyReport
from everturn.model.effect import Effect, EffectStatus
from everturn.model.session_info import Page, SessionInfo

__all__ = [
    "JSON",
    "MESSAGE",
    "SUMMARY",
    "TOOL_CALL",
    "Change",
    "ChatMessage",
    "Compaction",
    "Context",
    "CopyOutcome",
    "CopyProgress",
    "CopyReport",
    "Diff",
    "Effect",
    "EffectStatus",
    "Entry",
    "ErasureReceipt",
    "Hit",
    "Match",
    "Page",
    "Problem",
    "Receipt",
    "Record",
    "SessionInfo",
    "SessionState",
    "Snapshot",
    "Summary",
    "ToolCall",
    "Turn",
    "VerifyReport",
]

# Our kinds of entry; any other is a Record's. One to a line: the API reference reads no tuples.
MESSAGE = "message"
TOOL_CALL = "tool_call"
SUMMARY = "summary"

JSON: TypeAlias = Any  # a JSON value: str, int, float, bool, None, list, dict with string keys

# Names under which fields that are not part of the stored body travel through msgspec. "!" keeps them apart
# from a caller's own field of the same name, which belongs in `extra`.
_SEQ, _CREATED_AT, _EXTRA = "!seq", "!created_at", "!extra"


class _Entry(
    msgspec.Struct, frozen=True, eq=False, gc=False, kw_only=True, omit_defaults=True, repr_omit_defaults=True
):
    """Base of all entries, with the marks that the store sets. Two entries are equal if their bodies are.

    gc=False: an entry is a tree of JSON values, so it is never part of a reference cycle.
    """

    seq: int | None = msgspec.field(default=None, name=_SEQ)
    created_at: float | None = msgspec.field(default=None, name=_CREATED_AT)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in {"seq", "created_at"}
        )

    def __ne__(self, other: object) -> bool:  # a Struct has one of its own, which knows nothing of the above
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # an entry holds dicts and lists


class ChatMessage(_Entry, frozen=True, eq=False, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One message of a conversation.

    `content` is a string or a list of JSON parts (None only beside `tool_calls`). `seq` and `created_at` (seconds
    since 1970, informational) are set on messages that come out of a store. `extra` holds fields that a dict
    carried and this version does not know; they are stored and come back.
    """

    role: str
    content: str | list[JSON] | None
    name: str | None = None
    tool_calls: list[JSON] | None = None
    tool_call_id: str | None = None
    id: str | None = None
    metadata: dict[str, JSON] = msgspec.field(default_factory=dict)
    extra: dict[str, JSON] | None = msgspec.field(default=None, name=_EXTRA)

    @property
    def text(self) -> str:
        """Text of the content: the string itself, or the text of its parts, one per line."""
        if isinstance(self.content, str):
            return self.content
        parts = (part if isinstance(part, str) else _text_of(part) for part in self.content or ())
        return "\n".join(part for part in parts if part)

    def to_dict(self) -> dict[str, JSON]:
        """Convert to a plain dict, without empty fields, `seq` and `created_at`; `from_dict` is its inverse.

        It is for storing and passing on. To send a message to a model, use `to_prompt`.
        """
        beside: dict[str, JSON] = {} if self.id is None else {"id": self.id}
        return self._said() | beside | ({"metadata": self.metadata} if self.metadata else {}) | (self.extra or {})

    def to_prompt(self) -> dict[str, JSON]:
        """Convert to the dict that chat APIs take: without `id` and `metadata`, for which they refuse a prompt.

        Summaries and healed results in a prompt of the store carry `metadata`. Fields of `extra` are those that your
        model's API made, and come along.
        """
        return self._said() | (self.extra or {})

    def _said(self) -> dict[str, JSON]:
        fields: dict[str, JSON] = {"role": self.role, "content": self.content}
        for name in ("name", "tool_calls", "tool_call_id"):
            if (value := getattr(self, name)) is not None:
                fields[name] = value
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, JSON]) -> ChatMessage:
        """Make a message from a dict with at least `role` and `content`; unknown fields go to `extra`.

        Raises InvalidInput.
        """
        if not isinstance(fields, Mapping):
            raise InvalidInput(f"a message is a dict or a ChatMessage, not {type(fields).__name__}", path="message")
        for name in ("role", "content"):
            if name not in fields and not (name == "content" and fields.get("tool_calls")):
                raise InvalidInput(f"a message needs {name!r}; it has {sorted(map(str, fields))}", path=name)
        known = {"content": None} | {name: fields[name] for name in MESSAGE_FIELDS if name in fields}
        if known.get("metadata", {}) is None:
            del known["metadata"]
        extra = {name: value for name, value in fields.items() if name not in MESSAGE_FIELDS}
        return cls(**known, extra=extra or None)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        """Let Pydantic models and FastAPI bodies hold messages. Pydantic is imported only when it calls this."""
        from everturn._pydantic import message_schema

        return message_schema(cls)


MESSAGE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "id", "metadata")


def _text_of(part: JSON) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


class ToolCall(_Entry, frozen=True, eq=False, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Record of one tool call: its name and arguments, its result or error, its duration in seconds."""

    name: str
    arguments: JSON
    call_id: str | None = None
    result: JSON = None
    error: str | None = None
    duration: float | None = None
    extra: dict[str, JSON] | None = msgspec.field(default=None, name=_EXTRA)


class Summary(_Entry, frozen=True, eq=False, gc=False):
    """A text that stands for the entries `covers[0]..covers[1]` (seqs), with its embedding (kept as float32).

    One that `fold` wrote has `extra={"fold": True}`, and is in view only while the messages that it stands for are
    hidden. It may be without an embedding (None), and is not found by `search_summaries` then.
    """

    text: str
    embedding: Sequence[float] | None
    covers: tuple[int, int]
    extra: dict[str, JSON] | None = None


class Record(_Entry, frozen=True, eq=False, gc=False):
    """A framework's own entry. `kind` is its choice (not message, tool_call or summary); `body` is JSON."""

    kind: str
    body: JSON


Entry: TypeAlias = ChatMessage | ToolCall | Summary | Record


class Receipt(msgspec.Struct, frozen=True):
    """Receipt of a change: the store has kept it.

    `version` is the session's version after it; `seqs` are the entries it wrote; `replayed` says that an earlier
    attempt was applied already, and this is its receipt.
    """

    session_id: str
    life: str
    version: int
    seqs: tuple[int, ...] = ()
    replayed: bool = False


class Turn(msgspec.Struct, frozen=True):
    """Turn that was written with a key: the receipt of the first use, and its entries (a keyed trim has none)."""

    receipt: Receipt
    entries: tuple[Entry, ...]

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, ChatMessage))


class Context(msgspec.Struct, frozen=True):
    """A prompt: the messages to give to a model, as of one moment. Pass it as `expected_version` of the answer.

    `messages`: system messages, then `summaries` as messages (their `metadata` has `summary`, its seq), then the newest
    whole turns. `tokens`: of these messages, as they were counted or estimated. `left_out`: how many messages of the
    history are neither shown nor summarised.
    """

    messages: list[ChatMessage]
    tokens: int
    left_out: int
    summaries: tuple[Summary, ...]
    life: str
    version: int


class Snapshot(msgspec.Struct, frozen=True):
    """A named, persistent pointer to a past state. Only `delete_snapshot` and the end of the life remove it."""

    id: str
    session_id: str
    life: str
    label: str | None
    version: int
    messages: int
    created_at: float


class SessionState(msgspec.Struct, frozen=True, eq=False):
    """Everything about a session that two stores can be compared by: no clocks, no random ids.

    (`life` is there for `expected_version`, and takes no part in the comparison.)"""

    session_id: str
    version: int
    last_seq: int
    entries: tuple[Entry, ...]
    snapshots: tuple[tuple[str | None, int], ...]
    undo_steps: int
    ttl: float | None
    forked_from: str | None
    life: str = ""
    facts: dict[str, str] = {}

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, ChatMessage))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, ToolCall))

    @property
    def summaries(self) -> tuple[Summary, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Summary))

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(entry for entry in self.entries if isinstance(entry, Record))

    def _comparable(self) -> tuple[object, ...]:
        return (
            self.session_id,
            self.version,
            self.last_seq,
            [(entry.seq, entry) for entry in self.entries],
            self.snapshots,
            self.undo_steps,
            self.ttl,
            self.forked_from,
            self.facts,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SessionState) and self._comparable() == other._comparable()

    def __ne__(self, other: object) -> bool:  # a Struct has one of its own, which knows nothing of the above
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # it holds entries


class Change(msgspec.Struct, frozen=True):
    """One line of the change log: the change that made `version`. `snapshot` and `label` if it was about a snapshot;
    `label` is the key of an effect that it began or ended, or the names of facts that it set. `key`: digest of the
    caller's key, in hexadecimal, or None.
    """

    version: int
    kind: str
    seqs: tuple[int, ...]
    created_at: float
    snapshot: str | None = None
    label: str | None = None
    key: str | None = None


class Diff(msgspec.Struct, frozen=True):
    """Difference of two states: entries that `b` shows and `a` does not (`added`), and the reverse (`removed`)."""

    session_id: str
    added: tuple[Entry, ...]
    removed: tuple[Entry, ...]


class Hit(msgspec.Struct, frozen=True):
    """A summary found by `search_summaries`, with its cosine similarity (higher is better)."""

    score: float
    summary: Summary


class Match(msgspec.Struct, frozen=True):
    """An entry found by `find`, and the session it stands in."""

    session_id: str
    entry: Entry


class ErasureReceipt(msgspec.Struct, frozen=True):
    """Receipt of `erase`: the numbers of entries, snapshots and bytes that were removed. (Of `erase_all`:
    of so many `sessions`, which begin with `session_id`.) `complete`: nobody can read them now. Else erase again later.
    `remains`: logs and files of the backend that may hold bytes of the session, each with the way to remove them;
    everturn does not rewrite these for one session. Empty if there are none. Backups are not looked at.
    """

    session_id: str
    entries: int
    snapshots: int
    bytes: int
    complete: bool
    remains: tuple[str, ...] = ()
    sessions: int = 1


class Problem(msgspec.Struct, frozen=True):
    """One thing `verify` found wrong. `seq` is None where it is not about one entry."""

    session_id: str | None
    seq: int | None
    what: str


class VerifyReport(msgspec.Struct, frozen=True):
    """Result of `verify`: how many sessions and entries it read, and the problems it found."""

    sessions: int
    entries: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


class Compaction(msgspec.Struct, frozen=True):
    """Result of `compact`: the numbers of sessions, entries and bytes that were reclaimed."""

    sessions: int
    entries: int
    bytes: int
