"""Facts for a plan: answers the questions of core/plan_change.py about a session, from what was read beforehand.

`plan_change` asks while it plans, and cannot wait for a network. So `gather` reads whatever the action may ask for. A
plan is written only if the head is still the one it was gathered for.
"""

from __future__ import annotations

import msgspec

from everturn.backend import (
    Append,
    BeginEffect,
    Clear,
    DeleteSnapshot,
    EndEffect,
    Rollback,
    State,
    StoredEffect,
    UndoStep,
    contains,
    path,
)
from everturn.backends.dynamodb.log_reader import LogReader, effect_of
from everturn.backends.dynamodb.stored_form import Head, Item
from everturn.core.paths import Jump, clip
from everturn.model import MESSAGE


class PlanFacts(msgspec.Struct):
    """Answers a plan's questions (core/plan_change.py Reader)."""

    head: Head
    jumps: list[Jump]
    messages: int = 0
    has_summaries: bool = False
    drops_summaries: bool = False
    snapshot_state: State | None = None
    version_state: State | None = None
    stored_effect: StoredEffect | None = None

    def is_on_path(self, seq: int) -> bool:
        return contains(path(self.head.state.head, self.jumps), seq)

    def messages_after(self, seq: int) -> int:  # noqa: ARG002 - counted for this seq
        return self.messages

    def has_summary_after(self, seq: int) -> bool:  # noqa: ARG002 - looked for after this seq
        return self.drops_summaries

    def shows_summaries(self) -> bool:
        return self.has_summaries

    def snapshot(self, snapshot_id: str) -> State | None:  # noqa: ARG002 - read for this one
        return self.snapshot_state

    def state_after(self, version: int) -> State | None:  # noqa: ARG002 - read for this one
        return self.version_state

    def last_undo_step(self) -> UndoStep | None:
        return self.head.undo[-1] if self.head.undo else None

    def facts(self) -> dict[str, str]:
        return self.head.facts

    def effect(self, key: str) -> StoredEffect | None:  # noqa: ARG002 - read for this one
        return self.stored_effect


async def gather(log: LogReader, action: object, effect_item: Item | None) -> PlanFacts:
    """Read what a plan for this action may ask for. `effect_item` is the item of the effect that it is about."""
    head = log.head
    facts = PlanFacts(head, await log.jumps())
    if isinstance(action, Append) and action.after is not None:
        if head.state.floor < action.after < head.state.head and facts.is_on_path(action.after):
            facts.messages = await _count_messages(log, facts, action.after)
        if action.carried is None and head.state.cleared < min(action.after, head.state.floor):
            facts.drops_summaries = bool(await _summaries_on_path(log, head.state, action.after + 1, head.state.head))
    elif isinstance(action, Clear):
        if head.state.floor == head.state.head and not head.state.kept:
            facts.has_summaries = bool(await hidden_summaries(log, head.state))
    elif isinstance(action, DeleteSnapshot | Rollback) and action.snapshot_id is not None:
        facts.snapshot_state = await log.snapshot(action.snapshot_id)
    elif isinstance(action, Rollback):
        facts.version_state = await log.state_after(action.version or 0)
    elif isinstance(action, BeginEffect | EndEffect) and effect_item:
        facts.stored_effect = effect_of(effect_item)
    return facts


async def _count_messages(log: LogReader, facts: PlanFacts, after: int) -> int:
    """Count the messages on the path behind an entry."""
    state = facts.head.state
    count = 0
    for first, last in clip(path(state.head, facts.jumps), after + 1, state.head):
        async for page in log.blocks(first, last, bodies=False):
            for block in page:
                low, high = max(first, block.facts.first), min(last, block.facts.last)
                indexes = range(low - block.facts.first, high - block.facts.first + 1)
                count += sum(block.facts.kind(index) == MESSAGE for index in indexes)
    return count


async def hidden_summaries(log: LogReader, state: State) -> list[int]:
    """List the seqs of the summaries that a state shows in the part that a trim or fold hides."""
    return await _summaries_on_path(log, state, state.cleared + 1, state.floor)


async def _summaries_on_path(log: LogReader, state: State, first: int, last: int) -> list[int]:
    found = await log.summaries(first, last)
    if not found:
        return []
    ranges = path(state.head, await log.jumps())
    return [seq for seq in found if contains(ranges, seq)]
