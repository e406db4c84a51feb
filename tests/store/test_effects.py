"""Effects: begun once, ended once, and in doubt where nobody knows."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import everturn
from everturn import EffectInDoubt, InvalidInput, KeyReused, LeaseLost, VersionConflict
from everturn.backend import LeaseRequest
from tests.store.places import Clock, Place
from tests.store.speech import say, words


def in_doubt(store: Any, key: str = "pay", **options: Any) -> None:
    """Leave an effect as a worker does that crashes while it does it."""
    assert store.begin_effect("a", key, {"amount": 20}, **options).status == "new"


def test_an_effect_begins_once(store: Any) -> None:
    first = store.begin_effect("a", "pay", {"amount": 20})
    again = store.begin_effect("a", "pay", {"amount": 20})
    assert (first.key, first.status, first.request, first.attempt) == ("pay", "new", {"amount": 20}, 1)
    assert (again.status, again.attempt, again.version) == ("started", 1, first.version)


def test_beginning_and_ending_are_changes(store: Any) -> None:
    say(store, "a", "1")
    assert store.begin_effect("a", "pay").version == 2
    assert store.finish_effect("a", "pay", "ok").version == 3
    store.begin_effect("a", "mail")
    assert store.fail_effect("a", "mail", "no").version == 5
    assert [(change.kind, change.label) for change in store.changes("a")] == [
        ("fail_effect", "mail"),
        ("begin_effect", "mail"),
        ("finish_effect", "pay"),
        ("begin_effect", "pay"),
        ("append", None),
    ]
    assert words(store, "a") == ["1"]


def test_a_second_beginning_changes_nothing(store: Any) -> None:
    store.begin_effect("a", "pay")
    before = store.state("a")
    store.begin_effect("a", "pay")
    assert store.state("a") == before


def test_an_effect_begins_the_life_of_a_session(store: Any) -> None:
    assert store.begin_effect("a", "pay", expected_version=0).version == 1
    assert store.info("a").version == 1


def test_whoever_comes_after_the_end_sees_the_result(store: Any) -> None:
    store.begin_effect("a", "pay")
    store.finish_effect("a", "pay", {"receipt": 7})
    effect = store.begin_effect("a", "pay")
    assert (effect.status, effect.result, effect.error) == ("finished", {"receipt": 7}, None)


def test_an_effect_that_failed_may_begin_again(store: Any) -> None:
    store.begin_effect("a", "pay", {"card": 1})
    store.fail_effect("a", "pay", "declined")
    (failed,) = store.get_effects("a")
    assert (failed.status, failed.error) == ("failed", "declined")
    again = store.begin_effect("a", "pay", {"card": 2})
    assert (again.status, again.attempt, again.request, again.error) == ("new", 2, {"card": 2}, None)


def test_effects_are_listed_in_the_order_in_which_they_were_begun(store: Any) -> None:
    assert store.get_effects("a") == []
    for key in ("z", "a", "m"):
        store.begin_effect("a", key, key.upper())
    store.finish_effect("a", "a", [1])
    listed = store.get_effects("a")
    assert [(effect.key, effect.status, effect.request, effect.result) for effect in listed] == [
        ("z", "started", "Z", None),
        ("a", "finished", "A", [1]),
        ("m", "started", "M", None),
    ]
    assert all(effect.by for effect in listed)
    assert listed[1].ended_at is not None
    assert store.verify().ok


def test_no_change_of_the_history_touches_an_effect(store: Any) -> None:
    say(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a")
    say(store, "a", "4")
    store.begin_effect("a", "pay", {"amount": 20})
    store.finish_effect("a", "pay", "ok")
    in_doubt(store, "mail")
    before = store.get_effects("a")
    store.rollback_to_snapshot("a", snapshot)
    store.undo("a")
    store.rollback("a", 1)
    store.trim("a", max_messages=1)
    store.fold("a", lambda *_: "short", max_messages=1)
    store.clear("a")
    store.compact("a", drop_undo=True)
    assert store.get_effects("a") == before
    assert store.begin_effect("a", "pay").status == "finished"


def test_erasing_takes_effects_along(store: Any) -> None:
    in_doubt(store)
    store.erase("a")
    assert store.get_effects("a") == []
    assert store.begin_effect("a", "pay").status == "new"


def test_the_end_of_a_life_is_the_end_of_its_effects(store: Any, clock: Clock) -> None:
    in_doubt(store)
    store.set_ttl("a", 10)
    clock.advance(11)
    assert store.get_effects("a") == []
    assert store.begin_effect("a", "pay").status == "new"


def test_a_fork_leaves_effects_behind(store: Any) -> None:
    say(store, "a", "1")
    in_doubt(store)
    store.fork("a", "b")
    assert store.get_effects("b") == []
    assert store.begin_effect("b", "pay").status == "new"


def test_requests_results_and_errors_come_back_as_they_went_in(store: Any) -> None:
    value = {"text": "a\u0000b\n\u2028é😀", "list": [1, 2.5, None, True, {"deep": []}], "big": 2**63}
    store.begin_effect("a", "k\n:{}%é", value)
    store.finish_effect("a", "k\n:{}%é", value)
    store.begin_effect("a", "other", None)
    store.fail_effect("a", "other", value)
    store.begin_effect("a", "empty")
    store.finish_effect("a", "empty")
    first, second, third = store.get_effects("a")
    assert (first.key, first.request, first.result) == ("k\n:{}%é", value, value)
    assert (second.request, second.error) == (None, value)
    assert (third.status, third.result) == ("finished", None)


@pytest.mark.parametrize("value", [float("nan"), b"x", (1,), {1: 2}, {1}, "\ud800"], ids=repr)
def test_a_value_that_cannot_be_stored_is_refused_and_nothing_is_begun(one_store: Any, value: Any) -> None:
    with pytest.raises(InvalidInput, match="request"):
        one_store.begin_effect("a", "pay", value)
    assert one_store.get_effects("a") == []
    one_store.begin_effect("a", "pay")
    for end in (one_store.finish_effect, one_store.fail_effect):
        with pytest.raises(InvalidInput, match=r"result|error"):
            end("a", "pay", value)
    assert one_store.get_effects("a")[0].status == "started"


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0b", None, 7, "\ud800"])
def test_a_key_is_a_short_text(one_store: Any, key: Any) -> None:
    with pytest.raises(InvalidInput, match="key"):
        one_store.begin_effect("a", key)


def test_an_effect_that_never_began_cannot_end(store: Any) -> None:
    for session in ("a", "b"):
        for end in (store.finish_effect, store.fail_effect):
            with pytest.raises(InvalidInput, match=r"key: session '.' has no effect 'pay': it was never begun"):
                end(session, "pay", "x")
        say(store, "b", "1")
    assert store.get_effects("b") == []


def test_ending_twice_with_the_same_result_is_the_same_as_once(store: Any) -> None:
    store.begin_effect("a", "pay")
    first = store.finish_effect("a", "pay", {"b": 1, "a": [2.0]})
    again = store.finish_effect("a", "pay", {"a": [2], "b": 1})
    assert (again.version, again.life, again.replayed) == (first.version, first.life, True)
    assert store.info("a").version == first.version


def test_ending_twice_with_another_result_is_refused_and_the_first_stands(store: Any) -> None:
    store.begin_effect("a", "pay")
    first = store.finish_effect("a", "pay", 1)
    with pytest.raises(KeyReused) as caught:
        store.finish_effect("a", "pay", 2)
    assert caught.value.receipt.version == first.version
    with pytest.raises(InvalidInput, match="has finished before"):
        store.fail_effect("a", "pay", "no")
    assert store.get_effects("a")[0].result == 1


def test_another_request_under_the_same_key_is_refused(store: Any) -> None:
    store.begin_effect("a", "pay", {"amount": 20})
    with pytest.raises(KeyReused, match="begun with another request"):
        store.begin_effect("a", "pay", {"amount": 30})
    assert store.begin_effect("a", "pay").request == {"amount": 20}


def test_beginning_obeys_the_expected_version(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(VersionConflict):
        store.begin_effect("a", "pay", expected_version=7)
    assert store.get_effects("a") == []


def test_an_attempt_that_was_repeated_cannot_end_the_effect(store: Any) -> None:
    first = store.begin_effect("a", "pay", {"amount": 20})
    second = store.begin_effect("a", "pay", repeats=first.attempt)
    assert (second.status, second.attempt, second.request) == ("new", 2, {"amount": 20})
    assert store.begin_effect("a", "pay", repeats=first.attempt).status == "started"
    with pytest.raises(EffectInDoubt):
        store.finish_effect("a", "pay", "late", attempt=first.attempt)
    store.finish_effect("a", "pay", "ok", attempt=second.attempt)
    assert store.get_effects("a")[0].result == "ok"


# --- once ------------------------------------------------------------------------------------------------------------


def test_once_does_it_once_and_returns_the_stored_result(store: Any) -> None:
    done: list[int] = []

    def pay() -> dict[str, int]:
        done.append(1)
        return {"receipt": len(done)}

    assert [store.once("a", "pay", pay, request=20) for _ in range(3)] == [{"receipt": 1}] * 3
    assert done == [1]


def test_a_crash_leaves_it_in_doubt_and_nothing_is_done_again(store: Any) -> None:
    in_doubt(store)
    with pytest.raises(EffectInDoubt) as caught:
        store.once("a", "pay", lambda: pytest.fail("done again"))
    error = caught.value
    assert (error.session_id, error.effect.key, error.effect.request, error.in_progress) == (
        "a",
        "pay",
        {"amount": 20},
        False,
    )
    for word in (error.effect.by, "amount", "finish_effect", "repeat_in_doubt"):
        assert word in str(error)


def test_whoever_may_repeat_does_it_again(store: Any) -> None:
    in_doubt(store)
    assert store.once("a", "pay", lambda: "again", repeat_in_doubt=True) == "again"
    (effect,) = store.get_effects("a")
    assert (effect.attempt, effect.result, effect.request) == (2, "again", {"amount": 20})


def test_an_error_leaves_it_in_doubt_unless_it_says_that_nothing_was_done(store: Any) -> None:
    def declined() -> None:
        raise LookupError("declined")

    with pytest.raises(LookupError):
        store.once("a", "pay", declined, failures=LookupError)
    assert store.get_effects("a")[0].error == {"type": "LookupError", "message": "declined"}
    with pytest.raises(LookupError) as caught:
        store.once("a", "pay", declined, failures=ValueError)
    assert "in doubt" in caught.value.__notes__[0]
    with pytest.raises(EffectInDoubt):
        store.once("a", "pay", lambda: 1)


def test_a_person_can_say_what_became_of_it(store: Any) -> None:
    in_doubt(store, "pay")
    in_doubt(store, "mail")
    store.finish_effect("a", "pay", None, note="the bank has it")
    store.fail_effect("a", "mail", "not sent", note="not in the log of the server")
    assert store.once("a", "pay", lambda: 1) is None
    assert store.once("a", "mail", lambda: "sent") == "sent"
    assert [effect.note for effect in store.get_effects("a")] == ["the bank has it", None]


def test_under_a_lease_that_is_held_it_is_in_progress(store: Any, clock: Clock) -> None:
    lease = store.lease("a", seconds=10)
    in_doubt(store, lease=lease)
    with pytest.raises(EffectInDoubt) as caught:
        store.once("a", "pay", lambda: 1, repeat_in_doubt=True)
    assert caught.value.in_progress
    assert caught.value.effect.lease == lease.token
    clock.advance(11)
    with pytest.raises(EffectInDoubt) as caught:
        store.once("a", "pay", lambda: 1)
    assert not caught.value.in_progress
    with store.lease("a") as another:
        assert store.once("a", "pay", lambda: 1, repeat_in_doubt=True, lease=another) == 1


def test_a_lost_lease_begins_nothing(store: Any) -> None:
    lease = store.lease("a")
    lease.release()
    with pytest.raises(LeaseLost):
        store.once("a", "pay", lambda: pytest.fail("done"), lease=lease)
    assert store.get_effects("a") == []


def test_an_end_that_names_a_lost_lease_or_an_old_version_is_told_so_and_ends_nothing(store: Any) -> None:
    in_doubt(store)
    with store.lease("a") as lease:
        pass
    for end in (store.finish_effect, store.fail_effect):
        with pytest.raises(LeaseLost):
            end("a", "pay", "x", lease=lease)
        with pytest.raises(VersionConflict):
            end("a", "pay", "x", expected_version=0)
    assert [effect.status for effect in store.get_effects("a")] == ["started"]
    store.finish_effect("a", "pay", "x")
    with pytest.raises(LeaseLost):
        store.finish_effect("a", "pay", "x", lease=lease)


def test_the_result_is_kept_of_a_worker_that_lost_its_lease_meanwhile(store: Any, clock: Clock) -> None:
    lease = store.lease("a", seconds=10)

    def pay() -> str:
        clock.advance(11)
        return "paid"

    assert store.once("a", "pay", pay, lease=lease) == "paid"
    assert store.get_effects("a")[0].result == "paid"


def test_a_result_that_cannot_be_stored_leaves_it_in_doubt(store: Any) -> None:
    with pytest.raises(InvalidInput, match="result"):
        store.once("a", "pay", lambda: {1, 2})
    with pytest.raises(EffectInDoubt):
        store.once("a", "pay", lambda: 1)


def test_once_takes_a_function(one_store: Any) -> None:
    async def pay() -> None: ...

    for wrong in (7, None, pay):
        with pytest.raises(InvalidInput, match="do"):
            one_store.once("a", "pay", wrong)
    assert one_store.get_effects("a") == []


def test_once_awaits_a_coroutine_function() -> None:
    async def pay() -> str:
        return "paid"

    async def both() -> list[str]:
        async with await everturn.open_async("sqlite://") as store, store.lease("a") as lease:
            return [await store.once("a", "pay", pay, lease=lease) for _ in range(2)]

    assert asyncio.run(both()) == ["paid", "paid"]


def test_of_many_that_begin_it_one_is_told_new(store: Any) -> None:
    told: list[str] = []
    ready = threading.Barrier(6)

    def begin() -> None:
        ready.wait(30)
        told.append(store.begin_effect("a", "pay").status)

    threads = [threading.Thread(target=begin) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(told) == ["new"] + ["started"] * 5


def test_an_effect_is_there_for_another_store(lasting: Place) -> None:
    one = lasting.open()
    in_doubt(one)
    one.close()
    other = lasting.open()
    assert [(effect.key, effect.status) for effect in other.get_effects("a")] == [("pay", "started")]
    with pytest.raises(EffectInDoubt):
        other.once("a", "pay", lambda: 1)


# --- faults ----------------------------------------------------------------------------------------------------------


def lose_answers(store: Any, monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
    """Let the answers to the next requests of a kind be lost on their way: they were carried out."""
    backend = store._operations.backend
    send = getattr(backend, name)
    left = [None] * times

    async def losing(request: Any, deadline: float) -> Any:
        answer = await send(request, deadline)
        if left:
            left.pop()
            raise everturn.MemoryStoreBackendError("the answer was lost", outcome="unknown", transient=True)
        return answer

    monkeypatch.setattr(backend, name, losing)


def test_a_beginning_whose_answer_was_lost_is_told_new_all_the_same(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_answers(store, monkeypatch, "change", 2)
    effect = store.begin_effect("a", "pay", {"amount": 20})
    assert (effect.status, effect.attempt, effect.version) == ("new", 1, 1)
    assert store.begin_effect("a", "pay").status == "started"
    assert store.info("a").version == 1


def test_a_beginning_that_landed_and_cannot_be_looked_at_is_unknown(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(*_: object) -> Any:
        raise everturn.MemoryStoreBackendError("gone", outcome="not_written")

    lose_answers(store, monkeypatch, "change", 1)
    monkeypatch.setattr(store._operations.backend, "effects", gone)
    with pytest.raises(everturn.MemoryStoreBackendError) as caught:
        store.begin_effect("a", "pay")
    assert caught.value.outcome == "unknown"


def test_an_end_whose_answer_was_lost_is_made_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store.begin_effect("a", "pay")
    lose_answers(store, monkeypatch, "change", 1)
    receipt = store.finish_effect("a", "pay", "ok")
    assert (receipt.version, receipt.replayed) == (2, True)


def test_a_lease_whose_answer_was_lost_is_held_all_the_same(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lose_answers(store, monkeypatch, "lease", 1)
    lease = store.lease("a")
    assert lease.token == 1
    say(store, "a", "1", lease=lease)
    lose_answers(store, monkeypatch, "lease", 1)
    lease.release()
    store.lease("a").release()


def test_a_retry_of_a_change_that_landed_is_told_so_though_the_lease_was_lost_since(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = store.lease("a")
    backend = store._operations.backend
    change, release = backend.change, []

    async def losing(request: Any, deadline: float) -> Any:
        answer = await change(request, deadline)
        if not release:
            release.append(await backend.lease(release_of(lease), deadline))
            raise everturn.MemoryStoreBackendError("the answer was lost", outcome="unknown", transient=True)
        return answer

    monkeypatch.setattr(backend, "change", losing)
    receipt = say(store, "a", "1", lease=lease)
    assert (receipt.version, receipt.replayed) == (1, True)
    with pytest.raises(LeaseLost):
        say(store, "a", "2", lease=lease)


def release_of(lease: Any) -> LeaseRequest:
    return LeaseRequest("a", "release", lease.claim.holder)
