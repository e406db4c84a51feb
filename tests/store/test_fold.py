"""Fold: the summary and what it hides change places in one step, and nothing is lost, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, KeyReused, MemoryStoreBackendError, Summary, VersionConflict
from everturn.store import fold as fold_module
from tests.store.places import Clock
from tests.store.speech import calling, result, say, say_each, system, user, words


def summing(messages: list[ChatMessage], earlier: Summary | None) -> str:
    """A model: the words of the summary before, and of the messages."""
    return "".join([earlier.text if earlier else "", *(message.text for message in messages)])


def refusing(_messages: list[ChatMessage], _earlier: Summary | None) -> str:
    raise AssertionError("the model was paid")


def meanwhile(what: Callable[[], Any]) -> Callable[..., str]:
    def summarize(messages: list[ChatMessage], earlier: Summary | None) -> str:
        what()
        return summing(messages, earlier)

    return summarize


def texts(store: Any, session_id: str) -> list[str]:
    return [summary.text for summary in store.get_summaries(session_id)]


# --- the change ------------------------------------------------------------------------------------------------------


def test_a_fold_hides_the_oldest_turns_behind_a_summary(store: Any) -> None:
    say_each(store, "a", *"12345")
    receipt = store.fold("a", summing, max_messages=2)
    assert words(store, "a") == ["4", "5"]
    (summary,) = store.get_summaries("a")
    assert (summary.text, summary.covers, summary.seq) == ("123", (1, 3), 6)
    assert (receipt.version, receipt.seqs) == (6, (6,))
    assert store.changes("a", 1)[0].kind == "fold"
    assert store.verify().ok


def test_a_fold_of_what_fits_asks_no_model(store: Any) -> None:
    say_each(store, "a", *"12")
    before = store.state("a")
    assert store.fold("a", refusing, max_messages=2) is None
    assert store.state("a") == before
    assert store.fold("absent", refusing, max_messages=2) is None


def test_a_fold_keeps_whole_turns_tool_pairs_and_system_messages(store: Any) -> None:
    store.add_messages("a", [system("s"), user("1")])
    store.add_messages("a", [user("2"), calling("c")])
    store.add_messages("a", [result("c")])
    store.fold("a", summing, max_messages=2)
    assert words(store, "a") == ["s", "2", None, "done"]
    assert texts(store, "a") == ["1"]


def test_the_next_fold_gets_the_summary_before(store: Any) -> None:
    say_each(store, "a", *"1234")
    store.fold("a", summing, max_messages=2)
    say_each(store, "a", *"56")
    store.fold("a", summing, max_messages=1)
    assert texts(store, "a") == ["12", "12345"]
    assert [summary.covers for summary in store.get_summaries("a")] == [(1, 2), (1, 6)]
    assert words(store, "a") == ["6"]


def test_a_fold_by_tokens(store: Any) -> None:
    say_each(store, "a", *"12345")
    store.fold("a", summing, max_tokens=3, count_tokens=lambda message: len(message.text))
    assert words(store, "a") == ["3", "4", "5"]
    store.fold("a", summing, max_tokens=6)  # by the estimate: five a message
    assert words(store, "a") == ["5"]


def test_embed_makes_it_searchable(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", summing, max_messages=1, embed=lambda text: [float(len(text)), 0.0])
    (hit,) = store.search_summaries("a", [1.0, 0.0])
    assert hit.summary.text == "12"


def test_a_summary_without_an_embedding_is_not_searched(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", summing, max_messages=1)
    assert store.search_summaries("a", [1.0]) == []
    store.add_summary("a", Summary("other", [1.0], (1, 1)))
    assert [hit.summary.text for hit in store.search_summaries("a", [1.0])] == ["other"]


def test_a_summarizer_may_return_a_summary(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", lambda *_: Summary("mine", [1.0], (0, 0), extra={"model": "m"}), max_messages=1)
    (summary,) = store.get_summaries("a")
    assert (summary.text, summary.covers, summary.extra) == ("mine", (1, 2), {"model": "m", "fold": True})
    assert store.search_summaries("a", [1.0])


def test_a_fold_after_a_rollback_follows_the_head(store: Any) -> None:
    say_each(store, "a", *"12345")
    store.rollback("a", 4)
    store.fold("a", summing, max_messages=1)
    say(store, "a", "6")
    assert (words(store, "a"), texts(store, "a")) == (["4", "6"], ["123"])
    assert store.verify().ok


# --- undo ------------------------------------------------------------------------------------------------------------


def test_undo_takes_back_one_fold(store: Any) -> None:
    say_each(store, "a", *"1234")
    before = store.state("a").entries
    store.fold("a", summing, max_messages=2)
    after = store.state("a").entries
    store.fold("a", summing, max_messages=1)
    store.undo("a")
    assert store.state("a").entries == after
    store.undo("a")
    assert store.state("a").entries == before
    assert store.verify().ok


def test_undo_of_a_fold_keeps_later_turns_and_hides_the_summary(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", summing, max_messages=1, embed=lambda _: [1.0])
    say(store, "a", "4")
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3", "4"]
    assert texts(store, "a") == []
    assert store.search_summaries("a", [1.0]) == []
    assert store.find("12", session_id="a") == []
    assert store.state("a").summaries == ()
    assert store.state("a", at=4).summaries[0].text == "12"


def test_undo_of_a_fold_survives_compact_and_a_fork(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", summing, max_messages=1)
    store.compact("a")
    store.fork("a", "b")
    assert (words(store, "b"), texts(store, "b")) == (["3"], ["12"])
    store.undo("a")
    assert words(store, "a") == ["1", "2", "3"]
    assert store.verify().ok


def test_a_rollback_takes_the_summary_of_a_fold_too(store: Any) -> None:
    say_each(store, "a", *"123")
    snapshot = store.save_snapshot("a")
    store.fold("a", summing, max_messages=1, embed=lambda _: [1.0])
    store.rollback_to_snapshot("a", snapshot)
    assert (words(store, "a"), texts(store, "a")) == (["1", "2", "3"], [])
    store.undo("a")
    assert (words(store, "a"), texts(store, "a")) == (["3"], ["12"])


# --- meanwhile -------------------------------------------------------------------------------------------------------


def test_turns_that_are_appended_while_the_model_works_stay_in_view(store: Any) -> None:
    say_each(store, "a", *"123")
    store.fold("a", meanwhile(lambda: say(store, "a", "4", "5")), max_messages=1)
    assert words(store, "a") == ["3", "4", "5"]
    assert texts(store, "a") == ["12"]


@pytest.mark.parametrize("what", ["clear", "trim", "rollback", "replace", "erase"])
def test_a_fold_that_comes_after_another_change_writes_nothing(store: Any, what: str) -> None:
    say_each(store, "a", *"1234")
    snapshot = store.save_snapshot("a")
    say_each(store, "a", *"56")

    def change() -> None:
        match what:
            case "clear":
                store.clear("a")
            case "trim":
                store.trim("a", max_messages=3)
            case "rollback":
                store.rollback_to_snapshot("a", snapshot)
            case "replace":
                store.replace("a", [user("new")], after=2)
            case "erase":
                store.erase("a")
                say_each(store, "a", *"123456")

    kept: list[Any] = []

    def both() -> None:
        change()
        kept.append(store.state("a"))

    assert store.fold("a", meanwhile(both), max_messages=1) is None
    assert store.state("a") == kept[0]


def test_a_fold_while_another_folds_asks_no_model(store: Any) -> None:
    say_each(store, "a", *"123")
    inner: list[Any] = []
    receipt = store.fold(
        "a", meanwhile(lambda: inner.append(store.fold("a", refusing, max_messages=1))), max_messages=1
    )
    assert (inner, texts(store, "a")) == ([None], ["12"])
    assert receipt is not None


def test_a_summarizer_that_fails_leaves_the_session_as_it_was(store: Any) -> None:
    say_each(store, "a", *"123")
    before = store.state("a")
    with pytest.raises(ZeroDivisionError):
        store.fold("a", lambda *_: 1 / 0, max_messages=1)
    assert store.state("a") == before
    assert [info.session_id for info in store.sessions().sessions] == ["a"]
    assert store.fold("a", summing, max_messages=1) is not None


def test_the_lease_of_a_worker_that_died_expires(store: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    say_each(store, "a", *"123")
    backend = store._operations.backend
    lease = backend.lease

    async def dying(request: Any, deadline: float) -> Any:
        if request.action == "release":
            raise MemoryStoreBackendError("it died", outcome="unknown")
        return await lease(request, deadline)

    with monkeypatch.context() as patched:
        patched.setattr(backend, "lease", dying)
        with pytest.raises(ZeroDivisionError):
            store.fold("a", lambda *_: 1 / 0, max_messages=1)
    assert store.fold("a", refusing, max_messages=1) is None
    clock.advance(fold_module.LEASE_SECONDS + 1)
    assert store.fold("a", summing, max_messages=1) is not None
    assert texts(store, "a") == ["12"]


def test_a_fold_that_another_did_before_the_lease_asks_no_model(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    say_each(store, "a", *"1234")
    operations = store._operations
    claim = operations._right_to_ask

    @asynccontextmanager
    async def late(session_id: str) -> AsyncIterator[bool]:
        monkeypatch.setattr(operations, "_right_to_ask", claim)
        await operations.fold(session_id, summing, max_messages=2)
        async with claim(session_id) as is_ours:
            yield is_ours

    monkeypatch.setattr(operations, "_right_to_ask", late)
    assert store.fold("a", refusing, max_messages=2) is None
    assert texts(store, "a") == ["12"]


def test_nobody_sees_the_lease_of_a_fold(store: Any) -> None:
    """It is no session of the user: not listed, not counted, not cleared, not copied."""
    say_each(store, "a", *"1234")
    seen: list[Any] = []

    def looking(*_: object) -> str:
        names = [session.session_id for session in store.sessions().sessions]
        seen.append((names, store.verify().sessions, store.sessions("everturn:").sessions))
        store.compact()
        return "so far"

    assert store.fold("a", looking, max_messages=2) is not None
    assert seen == [(["a"], 1, ())]

    def clearing(*_: object) -> str:
        seen.append(store.clear_all())
        return "further"

    say_each(store, "a", *"5678")
    assert store.fold("a", clearing, max_messages=2) is None  # what it covers was cleared
    assert seen[1:] == [1]


def test_a_fold_needs_no_lease_of_the_session(store: Any) -> None:
    """The lease of a fold is its own: one who holds the session's may fold, and so may others."""
    say_each(store, "a", *"1234")
    with store.lease("a"):
        assert store.fold("a", summing, max_messages=2) is not None


