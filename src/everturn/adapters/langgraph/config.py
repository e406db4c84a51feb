"""Names: of sessions, and of checkpoints in LangGraph's configs."""

from __future__ import annotations

from collections import Counter, OrderedDict
from threading import Lock
from typing import Any

from langchain_core.runnables import RunnableConfig

from everturn import InvalidInput

SEPARATOR = "#"  # between the thread and the namespace in a session's id


def session_of(thread: object, namespace: str = "") -> str:
    """The session of a thread and namespace: the thread's name, and behind a `#` the namespace of a subgraph.

    In the thread's name `%` is written `%25` and `#` `%23`, so that no two share a session.
    """
    escaped = str(thread).replace("%", "%25").replace(SEPARATOR, "%23")
    return f"{escaped}{SEPARATOR}{namespace}" if namespace else escaped


def thread_of(session_id: str) -> tuple[str, str]:
    """The inverse: thread and namespace."""
    escaped, _, namespace = session_id.partition(SEPARATOR)
    return escaped.replace("%23", SEPARATOR).replace("%25", "%"), namespace


class SeenHeads:
    """Remembers where threads stood when checkpoints were read: configs carry a checkpoint's id from reads to puts.

    An id is told by which object it is, so that two reads of one checkpoint are told apart. It is a plain `str`, since
    configs are logged and sent by whatever serializes them, and some refuse a subclass.
    """

    MOST = 10_000

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[int, tuple[str, str]] = OrderedDict()  # the id itself is kept, so that its place is

    def note(self, checkpoint: str, head: str) -> str:
        """The id as an object of its own, by which `of` finds the head again."""
        own = checkpoint.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
        with self._lock:
            self._known[id(own)] = own, head
            if len(self._known) > self.MOST:
                self._known.popitem(last=False)
        return own

    def of(self, checkpoint: object) -> str | None:
        """The head that was noted with this very object; None if it is not known, or not any more."""
        with self._lock:
            own, head = self._known.get(id(checkpoint), (None, None))
        return head if own is checkpoint else None


def setting(config: RunnableConfig, name: str) -> Any:
    """What a config says of something; None if nothing."""
    return config.get("configurable", {}).get(name)


def address(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint that a config names. Raises InvalidInput without a thread."""
    named = config.get("configurable", {}).get
    thread = named("thread_id")
    if thread is None:
        raise InvalidInput("is needed to tell whose checkpoint it is", path="config.configurable.thread_id")
    checkpoint = named("checkpoint_id")
    return str(thread), named("checkpoint_ns") or "", str(checkpoint) if checkpoint else None


def config_of(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


class EmptySessions:
    """Sessions that a run saw empty and has not begun yet: who begins one of these means to be the first."""

    MOST = 10_000

    def __init__(self) -> None:
        self._lock = Lock()
        self._sessions: Counter[str] = Counter()

    def seen(self, session_id: str) -> None:
        with self._lock:
            self._sessions[session_id] += 1
            if len(self._sessions) > self.MOST:
                del self._sessions[next(iter(self._sessions))]

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._sessions.pop(session_id, None)

    def used(self, session_id: str) -> bool:
        """Whether it was seen so, as often as it was."""
        with self._lock:
            count = self._sessions.pop(session_id, 0)
            if count > 1:
                self._sessions[session_id] = count - 1
            return count > 0
