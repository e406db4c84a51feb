"""Effects that happen once: begun and ended in the store, around something that is done in the world.

Begin, finish and fail are changes: one request each, with a call id that its retries carry along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Literal, TypeVar, cast

import msgspec

from everturn.backend import BeginEffect, ChangeOutcome, ChangeRequest, EffectsReading, EndEffect, Status, StoredEffect
from everturn.core import codec
from everturn.core.validation import shown
from everturn.errors import (
    CorruptEntry,
    EffectInDoubt,
    InvalidInput,
    KeyReused,
    MemoryStoreBackendError,
    Unsupported,
)
from everturn.model import JSON, Effect, EffectStatus, Receipt
from everturn.store.arguments import checked_count, checked_id, checked_label
from everturn.store.change_sender import Expected, Leased
from everturn.store.changes import ChangeOperations
from everturn.store.outcomes import receipt_of, refuse
from everturn.store.worker_name import NamedWorker

Result = TypeVar("Result")
_WRITTEN = (Status.APPLIED, Status.REPLAYED)
_decode = msgspec.json.decode
LONGEST_MESSAGE = 10_000  # characters of the message of an error of `do` that are kept


class EffectOperations(ChangeOperations, NamedWorker):
    """The methods that begin, end and list effects."""

    async def begin_effect(
        self,
        session_id: str,
        key: str,
        request: JSON = None,
        *,
        repeats: int = 0,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Effect:
        """Begin an effect. Of any number of callers one gets status "new"; the others see it started, or its result.

        One that failed begins again, with the next attempt. One that is started does only if `repeats` is its attempt.
        """
        effect, _ = await self._begun(session_id, key, request, repeats, expected_version, lease)
        return effect

    async def _begun(
        self, session_id: str, key: str, request: JSON, repeats: int, expected: Expected, lease: Leased
    ) -> tuple[Effect, bool]:
        """Begin an effect as begin_effect does. Returns it, and whether the lease that it was begun under is held."""
        session_id, name = checked_id(session_id), _checked_effect_key(key)
        body = None if request is None else self._json(request, "request")
        claim = self._lease_claim(session_id, lease)
        action = BeginEffect(
            name, body, self.worker_name, claim.token if claim else 0, checked_count(repeats, "repeats")
        )
        deadline = self.runtime.clock() + self.settings.timeout
        outcome = await self._outcome(session_id, action, None, expected, (), lease=claim, deadline=deadline)
        row = outcome.effect
        if row is None:
            row = await self._row(session_id, name, outcome.life, deadline)
        is_new = outcome.status in _WRITTEN and row.status == "started" and row.began == outcome.version
        effect = effect_of(session_id, row, is_new=is_new)
        if not is_new and None not in (request, effect.request) and not _are_same(effect.request, request):
            raise _other(session_id, f"the effect {name!r} was begun with another request", outcome.life, row.began)
        return effect, row.held

    async def finish_effect(
        self,
        session_id: str,
        key: str,
        result: JSON = None,
        *,
        attempt: int = 0,
        note: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """End an effect that was done, with its result. A second time with the same result gets the first receipt."""
        return await self._end(session_id, key, "finished", result, attempt, note, expected_version, lease)

    async def fail_effect(
        self,
        session_id: str,
        key: str,
        error: JSON,
        *,
        attempt: int = 0,
        note: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """End an effect that was not done, with the reason. It may begin again."""
        if error is None:
            raise InvalidInput("is the reason why it was not done, not None", path="error")
        return await self._end(session_id, key, "failed", error, attempt, note, expected_version, lease)

    async def _end(
        self,
        session_id: str,
        key: str,
        status: Literal["finished", "failed"],
        value: JSON,
        attempt: int,
        note: str | None,
        expected: Expected,
        lease: Leased,
    ) -> Receipt:
        session_id, name = checked_id(session_id), _checked_effect_key(key)
        body = self._json(value, "result" if status == "finished" else "error")
        action = EndEffect(name, status, body, checked_label(note, "note"), checked_count(attempt, "attempt"))
        request = self._request(session_id, action, None, expected, (), lease=self._lease_claim(session_id, lease))
        outcome = await self.send_with_retries(partial(self._attempt, request))
        if outcome.status in _WRITTEN:
            return receipt_of(session_id, outcome)
        return _refused_end(request, action, outcome, value)

    async def get_effects(self, session_id: str) -> list[Effect]:
        """List the effects of the session, in the order in which they were begun; none if it is absent."""
        session_id = checked_id(session_id)
        reading = await self._effects(session_id)
        return [effect_of(session_id, row) for row in reading.effects]

    async def _effects(self, session_id: str, deadline: float | None = None) -> EffectsReading:
        read = getattr(self.backend, "effects", None)
        if read is None:
            raise Unsupported("this backend has no effects: it implements everturn.backend.Backend without `effects`")
        reading: EffectsReading = await self.send_with_retries(lambda _, by: read(session_id, by), deadline)
        return reading

    async def _row(self, session_id: str, key: str, life: str, deadline: float) -> StoredEffect:
        """Read the row of an effect that a replayed request of this call had begun."""
        try:
            reading = await self._effects(session_id, deadline)
        except MemoryStoreBackendError as exc:
            exc.outcome = "unknown"  # the read changed nothing, and the request before it began the effect
            raise
        for row in reading.effects:
            if row.key == key and reading.life == life:
                return row
        # The life it was begun in is over. That request began it, and nobody can end it any more.
        return StoredEffect(key, "started", 1, 0, 0, 0, self.worker_name, 0.0, None)

    # --- all in one --------------------------------------------------------------------------------------------------

    async def once(
        self,
        session_id: str,
        key: str,
        do: Callable[[], Result | Awaitable[Result]],
        *,
        request: JSON = None,
        repeat_in_doubt: bool = False,
        failures: type[Exception] | tuple[type[Exception], ...] = (),
        lease: Leased = None,
    ) -> Result:
        """Begin the effect, call `do`, and finish it with the result; or return the result of an earlier call.

        Raises EffectInDoubt, and does nothing, if it was begun and never ended. An error of `do` leaves it in doubt,
        unless it is one of `failures`, which say that nothing was done.
        """
        if not callable(do):
            raise InvalidInput(f"is a function without arguments, not {type(do).__name__}", path="do")
        if iscoroutinefunction(do) and not self.runtime.awaits:
            raise InvalidInput("is a coroutine function; a blocking store takes plain functions", path="do")
        _check_failures(failures)
        effect, held = await self._begun(session_id, key, request, 0, None, lease)
        if effect.status == "started":
            claim = self._lease_claim(session_id, lease)
            in_progress = held and (claim is None or claim.token != effect.lease)
            if in_progress or not repeat_in_doubt:
                raise in_doubt(session_id, effect, in_progress=in_progress)
            effect, held = await self._begun(session_id, key, request, effect.attempt, None, lease)
            if effect.status == "started":  # another caller has begun it again
                raise in_doubt(session_id, effect, in_progress=held)
        if effect.status == "finished":
            return cast("Result", effect.result)
        result = await self._done(session_id, effect, do, failures)
        # Without the lease: what was done is a fact, also for a worker that has lost its lease meanwhile. The attempt
        # says that nobody has begun it again.
        try:
            await self.finish_effect(session_id, key, result, attempt=effect.attempt)
        except Exception as exc:
            exc.add_note(
                f"The effect {key!r} of session {session_id!r} was done, and could not be ended: it is in doubt."
            )
            raise
        return result

    async def _done(
        self,
        session_id: str,
        effect: Effect,
        do: Callable[[], Result | Awaitable[Result]],
        failures: type[Exception] | tuple[type[Exception], ...],
    ) -> Result:
        """Call `do`. If it raises one of `failures`, end the effect as failed; else it stays in doubt."""
        try:
            answer = await self.runtime.offload(do)
            return await self.runtime.answer(answer, "do") if isawaitable(answer) else answer
        except failures as exc:
            error = _failure_of(exc, self.settings.max_message_bytes)
            try:
                await self.fail_effect(session_id, effect.key, error, attempt=effect.attempt)
            except Exception as fault:
                name = f"The effect {effect.key!r} of session {session_id!r}"
                fault.add_note(f"{name} was begun and failed, which could not be stored: it is in doubt.")
                raise
            raise
        except BaseException as exc:
            exc.add_note(f"The effect {effect.key!r} of session {session_id!r} was begun, and is in doubt now.")
            raise

    # --- values ------------------------------------------------------------------------------------------------------

    def _json(self, value: JSON, path: str) -> bytes:
        body = codec.encode_json(value, path)
        if len(body) > self.settings.max_message_bytes:
            limit = f"{self.settings.max_message_bytes:,} (option max_message_bytes)"
            raise InvalidInput(f"{len(body):,} bytes is over the limit of {limit}", path=path)
        return body


def _check_failures(failures: object) -> None:
    """Check the errors that say that nothing was done: before it is begun, since Python looks at them after. Raises
    InvalidInput."""
    for kind in failures if isinstance(failures, tuple) else (failures,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise InvalidInput(f"is a class of errors, or a tuple of these, not {shown(kind)}", path="failures")


def _failure_of(exc: BaseException, limit: int) -> dict[str, str]:
    """Describe an error of `do` in at most `limit` bytes of JSON. Its text is the caller's, and may be odd."""
    try:
        text = str(exc)
    except Exception:  # noqa: BLE001 - it is a failure all the same
        text = ""
    text = text.encode("utf-8", "backslashreplace").decode()  # it may name a file whose name is no UTF-8
    error = {"type": type(exc).__name__, "message": text[:LONGEST_MESSAGE]}
    while error["message"] and len(codec.encode_json(error, "error")) > limit:
        error["message"] = error["message"][: len(error["message"]) // 2]
    return error


def _are_same(one: JSON, other: JSON) -> bool:
    """Whether two JSON values are the same. In Python, 1 and True are equal; as JSON, they are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_are_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def effect_of(session_id: str, row: StoredEffect, *, is_new: bool = False) -> Effect:
    """Make the value that callers see of a stored row. Raises CorruptEntry if a body is no JSON."""
    try:
        request, result, error = (
            None if body is None else _decode(body) for body in (row.request, row.result, row.error)
        )
    except msgspec.MsgspecError as exc:
        raise CorruptEntry(
            f"session {session_id!r}: the effect {row.key!r} is not what was written", session_id=session_id, seq=0
        ) from exc
    status = cast("EffectStatus", "new" if is_new else row.status)
    facts: tuple[Any, ...] = (row.attempt, row.at, row.ended_at, row.by, row.token or None, row.began, row.note)
    return Effect(row.key, status, request, result, error, *facts)


def in_doubt(session_id: str, effect: Effect, *, in_progress: bool) -> EffectInDoubt:
    """Make the error for an effect that was begun and has not ended. It names the two ways on."""
    from datetime import UTC, datetime

    began = datetime.fromtimestamp(effect.at, UTC).isoformat(timespec="seconds")
    who = effect.by if effect.lease is None else f"{effect.by} under lease {effect.lease}"
    about = (
        f"session {session_id!r}: the effect {effect.key!r}, attempt {effect.attempt}, was begun by {who} at {began}"
    )
    if effect.request is not None:
        about += f" with the request {msgspec.json.encode(effect.request).decode()[:200]}"
    if in_progress:
        text = f"{about}, and that lease is still held: it is in progress. Wait for its end, and ask again"
    else:
        text = (
            f"{about}, and never ended: it is in doubt. Find out whether it was done, and say so (finish_effect or "
            "fail_effect, `everturn effects resolve`); or, if doing it twice does no harm, pass repeat_in_doubt=True"
        )
    return EffectInDoubt(text, session_id=session_id, effect=effect, in_progress=in_progress)


def _checked_effect_key(key: object) -> str:
    checked = checked_label(key, "key")
    if checked is None:
        raise InvalidInput("must be a string, not None", path="key")
    return checked


def _refused_end(request: ChangeRequest, action: EndEffect, outcome: ChangeOutcome, value: JSON) -> Receipt:
    """Turn the refusal of an end into the receipt of an earlier one that said the same, or raise the error."""
    row, session_id = outcome.effect, request.session_id
    if outcome.status not in (Status.NO_EFFECT, Status.EFFECT_ENDED, Status.EFFECT_REPEATED):
        refuse(outcome, request)  # by its version or its lease; a backend may send the row along
    if row is None:
        raise InvalidInput(
            f"session {session_id!r} has no effect {action.key!r}: it was never begun in this life of the session",
            path="key",
        )
    effect = effect_of(session_id, row)
    if outcome.status is Status.EFFECT_REPEATED:
        raise in_doubt(session_id, effect, in_progress=row.held)
    if effect.status == action.status and _are_same(effect.result if row.status == "finished" else effect.error, value):
        return Receipt(session_id, outcome.life, row.ended, replayed=True)
    told = f"the effect {action.key!r} has {row.status} before, at version {row.ended}"
    if effect.status == action.status:
        what = "result" if action.status == "finished" else "error"
        raise _other(session_id, f"{told}, with another {what}", outcome.life, row.ended)
    raise InvalidInput(f"{told}; one that failed must be begun again before it can end", path="key")


def _other(session_id: str, what: str, life: str, version: int) -> KeyReused:
    return KeyReused(
        f"session {session_id!r}: {what}; the first one stands (get_effects shows it). Use another key for another "
        "effect",
        session_id=session_id,
        receipt=Receipt(session_id, life, version, replayed=True),
    )
