"""Measures one call where an SDK of OpenTelemetry is set up: a point of the duration metric, and a span.

Names are those of the semantic conventions for generative AI and for databases, where these have one.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from everturn import telemetry
from everturn.errors import (
    CorruptEntry,
    EffectInDoubt,
    KeyReused,
    LeaseLost,
    MemoryStoreBackendError,
    MemoryStoreError,
    VersionConflict,
)
from everturn.events import Source
from everturn.model import Receipt

READS = frozenset(
    {
        *("get_history", "get_context", "get_turn", "get_tool_calls", "get_summaries", "get_effects", "load_memory"),
        *("search_summaries", "list_snapshots", "diff", "state", "info", "changes", "sessions", "find", "verify"),
        *("get_lease", "health", "close"),
    }
)
CREATES = frozenset({"add_messages", "append", "save_context", "add_tool_call", "add_summary", "fork"})
DELETES = frozenset({"erase", "erase_all", "compact", "delete_snapshot"})


def kind_of(name: str) -> str:
    """Return the value of `gen_ai.operation.name` for a method of the store."""
    if name in CREATES:
        return "create_memory"
    if name in DELETES:
        return "delete_memory"
    return "search_memory" if name in READS else "update_memory"


class CallSpan:
    """Measures a call for the length of a `with` block, and makes a span for it, except for a read outside any trace.

    Such a read would be a trace of one span, and most calls are reads (decision 061).
    """

    __slots__ = ("_begun", "_context", "_name", "_sdk", "_session_id", "_source", "_span")

    def __init__(self, sdk: telemetry.Sdk, name: str, source: Source, session_id: object) -> None:
        self._sdk = sdk
        self._name = name
        self._source = source
        self._session_id = session_id
        self._span: Any = None
        self._context: Any = None

    def __enter__(self) -> Self:
        trace = self._sdk.trace
        if self._name not in READS or trace.get_current_span().is_recording():
            kind = kind_of(self._name)
            labels = {"gen_ai.operation.name": kind, "db.operation.name": self._name}
            if self._source.place:
                labels["gen_ai.memory.store.id"] = self._source.place
            if isinstance(self._session_id, str):
                labels["gen_ai.conversation.id"] = self._session_id
            self._span = self._sdk.tracer.start_span(
                f"{kind} {self._name}",
                kind=trace.SpanKind.CLIENT,
                attributes=telemetry.attributes(self._source.system, labels),
            )
            self._context = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
            self._context.__enter__()
        self._begun = time.perf_counter()
        return self

    def note(self, result: object) -> None:
        """Add facts of the result to the span. Count a fold that was made."""
        if self._name == "fold" and result is not None:
            telemetry.count("everturn.folds", self._source.system, {})
        if self._span is not None and isinstance(result, Receipt):
            self._span.set_attribute("everturn.version", result.version)
            self._span.set_attribute("everturn.replayed", result.replayed)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.perf_counter() - self._begun
        labels = {"db.operation.name": self._name, "everturn.outcome": outcome_of(exc)}
        if kind is not None:
            labels["error.type"] = kind.__qualname__
        telemetry.record(telemetry.DURATION, self._source.system, seconds, labels)
        if self._span is None:
            return
        self._context.__exit__(None, None, None)
        self._span.set_attribute("everturn.outcome", labels["everturn.outcome"])
        if kind is not None:
            self._span.set_attribute("error.type", kind.__qualname__)
            self._span.set_status(self._sdk.trace.StatusCode.ERROR)  # without the text, which may name a session
        self._span.end()


def outcome_of(exc: BaseException | None) -> str:
    """Return how a call ended, as one of a few words: a label of metrics."""
    match exc:
        case None:
            return "ok"
        case MemoryStoreBackendError():
            return exc.outcome
        case VersionConflict() | KeyReused():
            return "conflict"
        case CorruptEntry():
            return "corrupt"
        case LeaseLost():
            return "lease_lost"
        case EffectInDoubt():
            return "in_doubt"
        case MemoryStoreError():
            return "refused"
    return "cancelled" if type(exc).__name__ == "CancelledError" else "interrupted"
