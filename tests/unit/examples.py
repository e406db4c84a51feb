"""Drawn conversations, and how many examples a test of the pure functions runs."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st

from everturn import ChatMessage, Record, Summary, ToolCall
from everturn.core.trimming import Header, TrimCut, TrimPlanner
from tests.model.model_store import Stored
from tests.tiers import examples

settings.register_profile("rules", max_examples=examples(150), derandomize=True, deadline=None, database=None)
few = settings(settings.get_profile("rules"))
many = settings(settings.get_profile("rules"), max_examples=examples(300))


IDS = ("c1", "c2", "c3")


@st.composite
def conversations(draw: st.DrawFn) -> list[Stored]:
    """Turns of all kinds, with ids used again, results without calls and calls without results; some seqs are gone."""
    stored: list[Stored] = []
    seq = 0
    for _ in range(draw(st.integers(0, 7))):
        turn = seq + 1
        for _ in range(draw(st.integers(1, 4))):
            seq += 1
            stored.append(Stored(seq, turn, draw(entries_of_turns)))
    hidden = draw(st.sets(st.integers(1, max(seq, 1)), max_size=3))
    return [item for item in stored if item.seq not in hidden]


entries_of_turns = st.one_of(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant", "system", "developer"]), st.text("x", max_size=4)),
    st.sampled_from(IDS).map(lambda name: ChatMessage("assistant", None, tool_calls=[{"id": name}])),
    st.sampled_from(IDS).map(lambda name: ChatMessage("assistant", [{"type": "tool_use", "id": name}])),
    st.sampled_from(IDS).map(lambda name: ChatMessage("tool", "r", tool_call_id=name)),
    st.sampled_from(IDS).map(lambda name: ChatMessage("user", [{"type": "tool_result", "tool_use_id": name}])),
    st.sampled_from([ToolCall("f", {}), Record("note", 1), Summary("s", (1.0,), (1, 1))]),
)


def plan_trim(
    headers: Sequence[Header], *, floor: int, max_messages: int | None, max_tokens: int | None, keep_system: bool
) -> TrimCut | None:
    """Plan a trim from all headers, oldest first."""
    planner = TrimPlanner(floor=floor, max_messages=max_messages, max_tokens=max_tokens, keep_system=keep_system)
    for header in reversed(headers):
        planner.add(header)
    return planner.cut()
