"""What each of Redis's errors says about a change. No server is asked."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import exceptions

from everturn import MemoryStoreBackendError
from everturn.backend import drive
from everturn.backends.redis.client import Sender
from everturn.backends.redis.errors import is_refusal, refusal, refused, unanswered, unsent
from everturn.backends.redis.keys import KeyNames
from everturn.backends.redis.scripts import APPEND
from everturn.backends.redis.topology import CheckedFirst, SingleServer

WRAPPED = "Error running script (call to f_0a): @user_script:12: @user_script: 12: -{} "


def told(exc: Exception) -> MemoryStoreBackendError:
    assert is_refusal(exc)
    return refused(refusal(exc), "Redis at h:1")


@pytest.mark.parametrize(
    ("exc", "transient", "text"),
    [
        (exceptions.OutOfMemoryError("command not allowed"), False, "at its maxmemory"),
        (exceptions.ReadOnlyError("You can't write"), True, "read-only replica"),
        (exceptions.BusyLoadingError("loading"), True, "loading its data"),
        (exceptions.NoPermissionError("no permissions"), False, "ACL"),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas"), True, "min-replicas-to-write"),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), False, "cannot write its data to disk"),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), True, "script of someone else"),
        (exceptions.ResponseError(WRAPPED.format("READONLY") + "You can't write"), True, "read-only replica"),
        (exceptions.ResponseError(WRAPPED.format("OOM") + "command not allowed"), False, "at its maxmemory"),
        (exceptions.ResponseError(WRAPPED.format("NOREPLICAS") + "Not enough"), True, "min-replicas-to-write"),
    ],
)
def test_what_a_server_refuses_is_not_written(exc: Exception, transient: bool, text: str) -> None:
    error = told(exc)
    assert (error.outcome, error.transient) == ("not_written", transient)
    assert text in str(error)


def test_of_an_error_that_nobody_knows_nothing_is_known() -> None:
    assert told(exceptions.ResponseError("WRONGTYPE Operation against a key")).outcome == "unknown"
    assert told(exceptions.ResponseError(WRAPPED.format("WRONGTYPE") + "Operation")).outcome == "unknown"


def test_a_request_that_never_left_is_not_written_and_one_unanswered_is_in_doubt() -> None:
    assert unsent("Redis", ConnectionRefusedError()).outcome == "not_written"
    assert unanswered("Redis", TimeoutError()).outcome == "unknown"
    assert not is_refusal(exceptions.ConnectionError("gone"))


class Mute:
    """Connections on which nothing is answered."""

    async def exchange(self, *_: Any, **__: Any) -> list[Any]:
        raise unanswered("Redis at h:1", TimeoutError("timed out"))

    async def close(self) -> None: ...


@pytest.mark.parametrize("question", ["greeting", "time"])
def test_a_change_whose_question_before_it_was_not_answered_says_that_it_was_not_sent(question: str) -> None:
    sender = Sender(Mute(), SingleServer(("h", 1)))
    if question == "greeting":
        sender.topology = CheckedFirst(sender.topology, lambda deadline: Mute().exchange(deadline))  # type: ignore[arg-type]
    with pytest.raises(MemoryStoreBackendError) as caught:
        drive(sender.change(APPEND, KeyNames("").keys("s"), [], "", time.monotonic() + 5))
    error = caught.value
    assert (error.outcome, error.transient) == ("not_written", True)
    assert "timed out; the request was not sent" in str(error)
    assert "not known" not in str(error)
