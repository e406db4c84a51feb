"""Observes the calls on a store: tells of failures as events, and measures calls where an SDK is set up.

The methods of a store run those of Operations by `run_observed` or `observed`: so each call is observed once,
whatever it calls itself. Retries, replays and waits are told where they happen.
"""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import getcoroutinelocals
from traceback import walk_tb
from typing import Any, TypeVar

from everturn import events, telemetry
from everturn.backend import drive
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
from everturn.store.retries import RetryingSender, operation

T = TypeVar("T")


def run_observed(call: Coroutine[Any, Any, T]) -> T:
    """Run a call of Operations on a blocking backend, and return its result."""
    name = _begin(call)
    sdk = telemetry.sdk()
    try:
        return drive(call if sdk is None else _measured(call, name, sdk))
    except MemoryStoreError as exc:
        _tell(exc, name)
        raise


async def observed(call: Coroutine[Any, Any, T]) -> T:
    """Wait for a call of Operations, and return its result."""
    name = _begin(call)
    sdk = telemetry.sdk()
    try:
        return await (call if sdk is None else _measured(call, name, sdk))
    except MemoryStoreError as exc:
        _tell(exc, name)
        raise


def _begin(call: Coroutine[Any, Any, Any]) -> str:
    """Note which method is under way, and return its name."""
    name: str = call.__name__  # type: ignore[attr-defined]  # that of its `async def`
    operation.set(name)
    return name


async def _measured(call: Coroutine[Any, Any, T], name: str, sdk: telemetry.Sdk) -> T:
    arguments = getcoroutinelocals(call)
    with CallSpan(sdk, name, arguments["self"].source, arguments.get("session_id")) as span:
        result = await call
        span.note(result)
        return result


def _tell(exc: MemoryStoreError, name: str) -> None:
    """Tell of the error of a call. The method that was called is the first of Operations that the error passed."""
    for frame, _ in walk_tb(exc.__traceback__):
        arguments = frame.f_locals
        if isinstance(arguments.get("self"), RetryingSender):
            tell_failure(exc, name, arguments["self"].source, arguments.get("session_id"))
            return


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
