"""Processes whose clocks are minutes apart: what a clock decides is when something ends, and never what is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage, LeaseHeld, LeaseLost, MemoryStoreBackendError
from everturn.backend import REMEMBERED, State
from everturn.backends.dynamodb.change import _decode_receipts
from everturn.backends.dynamodb.erase import _encoded
from everturn.transfer.session_lines import ChangePart

Opened = Callable[..., Any]
MINUTES = 600.0


def say(store: Any, text: str, **options: Any) -> Any:
    return store.add_messages("a", [ChatMessage("user", text)], **options)


def texts(store: Any) -> list[str]:
    return [message.content for message in store.get_history("a")]


def apart(store: Any, seconds: float) -> Any:
    """Set the clock of a store."""
    store._operations.backend._clock = lambda: time.time() + seconds
    return store


@pytest.mark.parametrize("behind", [-MINUTES, MINUTES])
def test_an_erasure_by_another_clock_knows_the_call_that_it_took_away(opened: Opened, behind: float) -> None:
    """The answer to an append is lost, and the session erased; the retry must not bring the text back."""
    writer, eraser = apart(opened(timeout=30), -behind), opened()
    say(writer, "first")
    client = writer._operations.backend.client
    send = client.send
    erased: list[Any] = []

    async def erase_behind(operation: str, *args: Any, **options: Any) -> Any:
        answer = await send(operation, *args, **options)
        if operation == "transact_write_items" and not erased:
            erased.append(eraser.erase("a"))
            raise MemoryStoreBackendError("no answer", outcome="unknown", transient=True)
        return answer

    client.send = erase_behind
    assert say(writer, "second").replayed
    assert texts(writer) == texts(eraser) == []


@pytest.mark.parametrize("seconds", [-MINUTES, MINUTES])
def test_a_lease_that_another_clock_ended_holds_nobody_up_and_changes_nothing(opened: Opened, seconds: float) -> None:
    here, there = opened(), apart(opened(), seconds)
    say(here, "first")
    lease = here.lease("a", seconds=30).__enter__()
    if seconds < 0:
        with pytest.raises(LeaseHeld):
            there.lease("a", seconds=30).__enter__()
        say(here, "second", lease=lease)
        return
    with there.lease("a", seconds=30) as later:
        with pytest.raises(LeaseLost):
            say(here, "late", lease=lease)
        say(there, "second", lease=later)
    assert texts(here) == ["first", "second"]


def test_a_session_that_expired_by_one_clock_only_is_never_mixed(opened: Opened) -> None:
    """The clock that is ahead begins a new life. Whoever still had the old one meets it, and adds to it."""
    here, ahead = opened(ttl=60), apart(opened(ttl=60), MINUTES)
    first = say(here, "old")
    assert texts(ahead) == []
    second = say(ahead, "new")
    third = say(here, "newer")
    assert first.life != second.life == third.life
    assert (second.version, third.version) == (1, 2)
    assert texts(here) == ["new", "newer"]
    assert here.verify("a").ok


def test_the_receipts_of_an_erasure_fit_into_an_item() -> None:
    part = ChangePart(
        999_999_999_999, "delete_snapshot", 999_999_999_999, 99_999, 1763500000.123456, b"x" * 16, State()
    )
    receipts = [("f" * 32, part)] * REMEMBERED
    told = _encoded(receipts)
    assert _decode_receipts(told) == receipts
    assert len(told) < 390_000
