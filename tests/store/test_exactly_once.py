"""Keys: a caller's retry finds its first attempt, for every kind of change, for as long as that attempt stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import InvalidInput, KeyReused, Record, Snapshot, Summary, ToolCall, VersionConflict
from tests.integration.children import run
from tests.store.other_process import append_with_key
from tests.store.places import Place
from tests.store.speech import say, say_each, user, words

Change = Callable[..., Any]


def _prepared(store: Any) -> dict[str, Any]:
    """A session in which every kind of change has something to do."""
    say_each(store, "a", "1", "2", "3")
    snapshot = store.save_snapshot("a", "early")
    say_each(store, "a", "4", "5", "6")
    store.trim("a", max_messages=5)  # something to undo
    return {"snapshot": snapshot}


CHANGES: dict[str, Callable[[Any, dict[str, Any]], Change]] = {
    "add_messages": lambda s, _: lambda **o: s.add_messages("a", [user("7"), user("8")], **o),
    "append": lambda s, _: lambda **o: s.append("a", [user("7"), Record("step", {"n": 1})], **o),
    "save_context": lambda s, _: lambda **o: s.save_context("a", "q", "a", **o),
    "add_tool_call": lambda s, _: lambda **o: s.add_tool_call("a", ToolCall("f", {"x": 1}), **o),
    "add_summary": lambda s, _: lambda **o: s.add_summary("a", Summary("s", [1.0, 2.0], (1, 2)), **o),
    "replace": lambda s, _: lambda **o: s.replace("a", [user("7")], after=5, **o),
    "replace-by-nothing": lambda s, _: lambda **o: s.replace("a", [], after=5, **o),
    "clear": lambda s, _: lambda **o: s.clear("a", **o),
    "trim": lambda s, _: lambda **o: s.trim("a", max_messages=2, **o),
    "undo": lambda s, _: lambda **o: s.undo("a", **o),
    "rollback": lambda s, p: lambda **o: s.rollback_to_snapshot("a", p["snapshot"], **o),
    "snapshot": lambda s, _: lambda **o: s.save_snapshot("a", "late", **o),
    "delete_snapshot": lambda s, p: lambda **o: s.delete_snapshot("a", p["snapshot"], **o),
    "set_ttl": lambda s, _: lambda **o: s.set_ttl("a", 1000, **o),
    "fork": lambda s, _: lambda **o: s.fork("a", "b", **o),
}
OTHERS: dict[str, Callable[[Any, dict[str, Any]], Change]] = {
    "add_messages": lambda s, _: lambda **o: s.add_messages("a", [user("7"), user("other")], **o),
    "append": lambda s, _: lambda **o: s.append("a", [user("7"), Record("step", {"n": 2})], **o),
    "save_context": lambda s, _: lambda **o: s.save_context("a", "q", "other", **o),
    "add_tool_call": lambda s, _: lambda **o: s.add_tool_call("a", ToolCall("f", {"x": 2}), **o),
    "add_summary": lambda s, _: lambda **o: s.add_summary("a", Summary("s", [1.0, 3.0], (1, 2)), **o),
    "replace": lambda s, _: lambda **o: s.replace("a", [user("7")], after=4, **o),
    "replace-by-nothing": lambda s, _: lambda **o: s.replace("a", [], after=4, **o),
    "clear": lambda s, _: lambda **o: s.undo("a", **o),
    "trim": lambda s, _: lambda **o: s.trim("a", max_messages=3, **o),
    "undo": lambda s, _: lambda **o: s.clear("a", **o),
    "rollback": lambda s, p: lambda **o: s.delete_snapshot("a", p["snapshot"], **o),
    "snapshot": lambda s, _: lambda **o: s.save_snapshot("a", "other", **o),
    "delete_snapshot": lambda s, p: lambda **o: s.rollback_to_snapshot("a", p["snapshot"], **o),
    "set_ttl": lambda s, _: lambda **o: s.set_ttl("a", 2000, **o),
    "fork": lambda s, _: lambda **o: s.fork("a", "b", at=1, **o),
}
every_change = pytest.mark.parametrize("kind", list(CHANGES))


def _same(first: Any, again: Any) -> bool:
    """Whether `again` is the replay of `first`. (A Snapshot has no `replayed`: it is the very same one.)"""
    if isinstance(first, Snapshot):
        return bool(again == first)
    return again.replayed and not first.replayed and _place(first) == _place(again)


def _place(receipt: Any) -> tuple[Any, ...]:
    return receipt.session_id, receipt.life, receipt.version, receipt.seqs


@every_change
def test_the_same_key_replays_with_the_first_receipt(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    first = change(key="k")
    after_first = store.state("a"), store.state("b")
    assert _same(first, change(key="k"))
    assert (store.state("a"), store.state("b")) == after_first


@every_change
def test_a_replay_finds_its_receipt_behind_later_changes(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    first = change(key="k")
    say_each(store, "a", "later", "later still")
    store.save_snapshot("a")
    assert _same(first, change(key="k"))


@every_change
def test_a_key_reused_with_other_content_is_refused(store: Any, kind: str) -> None:
    prepared = _prepared(store)
    first = CHANGES[kind](store, prepared)(key="k")
    before = store.state("a")
    with pytest.raises(KeyReused, match="the key was used before") as caught:
        OTHERS[kind](store, prepared)(key="k")
    receipt = caught.value.receipt
    assert receipt.replayed
    assert caught.value.session_id == receipt.session_id
    if isinstance(first, Snapshot):
        assert (receipt.life, receipt.version, receipt.seqs) == (first.life, first.version, ())
    else:
        assert _place(receipt) == _place(first)
    assert store.state("a") == before


def test_a_key_reused_after_later_changes_tells_the_first_receipt(store: Any) -> None:
    first = say(store, "a", "one", "two", key="k")
    say_each(store, "a", "later", "later still")
    store.trim("a", max_messages=1)
    with pytest.raises(KeyReused) as caught:
        say(store, "a", "another answer", key="k")
    assert _place(caught.value.receipt) == _place(first)


@every_change
def test_the_key_is_looked_up_before_the_version_is_compared(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    version = store.info("a").version
    first = change(key="k", expected_version=version)
    say(store, "a", "later")
    assert _same(first, change(key="k", expected_version=version))


@every_change
def test_a_stale_version_keeps_a_new_key_out(store: Any, kind: str) -> None:
    change = CHANGES[kind](store, _prepared(store))
    version = store.info("a").version
    before = store.state("a")
    with pytest.raises(VersionConflict) as caught:
        change(key="k", expected_version=version - 1)
    assert (caught.value.expected, caught.value.actual) == (version - 1, version)
    assert store.state("a") == before
    assert not getattr(change(key="k"), "replayed", False)


def test_without_a_key_the_same_turn_is_written_twice(store: Any) -> None:
    say_each(store, "a", "again", "again")
    assert words(store, "a") == ["again", "again"]


def test_keys_belong_to_their_session(store: Any) -> None:
    say(store, "a", "one", key="k")
    assert not say(store, "b", "two", key="k").replayed


def test_a_key_used_for_one_kind_of_change_is_refused_for_another(store: Any) -> None:
    say(store, "a", "one", key="k")
    with pytest.raises(KeyReused):
        store.clear("a", key="k")


def test_a_message_from_the_store_is_the_same_content_as_the_one_that_went_in(store: Any) -> None:
    say(store, "a", "one", key="k")
    assert store.add_messages("a", store.get_history("a"), key="k").replayed


@pytest.mark.where(shared=True)
def test_a_turn_is_found_by_its_key_from_another_process(lasting: Place) -> None:
    first = say(lasting.open(), "a", "one", key="k")
    assert run(append_with_key, lasting.url).split() == [str(first.version), str(first.seqs[0]), "True"]


# --- keys and the path ------------------------------------------------------------------------------------------


def test_after_a_rollback_that_dropped_the_turn_the_key_writes_again(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    assert not say(store, "a", "2", key="k").replayed
    assert words(store, "a") == ["1", "2"]


def test_after_a_rollback_that_dropped_the_turn_the_key_may_write_something_else(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    assert not say(store, "a", "other", key="k").replayed
    assert words(store, "a") == ["1", "other"]


def test_a_rollback_that_kept_the_turn_keeps_its_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2")
    store.rollback_to_snapshot("a", snapshot)
    assert _same(first, say(store, "a", "1", key="k"))


def test_rolled_forward_again_the_key_replays(store: Any) -> None:
    say(store, "a", "1")
    early = store.save_snapshot("a")
    first = say(store, "a", "2", key="k")
    late = store.save_snapshot("a")
    store.rollback_to_snapshot("a", early)
    store.rollback_to_snapshot("a", late)
    assert _same(first, say(store, "a", "2", key="k"))


def test_each_branch_remembers_its_own_use_of_a_key(store: Any) -> None:
    say(store, "a", "1")
    start = store.save_snapshot("a")
    on_left = say(store, "a", "left", key="k")
    left = store.save_snapshot("a")
    store.rollback_to_snapshot("a", start)
    on_right = say(store, "a", "right", key="k")
    right = store.save_snapshot("a")
    store.rollback_to_snapshot("a", left)
    assert _same(on_left, say(store, "a", "left", key="k"))
    store.rollback_to_snapshot("a", right)
    assert _same(on_right, say(store, "a", "right", key="k"))
    with pytest.raises(KeyReused):
        say(store, "a", "left", key="k")


def test_after_undoing_the_rollback_the_key_replays(store: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    first = say(store, "a", "2", key="k")
    store.rollback_to_snapshot("a", snapshot)
    store.undo("a")
    assert _same(first, say(store, "a", "2", key="k"))


def test_a_turn_that_was_replaced_may_be_written_again(store: Any) -> None:
    say(store, "a", "1")
    say(store, "a", "2", key="k")
    store.replace("a", [], after=1)
    assert not say(store, "a", "2", key="k").replayed


def test_trim_does_not_hide_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    say_each(store, "a", "2", "3")
    store.trim("a", max_messages=1)
    assert _same(first, say(store, "a", "1", key="k"))


def test_clear_does_not_hide_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    store.clear("a")
    assert _same(first, say(store, "a", "1", key="k"))
    assert words(store, "a") == []


def test_compact_does_not_forget_a_key(store: Any) -> None:
    first = say(store, "a", "1", key="k")
    say_each(store, "a", "2", "3")
    store.trim("a", max_messages=1)
    store.compact()
    assert _same(first, say(store, "a", "1", key="k"))


def test_a_new_life_knows_no_keys_of_the_last(store: Any) -> None:
    say(store, "a", "1", key="k")
    store.erase("a")
    assert not say(store, "a", "other", key="k").replayed


@pytest.mark.where(blocking=True)
def test_a_key_is_remembered_for_a_thousand_and_twenty_four_changes(store: Any) -> None:
    first = say(store, "a", "first", key="k")
    for _ in range(1023):
        say(store, "a", "x")
    store.compact()
    assert _same(first, say(store, "a", "first", key="k"))


@pytest.mark.where(blocking=True)
def test_a_key_is_remembered_as_long_as_its_turn_can_be_reached(store: Any) -> None:
    first = say(store, "a", "first", "and more", key="k")
    later = say(store, "a", "later", key="l")
    snapshot = store.save_snapshot("a")
    for _ in range(1100):
        say(store, "a", "x")
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    with pytest.raises(KeyReused) as caught:
        say(store, "a", "other", key="k")
    assert _place(caught.value.receipt) == _place(first)
    store.compact("a")
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    store.replace("a", [], after=first.seqs[-1])
    assert not say(store, "a", "not later", key="l").replayed, "its turn is not on the path"
    store.compact("a")
    store.rollback_to_snapshot("a", snapshot)
    assert _same(later, say(store, "a", "later", key="l"))
    assert _same(first, say(store, "a", "first", "and more", key="k"))
    assert store.verify("a").ok


@pytest.mark.parametrize("key", ["", "x" * 513, "\0", "\ud800", 7, b"k"])
def test_a_key_that_is_no_key_is_refused(one_store: Any, key: object) -> None:
    with pytest.raises(InvalidInput, match=r"^key: "):
        say(one_store, "a", "one", key=key)
    assert one_store.get_history("a") == []


def test_a_key_of_a_change_without_a_turn_is_remembered_however_many_follow(store: Any) -> None:
    """A clear or a rollback that is made once more, long after, would take away all that came since."""
    say(store, "a", "first")
    snapshot = store.save_snapshot("a")
    say(store, "a", "second")
    back = store.rollback_to_snapshot("a", snapshot, key="back")
    cleared = store.clear("a", key="clear")
    for number in range(1100):
        say(store, "a", str(number))
    store.compact("a")
    assert _same(back, store.rollback_to_snapshot("a", snapshot, key="back"))
    assert _same(cleared, store.clear("a", key="clear"))
    assert len(store.get_history("a")) == 1100
    assert store.verify("a").ok
