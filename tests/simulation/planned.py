"""Changes that are planned by what was read: trims and folds. Their plans, and how the model repeats them."""

from __future__ import annotations

from collections.abc import Iterable

from everturn import MemoryStoreError, Summary
from everturn.errors import CorruptEntry
from tests.model.model_store import ModelStore, Refused, State, trimmed
from tests.simulation.records import Seen, named
from tests.simulation.schedules import Op


def plan(op: Op, seen: Seen) -> set[int]:
    """The seqs that a trim or fold hides, if it is planned on this state."""
    assert seen.state is not None
    return trimmed(seen.state.visible, op.limit, None, None, keep_system=True)


def repeat(model: ModelStore, op: Op, name: str, left: set[int], seen: Iterable[Seen]) -> str:
    """Do in the model what a trim or fold did: `left` is still in view. Raises Refused.

    Returns how it is wrong, "" if it is not: it must hide what a plan of one of the states of its time hides.
    """
    session = model.live(name)
    if session is None:
        raise Refused(CorruptEntry)
    hidden = {item.seq for item in session.state.messages} - left
    plans = [plan(op, one) for one in seen if one.state is not None]
    if op.kind == "trim":
        model.trim(name, planned=hidden)
    elif hidden:
        covers = (min(hidden | _told_before(session.state)), max(hidden))
        model.fold(name, Summary(f"summary {op.id}", None, covers, extra={"fold": True}), hidden)
    else:
        raise Refused(MemoryStoreError)
    return "" if hidden in plans else f"{named(op)} hides {sorted(hidden)}; plans of its time hide {plans}"


def _told_before(state: State) -> set[int]:
    """The first seq that the summary before a fold tells of, if there is one: the new summary tells of it, too.

    That summary is the one that tells of the latest turns, of those of which no newer one tells all.
    """
    summaries = [item.entry.covers for item in state.visible if isinstance(item.entry, Summary)]
    standing = [
        (first, last)
        for age, (first, last) in enumerate(summaries)
        if not any(newer[0] <= first and last <= newer[1] for newer in summaries[age + 1 :])
    ]
    return {max(standing)[0]} if standing else set()
