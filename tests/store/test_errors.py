"""Errors: one tree, every value an attribute, and the same on the far side of a process border."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import pytest

import everturn
from everturn import (
    CorruptEntry,
    Effect,
    EffectInDoubt,
    InvalidInput,
    KeyReused,
    LeaseHeld,
    LeaseLost,
    MemoryStoreBackendError,
    MemoryStoreError,
    Receipt,
    SchemaTooNew,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
)
from tests.store.places import File
from tests.store.speech import say

ERRORS = [
    MemoryStoreError("what"),
    MemoryStoreBackendError("what", outcome="unknown", transient=True),
    VersionConflict("what", session_id="a", expected=7, actual=9),
    KeyReused("what", session_id="a", receipt=Receipt("a", life="b", version=7, seqs=(1, 2))),
    LeaseHeld("what", session_id="a", token=1, left=2.0),
    LeaseLost("what", session_id="a", token=1),
    EffectInDoubt("what", session_id="a", effect=Effect("k", "started")),
    CorruptEntry("what", session_id="a", seq=3),
    SessionNotFound("what", session_id="a"),
    SnapshotNotFound("what", session_id="a", snapshot="s"),
    InvalidInput("what", path="messages[2]"),
    Unsupported("what"),
    SchemaTooNew("what", found=9, supported=1),
]
every_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def same(one: BaseException, other: BaseException) -> bool:
    return type(one) is type(other) and str(one) == str(other) and vars(one) == vars(other)


@every_error
def test_every_error_is_a_memory_store_error(error: MemoryStoreError) -> None:
    assert isinstance(error, MemoryStoreError)


def test_no_error_of_ours_is_missing_here() -> None:
    ours = {value for value in vars(everturn).values() if isinstance(value, type) and issubclass(value, Exception)}
    assert ours == {type(error) for error in ERRORS}


@every_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(error: MemoryStoreError, protocol: int) -> None:
    assert same(pickle.loads(pickle.dumps(error, protocol)), error)


@every_error
def test_an_error_survives_copying(error: MemoryStoreError) -> None:
    assert same(copy.copy(error), error)
    assert same(copy.deepcopy(error), error)


def write_stale(url: str) -> None:
    with everturn.open(url) as store:
        say(store, "a", "2", expected_version=7)


def write_nonsense(url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("a", [{"role": "user", "content": {1}}])


def test_errors_cross_process_borders(file: File) -> None:
    say(file.open(), "a", "1")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(VersionConflict) as conflict:
            pool.apply(write_stale, (file.url,))
        with pytest.raises(InvalidInput) as invalid:
            pool.apply(write_nonsense, (file.url,))
    assert (conflict.value.session_id, conflict.value.expected, conflict.value.actual) == ("a", 7, 1)
    assert invalid.value.path == "messages[0].content"


def test_an_error_of_the_backend_keeps_its_cause(file: File) -> None:
    file.path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(InvalidInput, match="not a SQLite database") as caught:
        file.open()
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("value", [everturn.ChatMessage("user", "x"), everturn.Receipt("a", "l", 1, (1,))])
def test_values_cross_process_borders_too(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_message_from_a_store_keeps_its_seq_across_a_border() -> None:
    with everturn.open("sqlite://") as store:
        say(store, "a", "1")
        (message,) = pickle.loads(pickle.dumps(store.get_history("a")))
    assert (message.seq, message.content) == (1, "1")
