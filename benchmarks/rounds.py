"""Rounds: the one way in which every timed comparison is run. The caller gives the work of a round.

A shared two-core machine changes speed by tens of percent from second to second. Contenders therefore run
in many short rounds, each round visiting all of them; a ratio is taken within a round, and the median over
rounds is reported. The order rotates, so that nobody always runs first or right after the same neighbour.
"""

import gc
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Figure = TypeVar("Figure")


def interleave(contenders: Mapping[Name, Callable[[], Figure]], *, rounds: int) -> dict[Name, list[Figure]]:
    """Run every contender once per round; return each one's figure of each round, in round order.

    One warm-up round comes first and is dropped. The garbage collector is emptied before each visit and
    left on during it, as it is in production.
    """
    names = list(contenders)
    figures: dict[Name, list[Figure]] = {name: [] for name in names}
    for number in range(-1, rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            gc.collect()
            figure = contenders[name]()
            if number >= 0:
                figures[name].append(figure)
    return figures


def progress(text: str) -> None:
    """Tell a waiting person what runs now. On stderr: stdout carries the table only."""
    print(f"  {text}", file=sys.stderr, flush=True)
