"""The states a session can return to. What they show of its log is in rules.reach."""

from __future__ import annotations

from collections.abc import Iterator

from everturn.backends.redis.looks import Seen
from everturn.rules import State


def roots(seen: Seen) -> Iterator[tuple[State, str]]:
    """Every state a session can return to, with what to call it."""
    yield seen.state, "the head"
    for stored in seen.snapshots:
        yield stored.state, f"snapshot {stored.snapshot.id}"
    for step in seen.session.undo if seen.session else ():
        yield step.before, f"the undo step of version {step.version}"
