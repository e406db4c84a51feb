"""Runs clauses on a target within a budget, and decides the status of each.

contract/ has the clauses, report/ shows the result.
"""

from __future__ import annotations

import platform
import shlex
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Lock

import msgspec

from everturn.testing.history import save
from everturn.testing.kit.clause import Broken, Clause, NotOffered, StoreRaised, Untested, is_not_offered
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.parallel import work_through
from everturn.testing.kit.target import TargetError, needed
from everturn.testing.results import CONTRACT_VERSION, ClauseResult, RunReport, Status, Violation, count_statuses
from everturn.testing.workers.controller import JobFailed, WorkerDied

QUICK_SECONDS, DEFAULT_SECONDS = 10.0, 60.0
_LONGEST_QUICK = 600.0  # seconds: a machine so busy that the least takes longer has no time for it
_OVERRUN = (
    3.0  # times the budget that a run may take if nobody asked for one: a busy machine needs longer for the least
)
_GRACE = 2.0  # seconds after the budget's end in which a call under way may still return
_LEAST_SLICE = 0.02
_OTHERS_SEE_IT = frozenset({"another-process", "handover", "plain-process"})


class Chosen(msgspec.Struct, frozen=True):
    """A clause to run, and the one point of its sweep, if it is a replay."""

    clause: Clause
    only: int | None = None


class Runner:
    """Runs clauses one by one, each with its part of the time that is left."""

    def __init__(
        self,
        environment: Environment,
        chosen: Sequence[Chosen],
        *,
        budget: float,
        known: Mapping[str, str] | None = None,
        baseline: Mapping[str, Status] | None = None,
        histories: Path | None = None,
        contract: str = CONTRACT_VERSION,
        may_overrun: bool = False,
    ) -> None:
        """`budget` is the time for the run, in seconds. A quick run may overrun it: it does the least of every clause.
        So may another one, up to three times, if `may_overrun`: clauses that come after the budget do their least.

        `known` is the ledger: clause ids and reasons. `baseline` has the statuses of an earlier run: what was broken
        then is known now, and a clause that holds again is no complaint. The history of a broken clause is saved in
        `histories`. `contract` is the version that the clauses are of.
        """
        self.environment = environment
        self.histories = histories
        self.contract = contract
        self.budget = budget
        self.known = dict(known or {})
        self.baseline = dict(baseline or {})
        # A single clause runs even so: it says more than that nothing works.
        self.smoke = environment.smoke if len(chosen) > 1 else None
        self._chosen = tuple(chosen)
        self.results: list[ClauseResult] = []
        self._order = {one.clause.id: number for number, one in enumerate(chosen)}
        self._waiting = sum(one.clause.weight for one in chosen)
        self._started = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._ends = self._started + budget
        self._may_overrun = may_overrun
        longest = max(budget, _LONGEST_QUICK) if environment.quick else budget * (_OVERRUN if may_overrun else 1)
        self._hard_end = self._started + longest
        environment.patience.end_at(self._hard_end + _GRACE)

    def result(self, chosen: Chosen, environment: Environment | None = None) -> ClauseResult:
        """Run one clause, in this environment or a parallel one. Returns its result, also when no time is left."""
        clause = chosen.clause
        began = time.monotonic()
        self._give_back()
        part = clause.weight / max(self._waiting, clause.weight)
        self._waiting -= clause.weight
        # Most clauses need less than their part, so each may take more; in a quick run they would.
        share = part if self.environment.quick else part * 1.5
        until = began + max((self._ends - began) * share, _LEAST_SLICE)
        violations: tuple[Violation, ...] = ()
        status: Status = "holds"
        point = clause.id
        if missing := clause.missing(self.environment.offered):
            status, detail = "not_offered", needed(missing)
        elif self.smoke is not None:
            status, detail = "untested", f"not tried, because the store cannot append and read at all: {self.smoke}"
        elif began >= self._hard_end:
            status, detail = "untested", f"the budget of {self.budget:g} s was used up before; give a larger --budget"
        else:
            status, detail, violations, point = self._tried(
                chosen, environment or self.environment, min(until, self._hard_end)
            )
        if clause.id in self.known and status in {"broken", "untested"}:
            status, detail = "known", f"known: {self.known[clause.id]}" + (f" ({detail})" if detail else "")
        elif (before := self._before(clause.id, status)) is not None:
            status, detail = "known", f"known: {before} in the baseline" + (f" ({detail})" if detail else "")
        result = ClauseResult(
            clause.id,
            clause.layer,
            status,
            detail,
            violations,
            clause.promise,
            clause.incident,
            self._replay(point) if status in {"broken", "untested", "known"} else "",
            time.monotonic() - began,
            clause.remedy if violations else "",
        )
        self.results.append(result)
        return result

    def _before(self, clause_id: str, status: Status) -> str | None:
        """Return what the clause was in the baseline, if it does not hold now and is no worse than then."""
        worst: tuple[Status, ...] = ("broken", "known") if status == "broken" else ("broken", "known", "untested")
        before = self.baseline.get(clause_id)
        if status not in {"broken", "untested"} or before not in worst:
            return None
        return before

    def _give_back(self) -> None:
        """Add the time that hanging calls took to the budget, up to the budget once more: others need theirs."""
        given = min(self.environment.patience.lost, self.budget)
        self._ends = self._started + self.budget + given
        if not self.environment.quick and not self._may_overrun:
            self._hard_end = self._ends
            self.environment.patience.end_at(self._hard_end + _GRACE)

    def _tried(
        self, chosen: Chosen, environment: Environment, until: float
    ) -> tuple[Status, str, tuple[Violation, ...], str]:
        kit = Kit(environment, chosen.clause, until=until, only=chosen.only)
        kept = False
        status: Status = "holds"
        detail: str = ""
        violations: tuple[Violation, ...] = ()
        try:
            chosen.clause.test(kit)
            detail = kit.answers.never_given(["append", "read", *chosen.clause.operations])
            status, kept = ("untested" if detail else "holds"), not detail
        except Broken as exc:
            status, detail, violations = "broken", exc.detail, exc.violations
        except StoreRaised as exc:
            if is_not_offered(exc.fault):
                status, detail = "not_offered", f"not offered: {exc}"
            else:
                status, violations = "broken", (kit.violation(str(exc), session=exc.step.session, kind="raised"),)
        except WorkerDied as exc:
            status, violations = "broken", (kit.violation(f"the store took its process along: {exc}", kind="died"),)
        except JobFailed as exc:
            story = f"the store could not be opened or closed: {exc}"
            status, violations = "broken", (kit.violation(story, kind="unopened"),)
        except Untested as exc:
            status, detail = "untested", str(exc)
        except NotOffered as exc:
            status, detail = "not_offered", str(exc)
        except Exception as exc:  # noqa: BLE001 - whatever happens in here, a report is written
            status, detail = "untested", _own_fault(exc)
        try:
            kit.end(kept=kept)
        except Exception as exc:  # noqa: BLE001 - as above
            kit.notes.append(_own_fault(exc))
        if status == "broken" and self.histories is not None and (events := kit.events()):
            if not self.histories.exists():
                self.histories.mkdir(parents=True, exist_ok=True)
                (self.histories / ".gitignore").write_text("*\n", "utf-8")
            save(events, saved := self.histories / f"{chosen.clause.id}.jsonl")
            kit.notes.append(f"history: {saved}")
        point = next((kit.replays[one.session] for one in violations if one.session in kit.replays), chosen.clause.id)
        return status, "; ".join(filter(None, [detail, *kit.notes])), violations, point

    def _replay(self, point: str) -> str:
        target, seed = self.environment.target.text, self.environment.seed
        return f"everturn check {shlex.quote(target)} --clause {point} --seed {seed}"

    def report(self) -> RunReport:
        """Report every clause that was run so far, in the order in which they were chosen."""
        results = sorted(self.results, key=lambda result: self._order.get(result.id, 0))
        return RunReport(
            contract_version=self.contract,
            target=self.environment.target.text,
            seed=self.environment.seed,
            clauses=tuple(results),
            started=self._started_at.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self._started,
            versions={"everturn": version("everturn"), "python": platform.python_version()},
            complaints=tuple(self._complaints()),
            hints=tuple(self._hints()),
            counts=count_statuses(results),
        )

    def _hints(self) -> Iterable[str]:
        bad = {"broken", "untested", "known"}
        if held := [one.id for one in self.results if one.status == "holds" and self.baseline.get(one.id) in bad]:
            yield f"Better than the baseline: {', '.join(held)}. Write it anew with --json, so that they stay so."
        if self.baseline and (new := [one.id for one in self.results if one.id not in self.baseline]):
            yield f"The baseline has no result for {len(new)} of these clauses, so that they count as new."
        if self.environment.offer.processes and any(
            one.id in _OTHERS_SEE_IT and one.status == "broken" for one in self.results
        ):
            yield (
                "Another process did not see what was stored. If the store lives in memory by nature, say so with "
                "`factory.processes = False`: clauses about other processes are then not offered."
            )

    def abandon(self, why: str) -> RunReport:
        """Report a run that ends early: clauses without a result are untested, for this reason."""
        done = {result.id for result in self.results}
        for one in self._chosen:
            if one.clause.id not in done:
                self.results.append(
                    ClauseResult(
                        one.clause.id, one.clause.layer, "untested", why, (), one.clause.promise, one.clause.incident
                    )
                )
        return self.report()

    def _complaints(self) -> Iterable[str]:
        """Yield the mistakes of the ledger: every entry must name a clause that fails."""
        found = {result.id: result.status for result in self.results}
        for name in self.known:
            if name not in found:
                yield f"the ledger names {name!r}, and there is no such clause in this run"
            elif found[name] != "known":
                yield f"the ledger names {name!r} as a known failure, and it {_now(found[name])}: remove the entry"


