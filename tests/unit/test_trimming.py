"""The planner of trims, which is told of messages newest first and stops early, against the plain plan over all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn import ChatMessage, InvalidInput
from everturn.core.trimming import Header, TrimCut, TrimPlanner, counted
from tests.tiers import examples
from tests.unit.examples import plan_trim

EXAMPLES = 800 if os.environ.get("EVERTURN_DEEP") == "1" else examples(250)
settings.register_profile("trimming", max_examples=EXAMPLES, derandomize=True, deadline=None, database=None)
many = settings(settings.get_profile("trimming"))
IDS = ("c1", "c2", "c3")


# --- the plan as it was before it was told newest first --------------------------------------------------------------


def oracle(
    messages: Sequence[Header], *, floor: int, max_messages: int | None, max_tokens: int | None, keep_system: bool
) -> TrimCut | None:
    """Look at everything, several times."""
    stay = {item.seq for item in messages if item.system and keep_system}
    count = len(stay)
    tokens = sum(item.tokens for item in messages if item.seq in stay)
    further_back = Counter(call for item in messages for call in item.calls)
    unmatched: set[str] = set()
    start: int | None = None
    for turn in turns_backwards(messages):
        for item in turn:
            if item.seq not in stay:
                count += 1
                tokens += item.tokens
        over = (max_messages is not None and count > max_messages) or (max_tokens is not None and tokens > max_tokens)
        if over and start is not None:
            break
        for item in turn:
            further_back.subtract(item.calls)
            unmatched -= item.calls
            unmatched |= item.results
        if not any(further_back[call] for call in unmatched):
            start = turn[-1].turn
    if start is None:
        return None
    stay.update(item.seq for item in messages if item.seq >= start)
    hidden = len(messages) - len(stay)
    if not hidden:
        return None
    new_floor = max(start - 1, floor)
    return TrimCut(
        new_floor, tuple(item.seq for item in messages if item.seq <= new_floor and item.seq in stay), hidden
    )


def turns_backwards(messages: Sequence[Header]) -> Iterable[list[Header]]:
    for _, turn in groupby(reversed(messages), key=lambda item: item.turn):
        yield list(turn)


# --- conversations ---------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Header], int]:
    """Visible headers and the floor. Ids are used again; results lack calls, calls results;
    of turns some entries are gone (a replace cuts inside of one), and below the floor any may have been kept."""
    headers: list[Header] = []
    seq = 0
    for _ in range(draw(st.integers(0, 9))):
        turn = seq + 1
        for _ in range(draw(st.integers(1, 4))):
            seq += 1
            headers.append(
                Header(
                    seq,
                    turn,
                    draw(st.sampled_from([False, False, False, True])),
                    draw(some_ids),
                    draw(some_ids),
                    draw(st.integers(0, 4)),
                )
            )
    gone = draw(st.sets(st.integers(1, max(seq, 1)), max_size=6))
    floor = draw(st.integers(0, seq + 1))
    return [item for item in headers if item.seq not in gone], floor


some_ids = st.sampled_from([(), (), (), (), ("c1",), ("c2",), ("c3",), ("c1", "c2")]).map(frozenset)
limits = st.none() | st.integers(0, 20)
bounds = st.fixed_dictionaries({"max_messages": limits, "max_tokens": limits, "keep_system": st.booleans()})


@many
@given(history=histories(), given_bounds=bounds)
def test_the_plan_is_that_of_looking_at_everything(
    history: tuple[list[Header], int], given_bounds: dict[str, object]
) -> None:
    headers, floor = history
    assert plan_trim(headers, floor=floor, **given_bounds) == oracle(headers, floor=floor, **given_bounds)  # type: ignore[arg-type]  # drawn


@many
@given(history=histories(), given_bounds=bounds)
def test_the_plan_is_the_same_if_only_what_is_asked_for_is_told(
    history: tuple[list[Header], int], given_bounds: dict[str, object]
) -> None:
    """Tokens, turns, ids and older messages are left out, or wrong, as soon as the planner says that they may be."""
    headers, floor = history
    planner = TrimPlanner(floor=floor, **given_bounds)  # type: ignore[arg-type]  # drawn
    for item in reversed(headers):
        if not planner.wants_more:
            break
        is_kept = item.system and given_bounds["keep_system"]
        asked = planner.wants_calls
        planner.add(
            Header(
                item.seq,
                item.turn if planner.wants_turns else 77,
                item.system,
                item.calls if asked else frozenset(),
                item.results if asked else frozenset(),
                item.tokens if is_kept or planner.counts_tokens else 0,
            )
        )
    assert planner.cut(len(headers)) == oracle(headers, floor=floor, **given_bounds)  # type: ignore[arg-type]  # drawn


def test_the_plan_is_fixed_as_soon_as_enough_is_known() -> None:
    planner = TrimPlanner(floor=0, max_messages=10, max_tokens=None, keep_system=False)
    told = 0
    for seq in range(1000, 0, -1):
        if not planner.wants_more:
            break
        planner.add(Header(seq, seq))
        told += 1
    assert told == 11
    assert planner.cut(1000) == TrimCut(990, (), 990)


def test_with_system_messages_to_keep_only_these_matter_further_back() -> None:
    planner = TrimPlanner(floor=0, max_messages=10, max_tokens=None, keep_system=True)
    for seq in range(1000, 989, -1):
        planner.add(Header(seq, seq))
    assert (planner.wants_turns, planner.wants_calls, planner.wants_more) == (False, False, True)
    planner.add(Header(1, 1, system=True))
    assert planner.cut(1000) == TrimCut(991, (1,), 990)


def test_the_planner_keeps_nothing_of_what_cannot_stay() -> None:
    planner = TrimPlanner(floor=0, max_messages=10, max_tokens=None, keep_system=True)
    for seq in range(10_000, 0, -1):
        planner.add(Header(seq, seq))
    assert len(planner._starts) <= 11


def test_a_negative_count_of_tokens_is_refused() -> None:
    assert counted(lambda _: 3, ChatMessage("user", "a")) == 3
    with pytest.raises(InvalidInput, match="count_tokens: returned -1"):
        counted(lambda _: -1, ChatMessage("user", "a"))
