"""States that sessions of a world had, each from a moment on. It knows no promises: the judge does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tests.model.model_store import Session
from tests.simulation.records import Seen

FOREVER = float("inf")


class States:
    """The states of every session, in order. `clock` tells the store's time at a true moment, `steps` its steps."""

    def __init__(self, clock: Callable[[float], float], steps: Callable[[float, float], list[float]]) -> None:
        self._clock = clock
        self._steps = steps
        self._of: dict[str, list[Seen]] = {}

    @property
    def names(self) -> set[str]:
        return set(self._of)

    def of(self, name: str) -> Sequence[Seen]:
        return self._of.get(name, ())

    def note(self, name: str, now: float, session: Session | None, writer: str) -> None:
        """Take note of the state that a session has from now on; None: there is none."""
        seen = Seen(now, None)
        if session is not None:
            seen = Seen(now, session.state, session.expires_at, session.life, writer, dict(session.effects))
        self._of.setdefault(name, [Seen(0.0, None)]).append(seen)

    def between(self, name: str, begin: float, end: float, *, early: float, late: float) -> Iterator[Seen]:
        """The states from one moment to another; without what had expired in all of that time.

        A session may expire `early` seconds before its time, or `late` seconds behind it.
        """
        states = self._of.get(name, [Seen(0.0, None)])
        for place, seen in enumerate(states):
            until = states[place + 1].since if place + 1 < len(states) else FOREVER
            if until < begin or seen.since > end:
                continue
            if seen.expires is None:
                yield seen
                continue
            first, last = max(begin, seen.since), min(end, until)
            moments = [first, last, *self._steps(first, last)]
            left = [seen.expires - self._clock(moment) for moment in moments]
            if any(seconds > -late for seconds in left):
                yield seen
            if any(seconds <= early for seconds in left):
                yield Seen(seen.since, None)