def run_all(
    runner: Runner,
    chosen: Sequence[Chosen],
    *,
    stop_at_first: bool = False,
    begin: Callable[[Clause], None] = lambda _: None,
    end: Callable[[ClauseResult], None] = lambda _: None,
) -> RunReport:
    """Run all clauses (with `stop_at_first`, until one is broken), and report.

    `begin` and `end` are called one at a time, in the order in which clauses begin and end; several may be under way.
    A run that is interrupted, whose target is lost, or in which the kit itself fails is reported as far as it came.
    """
    calling = Lock()

    def work(one: Chosen, environment: Environment) -> bool:
        with calling:
            begin(one.clause)
        result = runner.result(one, environment)
        with calling:
            end(result)
        return not (stop_at_first and result.status in {"broken", "untested"})

    try:
        work_through(runner.environment, chosen, work)
    except KeyboardInterrupt:
        return runner.abandon("the run was interrupted before")
    except TargetError as exc:
        return runner.abandon(f"the run ended before: {exc}")
    except Exception as exc:  # noqa: BLE001 - whatever happens in here, a report is written
        return runner.abandon(_own_fault(exc))
    return runner.report()


def _now(status: Status) -> str:
    return "holds" if status == "holds" else f"is {status.replace('_', ' ')}"


def _own_fault(exc: Exception) -> str:
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    return f"the kit itself failed, please report this with the seed: {exc!r} at {frame.name}, line {frame.lineno}"
