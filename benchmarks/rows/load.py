"""Load a session of 1,000 messages as objects, beside bare rows and `json.loads`."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from benchmarks.plan import Bar, Plan, Row, duration
from benchmarks.rounds import interleave
from benchmarks.stats import ratio
from everturn.bench.contenders import BARE_SAME_ROWS, EVERTURN, EVERTURN_ASYNC
from everturn.bench.contenders.process import ContenderProcess

MESSAGES = 1_000
LOADS = 5


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: the same messages in as many rows, each line of which goes through `json.loads`.

    It makes dicts and checks nothing; everturn makes objects and verifies a checksum on the way.
    """
    with ExitStack() as stack:
        hosted = {
            entrant: stack.enter_context(ContenderProcess(entrant, plan.path(f"load/{entrant.title}")))
            for entrant in (EVERTURN, EVERTURN_ASYNC, BARE_SAME_ROWS)
        }
        for contender in hosted.values():
            contender.append("long", turns=MESSAGES // 2)
        figures = interleave(
            {entrant: load_round(contender, messages=MESSAGES) for entrant, contender in hosted.items()},
            rounds=plan.pick(60, 20),
        )
    for name, ours, bar in (
        ("load 1,000 messages as objects", EVERTURN, Bar("<=", 0.4)),
        ("load 1,000 messages, async", EVERTURN_ASYNC, None),
    ):
        yield Row(
            name,
            duration(statistics.median(figures[ours])),
            f"{duration(statistics.median(figures[BARE_SAME_ROWS]))} rows + json.loads",
            ratio(figures[ours], figures[BARE_SAME_ROWS]),
            bar=bar,
        )


def load_round(contender: ContenderProcess, *, messages: int) -> Callable[[], float]:
    """A round of loads of the session `long`: the median of the seconds each took."""

    def one_round() -> float:
        seconds = []
        for taken, count in contender.load("long", times=LOADS):
            if count != messages:
                raise RuntimeError(f"{contender.title} loaded {count} of {messages} messages")
            seconds.append(taken)
        return statistics.median(seconds)

    return one_round
