"""Functions that callers pass: they may take long, fail in odd ways, or be none at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

import everturn
from everturn import InvalidInput
from tests.store.places import Place
from tests.store.speech import say, say_each, words


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """A model that answers only once the test says so, or is over."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.where(blocking=False)
def test_slow_models_of_many_folds_hold_up_no_other_call(place: Place, gate: threading.Event) -> None:
    many = 40  # asyncio.to_thread has 32 threads at most
    store = place.open()
    asked = threading.Semaphore(0)

    def slow(*_: Any) -> str:
        asked.release()
        assert gate.wait(50)
        return "short"

    for number in range(many):
        say_each(store, f"slow-{number}", "1", "2", "3")
    say_each(store, "a", "1", "2", "3")
    store.add_summary("a", everturn.Summary("x", [1.0], (1, 1)))

    async def story() -> tuple[Any, ...]:
        awaited = store._store
        folds = [asyncio.create_task(awaited.fold(f"slow-{number}", slow, max_messages=1)) for number in range(many)]
        async with asyncio.timeout(30):
            context = await awaited.get_context("a", max_tokens=99, count_tokens=lambda _: 1)
            receipt = await awaited.trim("a", max_messages=2)
            hits = await awaited.search_summaries("a", [1.0])
            paid = await awaited.once("a", "payment", lambda: "paid")
        gate.set()
        return len(context.messages), len(receipt.seqs), len(hits), paid, await asyncio.gather(*folds)

    *others, folds = place.loop.run(story())
    assert others == [3, 0, 1, "paid"]
    assert None not in folds


def test_a_function_that_runs_out_ends_the_call(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")

    def runs_out(*_: Any) -> Any:
        return next(iter(()))  # a StopIteration, which no coroutine lets through

    for call in (
        lambda: store.fold("a", runs_out, max_messages=1),
        lambda: store.get_context("a", max_tokens=5, count_tokens=runs_out),
        lambda: store.once("a", "k", runs_out),
    ):
        with pytest.raises(RuntimeError, match="StopIteration"):
            call()
    assert words(store, "a") == ["1", "2", "3"]
    assert store.fold("a", lambda *_: "short", max_messages=1) is not None


@pytest.mark.where(blocking=False)
def test_a_fold_that_is_cancelled_while_it_asks_for_its_turn_leaves_the_turn_to_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.open()
    say_each(store, "a", "1", "2", "3")
    backend = store._operations.backend
    send = backend.lease

    async def story() -> Any:
        taken = asyncio.Event()

        async def slow(request: Any, by: float) -> Any:
            outcome = await send(request, by)
            if request.action == "take":
                taken.set()
                await asyncio.sleep(60)  # the answer is on its way
            return outcome

        monkeypatch.setattr(backend, "lease", slow)
        fold = asyncio.create_task(store._store.fold("a", lambda *_: "first", max_messages=1))
        await taken.wait()
        fold.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fold
        monkeypatch.setattr(backend, "lease", send)
        return await store._store.fold("a", lambda *_: "second", max_messages=1)

    assert place.loop.run(story()) is not None


def test_a_model_is_not_paid_for_a_lease_of_another_session(store: Any) -> None:
    say_each(store, "a", "1", "2", "3")
    paid: list[Any] = []
    with store.lease("b") as other:
        for lease in (getattr(other, "lease", other), "no lease", True):
            with pytest.raises(InvalidInput) as caught:
                store.fold("a", lambda *_: paid.append(1) or "short", max_messages=1, lease=lease)
            assert caught.value.path == "lease"
    assert paid == []


@pytest.mark.parametrize("failures", ["ValueError", [ValueError], ValueError("x"), (ValueError, "x"), None, int])
def test_failures_are_classes_of_errors_and_nothing_begins_without(one_store: Any, failures: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        one_store.once("a", "k", lambda: 1, failures=failures)
    assert caught.value.path == "failures"
    assert one_store.get_effects("a") == []


def test_a_failure_with_a_text_that_cannot_be_stored_is_a_failure_all_the_same(store: Any) -> None:
    def fails() -> None:
        raise FileNotFoundError("no file caf\udce9")

    with pytest.raises(FileNotFoundError):
        store.once("a", "k", fails, failures=OSError)
    [effect] = store.get_effects("a")
    assert (effect.status, effect.error["message"]) == ("failed", "no file caf\\udce9")
    assert store.once("a", "k", lambda: "done") == "done"


def test_a_failure_without_a_text_is_a_failure_all_the_same(one_store: Any) -> None:
    class Nameless(Exception):
        def __str__(self) -> str:
            raise TypeError("no text")

    def fails() -> None:
        raise Nameless

    with pytest.raises(Nameless):
        one_store.once("a", "k", fails, failures=Nameless)
    [effect] = one_store.get_effects("a")
    assert (effect.status, effect.error) == ("failed", {"type": "Nameless", "message": ""})


@pytest.mark.parametrize("text", ["x", "\x01", "é", "\U0001f600", '"'])
def test_a_failure_with_a_text_over_the_limit_is_a_failure_with_the_beginning_of_it(text: str) -> None:
    def fails() -> None:
        raise ValueError("failed: " + text * 20_000)

    with everturn.open("sqlite://", max_message_bytes=500) as store:
        with pytest.raises(ValueError, match=r"^failed"):
            store.once("a", "k", fails, failures=ValueError)
        [effect] = store.get_effects("a")
        assert effect.status == "failed"
        assert effect.error["message"].startswith("failed: " + text)


def test_a_failure_that_could_not_be_noted_says_that_it_is_in_doubt(
    one_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        monkeypatch.setattr(one_store._operations.backend, "change", gone)
        raise ValueError("declined")

    async def gone(*_: Any) -> Any:
        raise everturn.MemoryStoreBackendError("the disk is gone", outcome="not_written")

    with pytest.raises(everturn.MemoryStoreBackendError) as caught:
        one_store.once("a", "k", fails, failures=ValueError)
    assert "in doubt" in caught.value.__notes__[0]
    assert isinstance(caught.value.__context__, ValueError)


def test_an_error_of_once_names_the_argument(one_store: Any) -> None:
    async def coroutine() -> int:
        return 1

    answers = [coroutine()]
    with pytest.raises(InvalidInput) as caught:
        one_store.once("a", "k", answers.pop)
    assert caught.value.path == "do"


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), ({"paid": False}, {"paid": 0}), ([1.0, [True]], [1.0, [1]]), ({"a": None}, {"b": None}), ([1], [1, 2])],
)
def test_true_is_not_one(one_store: Any, one: Any, other: Any) -> None:
    one_store.begin_effect("a", "k", one)
    with pytest.raises(everturn.KeyReused):
        one_store.begin_effect("a", "k", other)
    one_store.finish_effect("a", "k", one)
    with pytest.raises(everturn.KeyReused):
        one_store.finish_effect("a", "k", other)
    assert one_store.finish_effect("a", "k", one).replayed


