"""What the states of a session show of its log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from everturn.backends.redis.looks import Seen
from everturn.rules import Jump, Range, State, clip, merge, path


class Reach(msgspec.Struct, frozen=True, gc=False):
    """What some states show: `whole` ranges of the log, and `summaries` in others."""

    whole: list[Range]
    summaries: list[Range]


def reach(states: Iterable[State], jumps: Sequence[Jump]) -> Reach:
    """All that any of these states shows."""
    whole: list[Range] = []
    summaries: list[Range] = []
    for state in states:
        ranges = path(state.head, jumps)
        whole += [(seq, seq) for seq in state.kept] + clip(ranges, state.floor + 1, state.head)
        summaries += clip(ranges, state.cleared + 1, state.floor)
    return Reach(merge(whole), merge(summaries))


def roots(seen: Seen) -> Iterator[tuple[State, str]]:
    """Every state a session can return to, with what to call it."""
    yield seen.state, "the head"
    for stored in seen.snapshots:
        yield stored.state, f"snapshot {stored.snapshot.id}"
    for step in seen.session.undo if seen.session else ():
        yield step.before, f"the undo step of version {step.version}"
