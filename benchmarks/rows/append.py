"""Append a turn of two 200-byte messages, one writer, synchronous=FULL, beside the bare driver."""

import itertools
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from benchmarks.plan import Bar, Plan, Row, duration
from benchmarks.rounds import interleave
from benchmarks.stats import ratio
from everturn.bench.contenders import BARE, BARE_SAME_ROWS, EVERTURN, EVERTURN_ASYNC, TWIN
from everturn.bench.contenders.process import ContenderProcess

TURNS = 20
WARM_UP = 1_200  # turns: enough to write a WAL to its full length, even at one page a turn


def measure(plan: Plan) -> Iterator[Row]:
    """Baselines, both in `contenders/bare.py`: the four rows everturn writes, and the two messages alone.

    The bar is for the same rows. The second baseline is beside it because a person with a bare driver would
    not write the other two rows: it shows what the promises cost. The last row is the method measuring
    itself.

    A round is 20 turns on a session that is new in that round, its figure the median of the 20. A WAL
    checkpoint (one in some 300 appends) is therefore in no figure; it costs everyone about the same. Each
    WAL has reached its full length before the first round, because syncing a file that still grows costs
    more.
    """
    with ExitStack() as stack:
        hosted = {
            entrant: stack.enter_context(ContenderProcess(entrant, plan.path(f"append/{entrant.title}")))
            for entrant in (EVERTURN, EVERTURN_ASYNC, BARE_SAME_ROWS, TWIN, BARE)
        }
        for contender in hosted.values():
            contender.append("warm-up", turns=WARM_UP)
        figures = interleave(
            {entrant: append_round(contender, turns=TURNS) for entrant, contender in hosted.items()},
            rounds=plan.pick(80, 25),
        )
    for name, ours, baseline, bar in (
        ("append a turn, one writer", EVERTURN, BARE_SAME_ROWS, Bar("<=", 1.25)),
        ("append a turn, over its two messages alone", EVERTURN, BARE, Bar("<=", 1.25, wanted=True)),
        ("append a turn, one async task", EVERTURN_ASYNC, BARE_SAME_ROWS, None),
        ("noise: the bare driver over its twin", TWIN, BARE_SAME_ROWS, None),
    ):
        yield Row(
            name,
            duration(statistics.median(figures[ours])),
            f"{duration(statistics.median(figures[baseline]))} {baseline.title}",
            ratio(figures[ours], figures[baseline]),
            bar=bar,
        )


def append_round(contender: ContenderProcess, *, turns: int) -> Callable[[], float]:
    """A round of appends to a session that is new in that round: the median of the seconds each took."""
    numbers = itertools.count()
    return lambda: statistics.median(contender.append(f"short-{next(numbers)}", turns=turns))
