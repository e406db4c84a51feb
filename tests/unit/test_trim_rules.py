"""Trims against a plain statement of promise 14, and of a trim in the model."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import ChatMessage, Summary
from everturn.core import trimming
from everturn.core.trimming import Header
from tests.model.model_store import Stored, trimmed
from tests.tiers import examples
from tests.unit.examples import conversations, few, many, plan_trim

limits = st.none() | st.integers(0, 12)


def tokens(message: ChatMessage) -> int:
    return len(message.text) + 1


def headers_of(visible: list[Stored], count: Any) -> list[Header]:
    messages = [(msgspec.structs.replace(item.entry, seq=item.seq), item.turn) for item in visible]
    return [
        trimming.header(entry, turn, count(entry) if count else 0)
        for entry, turn in messages
        if isinstance(entry, ChatMessage)
    ]


@settings(many, max_examples=examples(800))
@given(
    visible=conversations(),
    max_messages=limits,
    max_tokens=limits,
    keep_system=st.booleans(),
    floor=st.integers(0, 12),
)
def test_a_trim_keeps_the_most_whole_turns_that_fit_and_no_result_without_its_call(
    visible: list[Stored], max_messages: int | None, max_tokens: int | None, keep_system: bool, floor: int
) -> None:
    # Below the last cut only what it kept is visible: summaries and system messages.
    visible = [item for item in visible if item.seq > floor or stays_below(item.entry)]
    headers = headers_of(visible, tokens)
    cut = plan_trim(headers, floor=floor, max_messages=max_messages, max_tokens=max_tokens, keep_system=keep_system)
    hidden = trimmed(visible, max_messages, max_tokens, tokens, keep_system=keep_system)
    if cut is None:
        assert hidden == set()
        return
    messages = {item.seq for item in visible if isinstance(item.entry, ChatMessage)}
    by_cut = {
        item.seq
        for item in visible
        if item.seq <= cut.floor and item.seq not in cut.kept and not isinstance(item.entry, Summary)
    }
    assert by_cut == hidden
    assert cut.hidden == len(hidden & messages)
    assert cut.floor >= floor
    assert set(cut.kept) == {seq for seq in messages - hidden if seq <= cut.floor}
    assert list(cut.kept) == sorted(cut.kept)


def stays_below(entry: Any) -> bool:
    return isinstance(entry, Summary) or (isinstance(entry, ChatMessage) and entry.role in ("system", "developer"))


@few
@given(visible=conversations())
def test_a_trim_that_everything_fits_changes_nothing(visible: list[Stored]) -> None:
    headers = headers_of(visible, None)
    assert plan_trim(headers, floor=0, max_messages=100, max_tokens=None, keep_system=False) is None


def test_the_last_turn_stays_however_little_room_there_is() -> None:
    headers = [Header(1, 1), Header(2, 2), Header(3, 2)]
    cut = plan_trim(headers, floor=0, max_messages=0, max_tokens=None, keep_system=True)
    assert cut == trimming.TrimCut(1, (), 1)


def test_an_id_used_again_belongs_to_the_nearest_call_before() -> None:
    call, result = frozenset({"call_0"}), frozenset({"call_0"})
    headers = [
        Header(1, 1, calls=call),
        Header(2, 2, results=result),
        Header(3, 2, calls=call),
        Header(4, 3, results=result),
    ]
    assert plan_trim(headers, floor=0, max_messages=3, max_tokens=None, keep_system=True) is None
    headers[1] = Header(2, 2)
    assert plan_trim(headers, floor=0, max_messages=3, max_tokens=None, keep_system=True) == trimming.TrimCut(1, (), 1)
