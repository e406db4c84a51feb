"""The work of an agent at every turn: read the latest 20 messages of a session, and append two.

At four lengths, after 1,000 edits, and with the processor time of the client beside the time on the clock.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.contenders.on_sqlite import PEERS
from benchmarks.plan import Bar, Plotted, RunPlan, TableRow, duration
from benchmarks.rounds import interleave, progress
from benchmarks.stats import ratio
from everturn.bench.contenders import BARE, EVERTURN, EVERTURN_ASYNC, Entrant
from everturn.bench.contenders.process import ContenderError, ContenderProcess
from everturn.bench.contenders.timing import Cost

LENGTHS = (20, 1_000, 10_000, 1_000_000)  # messages in the session
LONGEST_FOR_PEERS = 1_000  # some of them take minutes to fill more, and a second for a turn
LATEST = 20
READS, TURNS = 20, 10
EDITS = 1_000

Costs = Mapping[Entrant, Sequence[Cost]]
Hosted = Mapping[Entrant, ContenderProcess]


@dataclass(frozen=True)
class Bars:
    """The bars of one backend: the read, and the turn of a blocking and of an async store."""

    read: float
    turn: float = 1.3
    turn_async: float = 1.6
    processor: float = 1.5
    processor_async: float = 2.0


@dataclass(frozen=True)
class Field:
    """The contenders on one backend: ours, blocking and async, the bare driver, and the peers."""

    backend: str
    ours: Entrant
    ours_async: Entrant
    bare: Entrant
    peers: Sequence[Entrant]
    bars: Bars

    def of_everturn(self) -> Iterator[tuple[Entrant, str, float, float]]:
        """Our two stores: a word for each, the bar of its turn, and that of its processor time."""
        yield self.ours, "", self.bars.turn, self.bars.processor
        yield self.ours_async, ", async", self.bars.turn_async, self.bars.processor_async


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline on SQLite: a row for each message, `SELECT ... ORDER BY seq DESC LIMIT 20`, and `json.loads`.

    The bare driver reads and writes the same messages, makes dicts of them, and checks nothing.
    """
    field = Field("SQLite", EVERTURN, EVERTURN_ASYNC, BARE, PEERS if plan.peers else (), Bars(read=1.5))
    entrants = (field.ours, field.ours_async, field.bare, *field.peers)
    with ExitStack() as stack:
        hosted = {
            entrant: stack.enter_context(ContenderProcess(entrant, plan.path(f"latest/{entrant.title}")))
            for entrant in entrants
        }
        yield from compare(plan, field, hosted)


