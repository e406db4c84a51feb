"""Exceptions that a signal's handler raised are told from faults, however a driver wraps them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from everturn import ChatMessage, Summary
from everturn.core import codec, message_batches
from everturn.core.signal_exceptions import is_interruption, raised_by_handler


class Raised(TypeError, ValueError):
    """What reading a damaged value raises, too."""


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


def interrupted_in_compiled_code() -> None:
    """As in psycopg's wait, which is compiled: it has a frame in the traceback that is not the one interrupted."""

    def handle(*_: object) -> None:
        raise Raised("the handler's own")

    def compiled(frames: list[FrameType]) -> None:
        handle(signal.SIGUSR1, frames.pop())

    compiled([sys._getframe()])


def broken() -> None:
    raise OSError("the network's")


@pytest.mark.parametrize("call", [interrupted, wrapped, wrapped_with_its_traceback, interrupted_in_compiled_code])
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


# --- in the middle of decoding ---------------------------------------------------------------------------------------


def interrupting(*_: object) -> None:
    """In place of a decoder: the signal comes while it works."""
    interrupted()


def row_of(entry: ChatMessage | Summary) -> tuple[int, float, int, bytes]:
    draft = codec.encode(entry, "", 1000)
    return 1, 0.0, draft.checksum, draft.body


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_an_interruption_while_an_entry_is_decoded_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, on_corrupt: message_batches.OnCorrupt
) -> None:
    row = row_of(ChatMessage("user", "x"))
    monkeypatch.setattr(message_batches, "_decode_lines", lambda _: [])  # so that each is looked at
    monkeypatch.setattr(codec, "_decode_message", interrupting)
    with pytest.raises(Raised):
        message_batches.MessageReader("a", on_corrupt).take([row])


def test_nor_is_one_while_an_embedding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(Summary("x", [1.0], (1, 1)))
    monkeypatch.setattr(codec, "_decode_any", interrupting)
    with pytest.raises(Raised):
        codec.embedding_of("a", row[0], row[2], row[3])


def test_an_interruption_while_a_batch_is_decoded_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(ChatMessage("user", "x"))
    monkeypatch.setattr(message_batches, "_decode_lines", interrupting)
    with pytest.raises(Raised):
        message_batches.MessageReader("a").take([row])