def test_a_backend_without_leases_folds(one_store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each worker may ask a model, and one summary stands all the same."""
    say_each(one_store, "a", *"1234")
    monkeypatch.setattr(one_store._operations.backend, "lease", None)
    assert one_store.fold("a", summing, max_messages=2) is not None
    assert texts(one_store, "a") == ["12"]


def test_sixteen_workers_that_fold_at_once_pay_one_model(store: Any) -> None:
    say_each(store, "a", *"12345")
    paid: list[int] = []
    started = threading.Barrier(16)

    def slow(messages: list[ChatMessage], earlier: Summary | None) -> str:
        paid.append(1)
        return summing(messages, earlier)

    receipts: list[Any] = []

    def work() -> None:
        started.wait()
        receipts.append(store.fold("a", slow, max_messages=2))

    workers = [threading.Thread(target=work) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert (len(receipts), len(paid), texts(store, "a")) == (16, 1, ["123"])
    assert sum(receipt is not None for receipt in receipts) == 1


# --- keys and versions -----------------------------------------------------------------------------------------------


def test_a_retry_with_the_key_finds_the_first_fold(store: Any) -> None:
    say_each(store, "a", *"1234")
    first = store.fold("a", summing, max_messages=2, key="k")
    say_each(store, "a", *"56")
    again = store.fold("a", refusing, max_messages=2, key="k")
    assert (again.version, again.seqs, again.replayed) == (first.version, first.seqs, True)
    with pytest.raises(KeyReused):
        say(store, "a", "other", key="k")


def test_an_unexpected_version_is_refused_before_the_model_is_paid(store: Any) -> None:
    receipts = say_each(store, "a", *"123")
    with pytest.raises(VersionConflict):
        store.fold("a", refusing, max_messages=1, expected_version=receipts[0])
    assert store.fold("a", summing, max_messages=1, expected_version=receipts[2]) is not None


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, "max_messages"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_messages": 1.5}, "max_messages"),
        ({"max_messages": 1, "embed": 3}, "embed"),
        ({"max_tokens": 1, "count_tokens": "no"}, "count_tokens"),
        ({"max_tokens": 1, "count_tokens": lambda _: "many"}, "count_tokens"),
        ({"max_tokens": 1, "count_tokens": lambda _: -1}, "count_tokens"),
        ({"max_messages": 1, "embed": lambda _: None}, "embed"),
        ({"max_messages": 1, "embed": lambda _: 0.5}, "embed"),
        ({"max_messages": 1, "embed": lambda _: []}, "summary.embedding"),
        ({"max_messages": 1, "embed": lambda _: [float("nan")]}, "summary.embedding"),
        ({"max_messages": 1, "embed": lambda _: [1.0, 2.0, 3.0]}, "embedding"),
        ({"max_messages": 1, "embed": lambda _: b"12"}, "embed"),
        ({"max_messages": 1, "embed": lambda _: {1.0, 2.0}}, "embed"),
        ({"max_messages": 1, "embed": lambda _: {1.0: 1, 2.0: 2}}, "embed"),
    ],
)
def test_bad_arguments_write_nothing(store: Any, options: dict[str, Any], path: str) -> None:
    say_each(store, "a", *"123")
    store.add_summary("a", Summary("s", [1.0, 0.0], (1, 1)))
    before = store.state("a")
    with pytest.raises(InvalidInput, match=path.replace(".", r"\.")):
        store.fold("a", summing, **options)
    assert store.state("a") == before


@pytest.mark.parametrize(
    "made", [None, "", "  ", 3, ["text"], Summary("", None, (1, 1)), Summary("x", None, (1, 1), extra=[1])]
)
def test_a_summarizer_that_returns_no_text_writes_nothing(store: Any, made: object) -> None:
    say_each(store, "a", *"123")
    before = store.state("a")
    with pytest.raises(InvalidInput, match="summarize"):
        store.fold("a", lambda *_: made, max_messages=1)
    assert store.state("a") == before


def test_what_is_no_function_is_refused(one_store: Any) -> None:
    with pytest.raises(InvalidInput, match="summarize"):
        one_store.fold("a", "a text", max_messages=1)


@pytest.mark.parametrize("last", [1, 2, 3])
def test_asking_again_after_a_fold_loses_neither_the_summary_nor_what_it_stands_for(store: Any, last: int) -> None:
    say_each(store, "a", *"0123456789")
    store.fold("a", lambda messages, _: " ".join(message.text for message in messages), max_messages=3)
    kept = store.get_history("a")
    store.replace("a", [ChatMessage("user", "again")], after=(kept[-last].seq or 0) - 1)
    told = " ".join(message.text for message in store.get_context("a").messages)
    assert all(word in told for word in "0123456")