def compare(plan: RunPlan, field: Field, hosted: Hosted) -> Iterator[TableRow]:
    """Yield the rows of one backend."""
    absent: set[Entrant] = set()
    for length in LENGTHS[:2] if plan.quick else LENGTHS:
        session_id = f"latest-{length}"
        progress(f"{field.backend}: filling {length:,} messages")
        with_peers = length <= LONGEST_FOR_PEERS
        entrants = [field.ours, field.ours_async, field.bare, *(field.peers if with_peers else ())]
        taking_part: dict[Entrant, ContenderProcess] = {}
        for entrant in (entrant for entrant in entrants if entrant not in absent):
            try:
                hosted[entrant].fill(session_id, first=0, count=max(0, length - 2 * LATEST))
                hosted[entrant].append(session_id, turns=min(LATEST, length // 2))
            except (ContenderError, KeyError) as exc:
                absent.add(entrant)
                yield TableRow(f"{field.backend}: {entrant.title}", "", str(exc))
            else:
                taking_part[entrant] = hosted[entrant]
        yield from _reads(plan, field, taking_part, session_id, f"{length:,} messages")
        yield from _turns(plan, field, taking_part, session_id, length)
    yield from _edited(plan, field, hosted)


def _reads(plan: RunPlan, field: Field, hosted: Hosted, session_id: str, what: str) -> Iterator[TableRow]:
    taken = _rounds(plan, hosted, lambda contender: _read_round(contender, session_id))
    for ours, word, _, processor in field.of_everturn():
        bar = Bar("<=", field.bars.read, wanted=ours is field.ours_async)
        name = f"{field.backend}: read the latest {LATEST} of {what}{word}"
        yield _against(name, taken, ours, field.bare, bar)
        yield _processor(f"{name}: processor time of the client", taken, ours, field.bare, Bar("<=", processor))
    for peer in field.peers:
        if peer in taken:
            yield _faster(f"{field.backend}: read the latest {LATEST} of {what}", taken, field.ours, peer)


def _turns(plan: RunPlan, field: Field, hosted: Hosted, session_id: str, length: int) -> Iterator[TableRow]:
    taken = _rounds(plan, hosted, lambda contender: _turn_round(contender, session_id, length))
    for ours, word, limit, processor in field.of_everturn():
        name = f"{field.backend}: a turn of an agent at {length:,} messages{word}"
        plotted = None
        if ours is field.ours:
            medians = {entrant.title: statistics.median(cost.seconds for cost in taken[entrant]) for entrant in taken}
            plotted = Plotted(field.backend, length, medians)
        yield _against(name, taken, ours, field.bare, Bar("<=", limit), plotted)
        yield _processor(f"{name}: processor time of the client", taken, ours, field.bare, Bar("<=", processor))
    for peer in field.peers:
        if peer in taken:
            yield _faster(f"{field.backend}: a turn of an agent at {length:,} messages", taken, field.ours, peer)


def _edited(plan: RunPlan, field: Field, hosted: Hosted) -> Iterator[TableRow]:
    """The same after 1,000 edits: the path of the history is in 1,000 ranges. The bare driver's has no edits."""
    hosted[field.ours].edit("edited", edits=EDITS)
    hosted[field.bare].fill("edited", first=0, count=EDITS)
    pair = {entrant: hosted[entrant] for entrant in (field.ours, field.bare)}
    taken = _rounds(plan, pair, lambda contender: _read_round(contender, "edited"))
    name = f"{field.backend}: read the latest {LATEST} after {EDITS:,} edits"
    yield _against(name, taken, field.ours, field.bare, Bar("<=", field.bars.read))


def over_a_link(plan: RunPlan, field: Field, hosted: Hosted) -> Iterator[TableRow]:
    """Yield the turn of an agent at 1,000 messages, for contenders that are connected over a link with delay."""
    length, session_id = LONGEST_FOR_PEERS, "linked"
    what = f"{field.backend} over a link with 0.5 ms of delay: a turn of an agent at {length:,} messages"
    taking_part: dict[Entrant, ContenderProcess] = {}
    for entrant, contender in hosted.items():
        try:
            contender.fill(session_id, first=0, count=length)
        except ContenderError as exc:  # a peer may be too slow for it, and the others go on
            yield TableRow(f"{what}: {entrant.title}", "", str(exc))
        else:
            taking_part[entrant] = contender
    taken = _rounds(plan, taking_part, lambda contender: _turn_round(contender, session_id, length))
    for ours, word, limit, _ in field.of_everturn():
        yield _against(f"{what}{word}", taken, ours, field.bare, Bar("<=", limit))
    for peer in field.peers:
        if peer in taken:
            yield _faster(what, taken, field.ours, peer)


def _rounds(
    plan: RunPlan, hosted: Hosted, one_round: Callable[[ContenderProcess], Callable[[], Cost]]
) -> dict[Entrant, list[Cost]]:
    return interleave({entrant: one_round(contender) for entrant, contender in hosted.items()}, rounds=plan.pick(25, 8))


def _read_round(contender: ContenderProcess, session_id: str) -> Callable[[], Cost]:
    return lambda: _median(contender.read_latest(session_id, count=LATEST, times=READS))


def _turn_round(contender: ContenderProcess, session_id: str, length: int) -> Callable[[], Cost]:
    """A round of turns, each of which makes the session longer by two messages."""
    numbers = itertools.count(length // 2, TURNS)
    return lambda: _median(contender.agent_turns(session_id, turns=TURNS, first=next(numbers), count=LATEST))


def _median(taken: Sequence[Cost]) -> Cost:
    return Cost(statistics.median(cost.seconds for cost in taken), statistics.median(cost.processor for cost in taken))


def _against(
    name: str, taken: Costs, ours: Entrant, bare: Entrant, bar: Bar, plotted: Plotted | None = None
) -> TableRow:
    mine, theirs = ([cost.seconds for cost in taken[entrant]] for entrant in (ours, bare))
    baseline = f"{duration(statistics.median(theirs))} {bare.title}"
    return TableRow(name, duration(statistics.median(mine)), baseline, ratio(mine, theirs), bar=bar, plotted=plotted)


def _processor(name: str, taken: Costs, ours: Entrant, bare: Entrant, bar: Bar) -> TableRow:
    mine, theirs = ([cost.processor for cost in taken[entrant]] for entrant in (ours, bare))
    baseline = f"{duration(statistics.median(theirs))} {bare.title}"
    return TableRow(name, duration(statistics.median(mine)), baseline, ratio(mine, theirs), bar=bar)


def _faster(work: str, taken: Costs, ours: Entrant, peer: Entrant) -> TableRow:
    mine, theirs = ([cost.seconds for cost in taken[entrant]] for entrant in (ours, peer))
    medians = duration(statistics.median(mine)), duration(statistics.median(theirs))
    return TableRow(f"{work}: times faster than {peer.title}", *medians, ratio(theirs, mine), bar=Bar(">=", 1.0))
