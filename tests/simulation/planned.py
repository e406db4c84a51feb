"""Changes that are planned by what was read: trims and folds. Their plans, and how the model repeats them."""

from __future__ import annotations

from collections.abc import Iterable

from everturn import MemoryStoreError, Summary
from everturn.errors import CorruptEntry
from tests.model.model_store import ModelStore, Refused, trimmed
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
        # It stands for the summary before it, too.
        earlier = [item.entry.covers for item in session.state.visible if isinstance(item.entry, Summary)]
        covers = (min([min(hidden), *(first for first, _ in earlier)]), max(hidden))
        model.fold(name, Summary(f"summary {op.id}", None, covers, extra={"fold": True}), hidden)
    else:
        raise Refused(MemoryStoreError)
    return "" if hidden in plans else f"{named(op)} hides {sorted(hidden)}; plans of its time hide {plans}"
