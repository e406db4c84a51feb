"""What a call that ran out of time says: the reason, and not only that there was no time left."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import MemoryStoreBackendError
from everturn.backend import drive
from everturn.store.options import Settings
from everturn.store.retries import RetryingSender


class Runtime:
    """A busy machine: whoever sleeps wakes up a second late."""

    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + 1.0

    async def offload(self, think: Any) -> Any:
        return think()


def failing(face: Runtime, late: MemoryStoreBackendError) -> MemoryStoreBackendError:
    """How a call ends whose first attempt is refused, and whose second comes too late."""

    async def send(_retry: bool, deadline: float) -> None:
        if face.now >= deadline:
            raise late
        raise MemoryStoreBackendError("too few replicas", outcome="not_written", transient=True)

    sender = RetryingSender(None, Settings(timeout=0.3), face)  # type: ignore[arg-type]  # nothing is asked of a backend
    with pytest.raises(MemoryStoreBackendError) as caught:
        drive(sender.send_with_retries(send))
    return caught.value


def test_an_attempt_without_time_does_not_hide_why_there_was_a_second_one() -> None:
    late = MemoryStoreBackendError("the time is up", outcome="not_written", transient=True)
    error = failing(Runtime(), late)
    assert "too few replicas" in str(error)
    assert error.outcome == "not_written"


def test_an_attempt_that_was_sent_is_told() -> None:
    late = MemoryStoreBackendError("no answer in time", outcome="unknown", transient=True)
    error = failing(Runtime(), late)
    assert "no answer in time" in str(error)
    assert error.outcome == "unknown"


def test_a_refusal_does_not_hide_an_attempt_that_may_have_been_applied() -> None:
    attempts = iter(["no answer", "it came too late and was not carried out"])

    async def send(retry: bool, _deadline: float) -> None:
        outcome, transient = ("not_written", False) if retry else ("unknown", True)
        raise MemoryStoreBackendError(next(attempts), outcome=outcome, transient=transient)  # type: ignore[arg-type]

    sender = RetryingSender(None, Settings(timeout=60), Runtime())  # type: ignore[arg-type]  # nothing is asked of a backend
    with pytest.raises(MemoryStoreBackendError, match="no answer") as caught:
        drive(sender.send_with_retries(send))
    assert caught.value.outcome == "unknown"


def test_an_attempt_is_not_the_cause_of_the_next_ones_fault() -> None:
    numbers = iter(range(100))

    async def send(_retry: bool, _deadline: float) -> None:
        number = next(numbers)
        raise MemoryStoreBackendError(f"attempt {number}", outcome="unknown", transient=number < 2)

    sender = RetryingSender(None, Settings(timeout=60), Runtime())  # type: ignore[arg-type]  # nothing is asked of a backend
    with pytest.raises(MemoryStoreBackendError, match="attempt 2") as caught:
        drive(sender.send_with_retries(send))
    assert caught.value.__context__ is None


class Punctual(Runtime):
    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("timeout", [0.1, 0.5, 5.0])
def test_a_request_that_is_refused_each_time_is_never_in_doubt(timeout: float) -> None:
    """Each answer takes a twentieth of the time-out: an attempt that is sent later than that has none."""
    face, attempts = Punctual(), []

    async def send(_retry: bool, deadline: float) -> None:
        attempts.append(face.now)
        face.now += timeout / 20
        if face.now > deadline:
            raise MemoryStoreBackendError("no answer in time", outcome="unknown", transient=True)
        raise MemoryStoreBackendError("a read-only replica", outcome="not_written", transient=True)

    sender = RetryingSender(None, Settings(timeout=timeout), face)  # type: ignore[arg-type]  # nothing is asked of a backend
    with pytest.raises(MemoryStoreBackendError, match="a read-only replica") as caught:
        drive(sender.send_with_retries(send))
    assert caught.value.outcome == "not_written"
    assert attempts[-1] > 100.0 + 0.8 * timeout  # it may have become a master by then


@pytest.mark.parametrize("timeout", [0.1, 0.5, 5.0])
def test_a_call_is_sent_again_until_its_time_is_over(timeout: float) -> None:
    face, attempts = Punctual(), []

    async def send(_retry: bool, _deadline: float) -> None:
        attempts.append(face.now)
        raise MemoryStoreBackendError("reset", outcome="unknown", transient=True)

    sender = RetryingSender(None, Settings(timeout=timeout), face)  # type: ignore[arg-type]  # nothing is asked of a backend
    with pytest.raises(MemoryStoreBackendError):
        drive(sender.send_with_retries(send))
    # Else the latest attempt could be applied long after its caller heard that it may not have been.
    assert 0 < 100.0 + timeout - face.now < 0.01
    assert len(attempts) < 20 + 4 * timeout
