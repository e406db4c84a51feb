"""The base of all shapes: a memory store as a few operations, each of them a coroutine.

A shape, in the modules beside this one, says how its objects are called. It judges nothing, and imports no framework.

Operations are written once, for blocking and awaited stores: over a blocking store they never suspend.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, MutableSequence, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from everturn.testing.shapes.native_messages import plain

Unit: TypeAlias = Literal["turn", "pair", "message"]
"""The messages that one call of the shape appends: the unit that must be stored whole or not at all."""

Summarize: TypeAlias = Callable[..., Any]
"""A model for a compaction: from the oldest messages, and the summary before them or None, to the text of a summary."""

Source: TypeAlias = Callable[[str | None], Awaitable[Any]]
"""Gets the target's object: the one of a session, if the shape has one object per session, else the only one."""


class DictMessage(dict[str, Any]):
    """A message for stores whose factory makes none: a dict whose items can be read as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class SentMessage(msgspec.Struct, frozen=True):
    """A message as the kit writes it, before a shape converts it to the store's type."""

    role: str
    content: Any
    fields: Mapping[str, Any] = {}


class ReadMessage(msgspec.Struct, frozen=True):
    """A message as a store returned it. `fields` are those beside role and content."""

    role: str
    content: Any
    fields: Mapping[str, Any] = {}


FIELDS = ("name", "tool_calls", "tool_call_id", "id", "metadata")
_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "bot": "assistant"}


def read_message(raw: Any) -> ReadMessage:
    """Read a message of any common form: a mapping, a (role, content) pair, an object. Raises TypeError."""
    if isinstance(raw, Mapping):
        role = raw.get("role", raw.get("type"))
        content = raw.get("content")
        fields = {name: raw[name] for name in FIELDS if name in raw}
    elif isinstance(raw, tuple | list) and len(raw) >= 2 and not hasattr(raw, "content"):
        role, content, fields = raw[0], raw[1], {}
    elif hasattr(raw, "content"):
        role = getattr(raw, "role", getattr(raw, "type", None))
        content = raw.content
        fields = {name: getattr(raw, name) for name in FIELDS if hasattr(raw, name)}
    else:
        raise TypeError(f"a message came back as {type(raw).__name__}, which has no role and content")
    role = getattr(role, "value", role)
    return ReadMessage(_ROLES.get(str(role), str(role)), content, fields)


