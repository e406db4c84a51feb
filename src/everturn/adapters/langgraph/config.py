"""Ids in LangGraph's configs: thread, namespace and checkpoint, and the session id of a thread."""

from __future__ import annotations

from collections import Counter, OrderedDict
from threading import Lock
from typing import Any

from langchain_core.runnables import RunnableConfig

from everturn import InvalidInput

SEPARATOR = "#"  # between the thread and the namespace in a session's id


def session_of(thread: object, namespace: str = "") -> str:
    """Return the session id of a thread and namespace: the thread's id, then `#` and the namespace of a subgraph.

    In the thread's id `%` is written `%25` and `#` `%23`, so that no two threads share a session.
    """
    escaped = str(thread).replace("%", "%25").replace(SEPARATOR, "%23")
    return f"{escaped}{SEPARATOR}{namespace}" if namespace else escaped


def thread_of(session_id: str) -> tuple[str, str]:
    """Return thread and namespace of a session id: the inverse of `session_of`."""
    escaped, _, namespace = session_id.partition(SEPARATOR)
    return escaped.replace("%23", SEPARATOR).replace("%25", "%"), namespace


class SeenHeads:
    """Remembers the latest checkpoint of a thread at the time that another one was read, for puts on that one.

    A config carries a checkpoint's id from a read to a put. The id is recognized by the identity of the `str` object,
    so that two reads of one checkpoint differ. It is a plain `str`: some serializers of configs refuse a subclass.
    """

    MOST = 10_000

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[int, tuple[str, str]] = OrderedDict()  # holds the str, so that its id() stays unique

    def note(self, checkpoint: str, head: str) -> str:
        """Return a copy of the id as a new object, by which `of` finds the head again."""
        own = checkpoint.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
        with self._lock:
            self._known[id(own)] = own, head
            if len(self._known) > self.MOST:
                self._known.popitem(last=False)
        return own

    def of(self, checkpoint: object) -> str | None:
        """Return the head noted with this very object; None if it is unknown, or forgotten."""
        with self._lock:
            own, head = self._known.get(id(checkpoint), (None, None))
        return head if own is checkpoint else None


def setting(config: RunnableConfig, name: str) -> Any:
    """Return a setting of a config; None if it has none."""
    return config.get("configurable", {}).get(name)


def address(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return thread, namespace and checkpoint id of a config. Raises InvalidInput without a thread."""
    named = config.get("configurable", {}).get
    thread = named("thread_id")
    if thread is None:
        raise InvalidInput("is needed to tell whose checkpoint it is", path="config.configurable.thread_id")
    checkpoint = named("checkpoint_id")
    return str(thread), named("checkpoint_ns") or "", str(checkpoint) if checkpoint else None


def config_of(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    """Return the config of a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


class EmptySessions:
    """Sessions that a caller read as empty and has not begun yet: its next put must be the session's first."""

    MOST = 10_000

    def __init__(self) -> None:
        self._lock = Lock()
        self._sessions: Counter[str] = Counter()

    def seen(self, session_id: str) -> None:
        """Note that a session was read as empty."""
        with self._lock:
            self._sessions[session_id] += 1
            if len(self._sessions) > self.MOST:
                del self._sessions[next(iter(self._sessions))]

    def forget(self, session_id: str) -> None:
        """Forget that a session was read as empty."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def used(self, session_id: str) -> bool:
        """Whether a session was read as empty; uses up one such read."""
        with self._lock:
            count = self._sessions.pop(session_id, 0)
            if count > 1:
                self._sessions[session_id] = count - 1
            return count > 0
