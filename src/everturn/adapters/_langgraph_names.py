"""Names: of sessions, and of checkpoints in LangGraph's configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

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


class CheckpointId(str):
    """A checkpoint's id that knows where its thread stood when it was read. Configs carry it from reads to puts."""

    __slots__ = ("head",)
    head: str | None

    def __new__(cls, checkpoint: str, head: str | None) -> Self:
        named = super().__new__(cls, checkpoint)
        named.head = head
        return named

    def __reduce__(self) -> tuple[Callable[..., CheckpointId], tuple[str, str | None]]:
        return CheckpointId, (str(self), self.head)


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


def config_of(thread: str, namespace: str, checkpoint: str, head: str) -> RunnableConfig:
    """The config that names a checkpoint."""
    named = CheckpointId(checkpoint, head)
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": named}}


class Beginnings:
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
