"""The target of a run: a store's URL or a factory, found by name in any process, and the operations that it offers.

It opens nothing and knows no backend; store_urls.py makes factories of URLs.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from everturn.core.masking import masked_url
from everturn.testing.kit import store_urls

OPTIONAL = ("session_id", "redis_url", "postgres_url", "dynamodb_endpoint", "ttl", "timeout", "vfs", "summarize")


class TargetError(Exception):
    """The target cannot be run at all; the text names the next step."""


class Target(msgspec.Struct, frozen=True):
    """The location of a factory. `file` is for a module that cannot be imported by name (a test module).

    `url` is set if a URL was given; with `use_server` the server it names is used, in a namespace.
    """

    text: str
    module: str
    name: str
    file: str | None = None
    url: str | None = None
    use_server: bool = False


class Offer(msgspec.Struct, frozen=True):
    """The features that a factory offers, read from its signature and attributes, never guessed from behaviour."""

    options: frozenset[str]  # of OPTIONAL
    processes: bool
    share_threads: bool
    corrupt: bool
    cleanup: bool
    message: bool
    pays_once: bool = False


_HOW_TO_OFFER = {
    "appends": "appends, not checkpoints, items or numbers that the caller makes",
    "processes": "a store that other processes can open (without `factory.processes = False`)",
    "threads": "`factory.share_threads = True`: one instance for several threads",
    "tasks": "awaited methods",
    "twins": "awaited twins beside the blocking methods (`aadd_messages`, ...)",
    "private": "a private directory or server (no --use-server)",
    "server": "a factory that takes `redis_url`, `postgres_url` or `dynamodb_endpoint`: a private server behind a"
    " proxy",
    "processes|threads|tasks": "callers side by side: processes, threads (`factory.share_threads = True`) or tasks",
    "threads|tasks": "one instance for many callers: `factory.share_threads = True`, or awaited methods",
    "files|server": "a store in files below `where`, or a factory that takes `redis_url` or `postgres_url`",
    "files": "a store in files below `where`",
    "system_calls": "Linux on x86-64 or ARM, and the right to watch the system calls of the target (ptrace)",
    "corrupt": "`factory.corrupt(where, session_id)`, which damages a stored turn",
    "ttl": "a factory that takes `ttl`",
    "timeout": "a factory that takes `timeout`",
    "redis_url": "a factory that takes `redis_url`",
    "vfs": "a factory that takes `vfs`, for stores over apsw",
    "key": "a parameter `key` of the method that appends",
    "expected_version": "a parameter `expected_version` of the method that appends",
    "save_snapshot": "`save_snapshot(session_id)`",
    "rollback": "`rollback_to_snapshot(session_id, snapshot)`",
    "list_snapshots": "`list_snapshots(session_id)`",
    "delete_snapshot": "`delete_snapshot(session_id, snapshot)`",
    "clear": "`clear(session_id)`",
    "clear_all": "`clear_all()`",
    "trim": "`trim(session_id, max_messages=...)`",
    "compact": "`fold(session_id, summarize=...)`, or a factory that takes `summarize` and a method that compacts",
    "pays_once": "`factory.pays_once = True`: of compactions at once, one asks the model",
    "lease": "`lease(session_id, seconds=...)`",
    "fence": "a parameter `lease` of the method that appends",
    "effects": "`begin_effect(session_id, key)` and `finish_effect(session_id, key, result)`",
    "fail_effect": "`fail_effect(session_id, key, error)`",
    "once": "`once(session_id, key, do)`",
    "rollback|clear|trim": "`rollback_to_snapshot`, `clear` or `trim`",
    "trim_keeps_prompts": "a `trim` that promises whole turns",
    "undo": "`undo(session_id)`",
    "replace": "`replace(session_id, messages)`",
    "pop": "a method that removes the last message",
    "delete_message": "the shape of a LlamaIndex chat store, with `delete_message(key, place)`",
    "latest": "a limit on reading (`limit=`)",
    "lists": "one call that appends several messages",
    "whole_turns": "one call that appends more than one message",
    "roles": "messages with roles",
    "fields": "messages that carry more than text",
    "tool_calls": "`add_tool_call` and `get_tool_calls`",
    "summaries": "`add_summary` and `search_summaries`",
    "checkpoints": "the shape of a LangGraph checkpointer, or of a CheckpointStorage of Agent Framework",
    "subgraphs": "the shape of a LangGraph checkpointer",
    "hold": "the shape of a checkpointer, or of a SessionRepository of Strands: the caller reads and extends",
    "items": "the shape of a LangGraph BaseStore: `put`, `get`, `search`, `delete`",
    "pending_writes": "the shape of a LangGraph checkpointer, with `put_writes`",
    "applications": "the shape of a Google ADK session service",
    "state": "the shape of a Google ADK session service",
    "state_scopes": "a session service that derives from Google ADK's",
    "listing": "the shape of a LangGraph checkpointer, with `before` and `limit` in `list`",
    "agents": "the shape of a SessionRepository of Strands",
    "native_messages": "a store of a framework's own messages (OpenAI, LangChain, LlamaIndex, ADK, Strands, Agent"
    " Framework), without `factory.message`",
}


def needed(missing: Iterable[str]) -> str:
    """Name the operations that a target would have to offer, so that a clause can be tested."""
    return "not offered: needs " + "; and ".join(map(_how_to_offer, missing))


def _how_to_offer(need: str) -> str:
    return _HOW_TO_OFFER.get(need) or " or ".join(_HOW_TO_OFFER.get(one, one) for one in need.split("|"))


def parse(text: str, *, use_server: bool = False) -> Target:
    """Read TARGET: a store URL, or `package.module:factory`. Raises TargetError."""
    if "://" in text:
        scheme = text.partition("://")[0]
        if scheme not in store_urls.PRIVATE and not use_server:
            known = ", ".join(f"{name}://" for name in store_urls.PRIVATE)
            raise TargetError(
                f"the kit cannot start a private server for {scheme}:// (it can for {known}); "
                "give --use-server to use the one in the URL, or a package.module:factory"
            )
        if use_server and scheme == "sqlite":
            raise TargetError("--use-server is for servers; a sqlite URL always runs in a private directory")
        return Target(masked_url(text), store_urls.__name__, "factory", url=text, use_server=use_server)
    if use_server:
        raise TargetError("--use-server goes with a URL; a factory decides for itself which server it uses")
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise TargetError(f"{masked_url(text)!r} is neither a store URL (sqlite:///x.db) nor package.module:factory")
    return Target(text, module, name)


def of_factory(factory: Callable[..., Any]) -> Target:
    """Make the target of a factory object; workers find it by module and name. Raises TargetError."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<object>")
    if not module or "<" in name:
        raise TargetError(f"worker processes import the factory by name, so it cannot be a local one: {name}")
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) if loaded else None
    return Target(f"{module}:{name}", module, name, file)