def test_progress_is_a_plain_function(one_store: Any) -> None:
    async def awaited(_receipt: Any) -> None: ...

    say(one_store, "a/1", "x")
    for progress in (5, "x", awaited):
        with pytest.raises(InvalidInput) as caught:
            one_store.erase_all(prefix="a/", progress=progress)
        assert caught.value.path == "progress"
    assert words(one_store, "a/1") == ["x"]


MOMENTS = [10**400, -(10**400), 10**5000, 1e300, datetime(1, 1, 1), True, "x" * 10_000]  # noqa: DTZ001 - that is its point


@pytest.mark.parametrize("moment", MOMENTS, ids=range(len(MOMENTS)))
def test_a_moment_that_is_none_erases_nothing(one_store: Any, moment: Any) -> None:
    say(one_store, "a", "x")
    with pytest.raises(InvalidInput) as caught:
        one_store.erase_all(changed_before=moment)
    assert caught.value.path == "changed_before"
    assert len(str(caught.value)) < 500
    assert words(one_store, "a") == ["x"]


@pytest.mark.parametrize("number", [-(10**5000), 10**5000, "x" * 10_000], ids=["below", "above", "text"])
def test_an_error_shows_a_long_value_in_short(one_store: Any, number: Any) -> None:
    say(one_store, "a", "x")
    for call in (
        lambda: one_store.set_ttl("a", number),
        lambda: one_store.lease("a", seconds=number),
        lambda: say(one_store, "a", "y", expected_version=number if type(number) is str else -abs(number)),
        lambda: say(one_store, "a", "y", lease=number if type(number) is str else -abs(number)),
        lambda: one_store.get_history("a", limit=number if type(number) is str else -abs(number)),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert len(str(caught.value)) < 500
    assert words(one_store, "a") == ["x"]


def test_an_error_names_the_type_of_what_cannot_be_shown(one_store: Any) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise TypeError("no text")

    with pytest.raises(InvalidInput, match="not a Odd"):
        say(one_store, "a", "x", lease=Odd())


def test_a_wait_without_end_is_a_number_too(one_store: Any) -> None:
    one_store.lease("a", wait=10**400).release()


@pytest.mark.parametrize("keep", [None, 1, "no", object()])
def test_trim_is_told_to_keep_by_true_or_false(one_store: Any, keep: Any) -> None:
    say_each(one_store, "a", "1", "2")
    with pytest.raises(InvalidInput) as caught:
        one_store.trim("a", max_messages=1, keep_system=keep)
    assert caught.value.path == "keep_system"
    assert words(one_store, "a") == ["1", "2"]
