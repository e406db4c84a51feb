"""Observes the calls on a store: tells of failures as events, and measures calls where an SDK is set up.

The methods of a store reach Operations through `observe`. Retries, replays and waits are told where they happen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, cast

from everturn import events, telemetry
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
from everturn.store.call_spans import CallSpan
from everturn.store.operations import Operations
from everturn.store.retries import operation

OBSERVED = tuple(
    name
    for name in dir(Operations)
    if not name.startswith("_") and name != "call" and iscoroutinefunction(getattr(Operations, name))
)


def observe(operations: Operations) -> Operations:
    """Return operations that do the same and are observed, each call of them once, whatever it calls itself."""
    return cast("Operations", _Observed(operations))


class _Observed:
    """Stands for Operations: its methods are observed, and its attributes are those of the operations themselves."""

    def __init__(self, operations: Operations) -> None:
        vars(self)["_operations"] = operations
        for name in OBSERVED:
            vars(self)[name] = _observing(name, getattr(operations, name), operations.source)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_operations"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(vars(self)["_operations"], name, value)


def _observing(name: str, call: Callable[..., Awaitable[Any]], source: Source) -> Callable[..., Awaitable[Any]]:
    names_session = "session_id" in call.__code__.co_varnames[1:2]

    async def observed(*args: Any, **kwargs: Any) -> Any:
        operation.set(name)
        try:
            if (sdk := telemetry.sdk()) is None:
                return await call(*args, **kwargs)
            with CallSpan(sdk, name, source, args[0] if names_session and args else None) as span:
                result = await call(*args, **kwargs)
                span.note(result)
                return result
        except MemoryStoreError as exc:
            tell_failure(exc, name, source, args[0] if names_session and args else None)
            raise

    return observed


def tell_failure(exc: MemoryStoreError, name: str, source: Source, session_id: str | None) -> None:
    """Tell of an error that a call ends with. The caller's own mistakes are the caller's to tell."""
    told: dict[str, Any] = {"operation": name, "session_id": session_id}
    match exc:
        case MemoryStoreBackendError():
            events.tell(events.FAILED, source, **told, outcome=exc.outcome, reason=events.reason(exc))
        case CorruptEntry():
            told["session_id"] = exc.session_id
            events.tell(events.CORRUPT_ENTRY, source, **told, seq=exc.seq, reason=events.reason(exc))
        case VersionConflict():
            events.tell(events.CONFLICT, source, **told, expected=exc.expected, actual=exc.actual)
        case LeaseLost():
            events.tell(events.LEASE_LOST, source, **told | {"session_id": exc.session_id}, token=exc.token)
        case EffectInDoubt():
            attempt, in_progress = exc.effect.attempt, exc.in_progress
            events.tell(events.EFFECT_IN_DOUBT, source, **told, attempt=attempt, in_progress=in_progress)
        case KeyReused():
            events.tell(events.KEY_REUSED, source, **told, version=exc.receipt.version)