def load(target: Target) -> Callable[..., Any]:
    """Import the factory, in a process where target code may run. Raises TargetError."""
    if target.url is not None:
        try:
            return store_urls.factory(target.url, use_server=target.use_server)
        except ImportError as exc:
            scheme = target.url.partition("://")[0]
            extra = next((name for name in ("redis", "postgres") if scheme.startswith(name)), scheme)
            raise TargetError(
                f"{scheme}:// needs {exc.name}, which is not installed: pip install 'everturn[{extra},servers]'"
            ) from exc
    try:
        found: Any = _module(target)
    except ImportError as exc:
        raise TargetError(f"cannot import {target.module}: {exc}; is it on the path, and installed?") from exc
    for part in target.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as exc:
            raise TargetError(f"{target.module} has no {target.name}") from exc
    if not callable(found):
        raise TargetError(f"{target.text} is a {type(found).__name__}; a factory is called with a directory")
    return found  # type: ignore[no-any-return]  # whatever it is, it is callable


def _module(target: Target) -> Any:
    try:
        return importlib.import_module(target.module)
    except ModuleNotFoundError as exc:
        # Only the module itself may be missing: something that it imports is the user's error to see.
        if target.file is None or not target.module.startswith(exc.name or "\0"):
            raise
    spec = importlib.util.spec_from_file_location(target.module, target.file)
    if spec is None or spec.loader is None:
        raise TargetError(f"cannot load {target.file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[target.module] = module
    spec.loader.exec_module(module)
    return module


def offer_of(factory: Callable[..., Any]) -> Offer:
    """Read the offer of a factory. Raises TargetError if it cannot be called as the kit calls factories."""
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError) as exc:
        raise TargetError(f"the signature of {factory!r} cannot be read: {exc}") from exc
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        raise TargetError("a factory takes the directory to work in as its first argument: factory(where)")
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    rest = [one for one in parameters[1:] if one.kind not in varying]
    for one in rest:
        if one.name not in OPTIONAL and one.default is inspect.Parameter.empty:
            raise TargetError(
                f"the factory asks for {one.name!r}, which the kit cannot give; it gives {', '.join(OPTIONAL)}"
            )
    return Offer(
        options=frozenset(one.name for one in rest if one.name in OPTIONAL),
        processes=bool(getattr(factory, "processes", True)),
        share_threads=bool(getattr(factory, "share_threads", False)),
        corrupt=callable(getattr(factory, "corrupt", None)),
        cleanup=callable(getattr(factory, "cleanup", None)),
        message=callable(getattr(factory, "message", None)),
        pays_once=bool(getattr(factory, "pays_once", False)),
    )
