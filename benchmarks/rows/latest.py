"""The work of an agent at every turn: read the latest 20 messages of a long session, and append two."""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from benchmarks.plan import Plan, Row, duration
from benchmarks.rounds import interleave
from benchmarks.stats import ratio
from everturn.bench.contenders import BARE, EVERTURN, Entrant
from everturn.bench.contenders.process import ContenderProcess

LENGTHS = (1_000, 10_000)  # messages in the session
LATEST = 20
READS = 20
TURNS = 10


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline on SQLite: a row for each message, `SELECT ... ORDER BY seq DESC LIMIT 20`, and `json.loads`."""
    with ExitStack() as stack:
        contenders = {
            entrant: stack.enter_context(ContenderProcess(entrant, plan.path(f"latest/{entrant.title}")))
            for entrant in (EVERTURN, BARE)
        }
        yield from compare(plan, "SQLite", contenders, EVERTURN, BARE)


def compare(
    plan: Plan, backend: str, contenders: Mapping[Entrant, ContenderProcess], ours: Entrant, bare: Entrant
) -> Iterator[Row]:
    """The rows of one backend. The bare driver reads the same messages, makes dicts of them, and checks nothing."""
    pair = {entrant: contenders[entrant] for entrant in (ours, bare)}
    for length in LENGTHS:
        session_id = f"latest-{length}"
        for contender in pair.values():
            contender.append(session_id, turns=length // 2)
        for work, one_round in (
            (f"read the latest {LATEST} of {length:,} messages", _read_round),
            (f"a turn of an agent at {length:,} messages: read the latest {LATEST}, append 2", _turn_round),
        ):
            taken = interleave(
                {entrant: one_round(contender, session_id, length) for entrant, contender in pair.items()},
                rounds=plan.pick(40, 12),
            )
            yield Row(
                f"{backend}: {work}",
                duration(statistics.median(taken[ours])),
                f"{duration(statistics.median(taken[bare]))} {bare.title}",
                ratio(taken[ours], taken[bare]),
            )


def _read_round(contender: ContenderProcess, session_id: str, _length: int) -> Callable[[], float]:
    """A round of reads: the median of the seconds each took."""

    def one_round() -> float:
        seconds = []
        for taken, count in contender.load_latest(session_id, count=LATEST, times=READS):
            if count != LATEST:
                raise RuntimeError(f"{contender.title} read {count} of {LATEST} messages")
            seconds.append(taken)
        return statistics.median(seconds)

    return one_round


def _turn_round(contender: ContenderProcess, session_id: str, length: int) -> Callable[[], float]:
    """A round of turns of an agent, which make the session longer: the median of the seconds each took."""
    numbers = itertools.count(length // 2, TURNS)
    return lambda: statistics.median(contender.agent_turns(session_id, turns=TURNS, first=next(numbers), count=LATEST))