class Shape:
    """One opened store. A shape overrides `append` and `read`, and lists its other operations."""

    name: ClassVar[str]
    calls: ClassVar[tuple[str, str]]  # how it appends, and how it is read: for the docs and for messages
    unit: ClassVar[Unit] = "turn"
    per_session: ClassVar[bool] = False
    has_roles: ClassVar[bool] = True  # any role; False: only user and assistant
    has_fields: ClassVar[bool] = False  # whether a message can be made with more than role and content
    appends_to: ClassVar[tuple[str, ...]]  # the method that appends: blocking, and awaited if named otherwise
    clears_with: ClassVar[tuple[str, ...]] = ("clear",)
    compacts_with: ClassVar[tuple[str, ...]] = ("fold", "compact")
    optional: ClassVar[Mapping[str, str]] = {
        "trim": "trim",
        "clear_all": "clear_all",
        "undo": "undo",
        "save_snapshot": "save_snapshot",
        "rollback": "rollback_to_snapshot",
        "delete_snapshot": "delete_snapshot",
        "list_snapshots": "list_snapshots",
    }

    def __init__(self, example: Any, source: Source, make: Callable[[str, Any], Any] | None, *, awaited: bool) -> None:
        """`example` is one of the target's objects, for looking at; `make` is the factory's own `message`."""
        self._example = example
        self._source = source
        self._make = make
        self._handed: list[Any] = []
        self._leases: dict[str, Any] = {}  # by session: the latest lease that was taken here
        self._summarize: Summarize | None = None
        self._model_given = False
        self.awaited = awaited

    def asks(self, summarize: Summarize, *, given: bool) -> None:
        """Name the model that compactions ask. `given`: the factory has it already."""
        self._summarize, self._model_given = summarize, given

    # --- operations offered ------------------------------------------------------------------------------------------

    @classmethod
    def fits(cls, example: Any) -> bool:
        """Whether an object has this shape."""
        raise NotImplementedError

    @classmethod
    def methods(cls) -> str:
        """Name the two methods by which a store is recognised: `add_messages/get_history`."""
        return "/".join(call.partition("(")[0] for call in cls.calls)

    def operations(self) -> frozenset[str]:
        """List the operations offered: methods that are callable, and options named in the signature of append."""
        found = {"append", "read"}
        found |= {name for name, method in self.optional.items() if self._has(method)}
        if any(self._has(name) for name in self.clears_with):
            found.add("clear")
        if not {"save_snapshot", "rollback"} <= found:
            found -= {"save_snapshot", "rollback", "delete_snapshot", "list_snapshots"}
        found |= {option for option in ("key", "expected_version") if self._takes(self._appender(), option)}
        if self._compactor() is not None:
            found.add("compact")
        if self._takes("lease", "seconds"):
            found |= {"lease", "fence"} if self._takes(self._appender(), "lease") else {"lease"}
        if self._has("begin_effect") and self._has("finish_effect"):
            found.add("effects")
        found |= {name for name in ("fail_effect", "once") if self._has(name)}
        if self.has_roles:
            found.add("roles")
        if self.has_fields and self._make is None:
            found.add("fields")
        if self._make is None and self.natives():
            found.add("native_messages")
        return frozenset(found | self.more())

    def more(self) -> set[str]:
        """Add the operations that only this shape offers."""
        return set()

    def natives(self) -> Mapping[str, list[Any]]:
        """Make examples of messages that only the framework has, by name: native_messages.py."""
        return {}

    def _appender(self) -> str:
        return next(name for name in self.appends_to if self._has(name))

    def _compactor(self) -> str | None:
        """Find the method that compacts: it takes `summarize`, or the factory does."""
        if self._model_given:
            return next((name for name in self.compacts_with if self._has(name)), None)
        return next((name for name in (*self.compacts_with, "trim") if self._takes(name, "summarize")), None)

    def _has(self, name: str) -> bool:
        return callable(getattr(self._example, name, None)) or callable(getattr(self._example, f"a{name}", None))

    def _takes(self, method: str, parameter: str) -> bool:
        """Whether a method has this parameter, beside the session."""
        try:
            parameters = inspect.signature(getattr(self._example, self._named(method))).parameters
        except (AttributeError, TypeError, ValueError):
            return False
        return parameter in list(parameters)[0 if self.per_session else 1 :]

    def _named(self, method: str) -> str:
        """Choose between a method and its awaited twin `a...`; an awaited store prefers the twin."""
        twin = callable(getattr(self._example, f"a{method}", None))
        return f"a{method}" if twin and (self.awaited or not hasattr(self._example, method)) else method

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call(self, session: str | None, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the store, blocking or awaited, with the session first if it takes one."""
        target = await self._source(session)
        if options.get("lease") is True and session is not None:
            options["lease"] = self._leases[session]
        if session is not None and not self.per_session:
            args = (session, *args)
        return await await_if_needed(getattr(target, self._named(method))(*args, **options))

    def made(self, messages: Sequence[SentMessage]) -> list[Any]:
        """Convert messages to the store's type."""
        if self._make is not None:
            self._handed = [self._make(sent.role, sent.content) for sent in messages]
        else:
            self._handed = [self.message(sent) for sent in messages]
        return self._handed

    def framework(self, module: str) -> Any:
        """Import a framework's module if the target's class derives from that framework; else None."""
        root = module.partition(".")[0]
        family = (kind.__module__.partition(".")[0] for kind in type(self._example).__mro__)
        return import_module(module) if root in family else None

    def message(self, sent: SentMessage) -> Any:
        return DictMessage(role=sent.role, content=sent.content, **sent.fields)

    # --- operations --------------------------------------------------------------------------------------------------

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        """Append the messages in one call of the shape. `options`: key, expected_version, where offered."""
        raise NotImplementedError

    async def read(self, session: str) -> list[ReadMessage]:
        """Read the history, oldest first."""
        return [read_message(raw) for raw in await self.read_raw(session)]

    async def read_raw(self, session: str) -> Any:
        """Read the history as the store returns it."""
        raise NotImplementedError

    async def read_and_spoil(self, session: str) -> None:
        """Read, then empty the returned list."""
        raw = await self.read_raw(session)
        if isinstance(raw, list):
            raw.clear()

    async def append_and_spoil(self, session: str, messages: Sequence[SentMessage]) -> None:
        """Append, then empty the list that was passed."""
        await self.append(session, messages)
        self._handed.clear()

    async def read_and_change(self, session: str) -> None:
        """Read, then change every returned message in place, where it can be changed."""
        for raw in await self.read_raw(session):
            change_in_place(raw)

    async def append_and_change(self, session: str, messages: Sequence[SentMessage]) -> None:
        """Append, then change every message that was passed in place, where it can be changed."""
        await self.append(session, messages)
        for made in self._handed:
            change_in_place(made)

    async def native_names(self) -> list[str]:
        return list(self.natives())

    async def append_native(self, session: str, name: str) -> Any:
        """Append messages of the framework in one call, or one by one. Returns them as mappings."""
        made = self.natives()[name]
        sent = plain(made)  # before the store has them
        for messages in [made] if self.unit == "turn" else [[one] for one in made]:
            twin = copy(self)
            twin.made = lambda _, handed=messages: handed  # type: ignore[method-assign,misc]
            await twin.append(session, ())
        return sent

    async def read_native(self, session: str) -> Any:
        """Read the history as mappings, with all that its messages have."""
        return plain(list(await self.read_raw(session)))

    async def append_awaited(self, session: str, messages: Sequence[SentMessage]) -> None:
        """Append by the awaited twin of the blocking method. Run in a loop (LocalInstance.taken), which it may need."""
        twin = copy(self)
        twin.awaited = True
        await twin.append(session, messages)

    async def clear(self, session: str) -> None:
        await self.call(session, next(name for name in self.clears_with if self._has(name)))

    async def clear_all(self) -> None:
        await self.call(None, "clear_all")

    async def trim(self, session: str, most: int) -> None:
        if self._takes("trim", "max_messages"):
            await self.call(session, "trim", max_messages=most)
        else:
            await self.call(session, "trim", most)

    async def compact(self, session: str, most: int) -> None:
        """Put a summary in the place of the oldest messages, so that at most so many are left, where it takes a bound.
        Compacts whatever the length of the session is."""
        method = self._compactor() or ""
        options: dict[str, Any] = {"max_messages": most} if self._takes(method, "max_messages") else {}
        if not self._model_given:
            options["summarize"] = self._summarize
        await self.call(session, method, **options)

    async def prompt(self, session: str) -> list[ReadMessage]:
        """Read what a model is given: summaries and messages, in order."""
        return await self.read(session)

    async def save_snapshot(self, session: str) -> Any:
        """Take a snapshot. Returns its handle, which another process can roll back to."""
        return handle_of(await self.call(session, "save_snapshot"))

    async def rollback(self, session: str, snapshot: Any) -> None:
        await self.call(session, "rollback_to_snapshot", snapshot)

    async def delete_snapshot(self, session: str, snapshot: Any) -> None:
        await self.call(session, "delete_snapshot", snapshot)

    async def list_snapshots(self, session: str) -> list[Any]:
        return [handle_of(snapshot) for snapshot in await self.call(session, "list_snapshots")]

    async def undo(self, session: str) -> None:
        await self.call(session, "undo")

    async def take_lease(self, session: str, seconds: float) -> Any:
        """Take the lease of the session, and keep it for later steps (`lease=True`). Returns its token, if any."""
        lease = await self.call(session, "lease", seconds=seconds)
        self._leases[session] = lease
        return getattr(lease, "token", None)

    async def release_lease(self, session: str) -> None:
        """Release the latest lease of the session that was taken here."""
        await await_if_needed(self._leases[session].release())

    async def can_renew(self, session: str) -> bool:
        """Whether the latest lease of the session that was taken here can be renewed for some seconds."""
        renew = getattr(self._leases[session], "renew", None)
        return callable(renew) and "seconds" in inspect.signature(renew).parameters

    async def renew_lease(self, session: str, seconds: float) -> None:
        """Renew the latest lease of the session that was taken here, for so long from now."""
        await await_if_needed(self._leases[session].renew(seconds))

    async def begin_effect(self, session: str, key: str) -> tuple[str, Any]:
        """Begin an effect. Returns its status, "new" for the caller that is to do it, and its result."""
        effect = await self.call(session, "begin_effect", key)
        if isinstance(effect, Mapping):
            return str(effect["status"]), effect.get("result")
        return str(effect.status), getattr(effect, "result", None)

    async def finish_effect(self, session: str, key: str, result: Any) -> None:
        await self.call(session, "finish_effect", key, result)

    async def fail_effect(self, session: str, key: str, error: Any) -> None:
        await self.call(session, "fail_effect", key, error)

    async def once(self, session: str, key: str, result: Any) -> tuple[Any, int]:
        """Do an effect, if it is to be done. Returns what the store returned, and how often it was done."""
        done: list[Any] = []

        def do() -> Any:
            done.append(result)
            return result

        return await self.call(session, "once", key, do), len(done)


def handle_of(snapshot: Any) -> Any:
    """Return the id of a snapshot that is an object or a dict with one, else the snapshot itself."""
    if isinstance(snapshot, Mapping) and "id" in snapshot:
        return snapshot["id"]
    return getattr(snapshot, "id", snapshot)


def change_in_place(value: Any, depth: int = 4) -> None:
    """Change every text and every list in a message: of mappings, lists and objects that allow it."""
    if depth == 0:
        return
    if isinstance(value, MutableSequence):
        for one in value:
            change_in_place(one, depth - 1)
        value.append("changed by the caller")
        return
    named = value if isinstance(value, MutableMapping) else getattr(value, "__dict__", {})
    for name, held in list(named.items()):
        if not isinstance(held, str):
            change_in_place(held, depth - 1)
            continue
        with suppress(Exception):  # frozen, or checked on assignment
            if isinstance(value, MutableMapping):
                value[name] = "changed by the caller"
            elif name in {"content", "text"}:
                setattr(value, name, "changed by the caller")


async def await_if_needed(result: Any) -> Any:
    """Return the result of a call, awaited if it is awaitable."""
    return await result if inspect.isawaitable(result) else result
