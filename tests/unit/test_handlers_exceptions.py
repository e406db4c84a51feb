"""Exceptions that a signal's handler raised are told from faults, however a driver wraps them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator

import pytest

from everturn.backends.interrupts import is_interruption, raised_by_handler


class Raised(TypeError):
    pass


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def handle(_number: int, _frame: object) -> None:
        raise Raised("the handler's own")

    before = signal.signal(signal.SIGUSR1, handle)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupted() -> None:
    signal.raise_signal(signal.SIGUSR1)


def wrapped_with_its_traceback() -> None:
    """As redis-py wraps a TypeError."""
    try:
        interrupted()
    except TypeError:
        _, value, traceback = sys.exc_info()
        raise ValueError(value).with_traceback(traceback)  # noqa: B904


def wrapped() -> None:
    try:
        interrupted()
    except TypeError as exc:
        raise OSError("the driver's") from exc


def broken() -> None:
    raise OSError("the network's")


@pytest.mark.parametrize("call", [interrupted, wrapped, wrapped_with_its_traceback])
def test_the_handlers_own_is_found_and_not_its_wrapping(call: Callable[[], None]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each its own
        call()
    assert is_interruption(caught.value)
    assert type(raised_by_handler(caught.value)) is Raised


def found_in(call: Callable[[], None]) -> BaseException | None:
    """As a backend looks at the exception of a call to its driver."""
    try:
        call()
    except OSError as exc:
        return raised_by_handler(exc)
    raise AssertionError("the call did not fail")


def test_a_fault_while_the_caller_handles_an_interruption_is_a_fault() -> None:
    try:
        interrupted()
    except Raised:
        assert found_in(broken) is None


def test_an_interruption_while_the_caller_handles_another_is_found() -> None:
    pair: list[BaseException | None] = []
    try:
        interrupted()
    except Raised as first:
        pair = [first, found_in(wrapped)]
    assert [type(each) for each in pair] == [Raised, Raised]
    assert pair[0] is not pair[1]
