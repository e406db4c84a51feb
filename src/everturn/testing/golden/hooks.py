"""Owns what snapshot_db does at each moment of a pytest run. What that is, the modules beside it know."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from everturn.testing.golden import marks, summary, xdist
from everturn.testing.golden.database_file import Case
from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
from everturn.testing.golden.fixture import SnapshotDb
from everturn.testing.golden.ordering import Chains
from everturn.testing.golden.pytest_run import Run

if TYPE_CHECKING:
    from everturn.testing.golden.marks import TestPlan

NAME = "everturn-snapshot-db"
_RUN: pytest.StashKey[Run] = pytest.StashKey()
_PLAN: pytest.StashKey[TestPlan | GoldenError] = pytest.StashKey()
_CASE: pytest.StashKey[Case] = pytest.StashKey()


def register(config: pytest.Config) -> None:
    """Take part in this run."""
    config.addinivalue_line("markers", marks.SIGNATURE)
    config.stash[_RUN] = Run(config)
    config.pluginmanager.register(Hooks(config.stash[_RUN]), NAME)


def snapshot_db(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> SnapshotDb:
    """The object for one test. Files come when they are asked for: what is wrong with one is then a failure."""
    plan = _plan(request.node)
    case = Case(request.config.stash[_RUN], plan, factory.mktemp("snapshot_db"))
    request.node.stash[_CASE] = case
    return SnapshotDb(case)


def _plan(item: pytest.Item) -> TestPlan:
    if _PLAN not in item.stash:
        try:
            item.stash[_PLAN] = marks.read(item)
        except GoldenError as exc:
            item.stash[_PLAN] = exc
    plan = item.stash[_PLAN]
    if isinstance(plan, GoldenError):
        pytest.fail(str(plan), pytrace=False)
    return plan


class Hooks:
    """The hooks of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._summary = summary.Summary(run)
        self._refusals = xdist.Refusals()

    # --- collection --------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None]:
        is_grouped = self._run.is_updating and xdist.has_groups(config)
        if is_grouped:
            xdist.ask_for_groups(items, Chains(_plans(items).values()).groups())
        yield  # others choose among the tests, and shuffle them
        if is_grouped:
            xdist.put_groups_into_ids(items)
        plans = _plans(items)
        chains = self._run.chains = Chains(plans.values())
        self._run.tests |= {plan.home for plan in plans.values()}
        self._summary.collected(session, items)
        try:
            chains.refuse_what_cannot_be()
            if self._run.is_updating:
                if xdist.is_worker(config):
                    xdist.refuse_to_be_parted(chains.groups())
                _put_in_order(items, chains.order())
        except GoldenError as exc:
            self._refusals.refuse(config, str(exc))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._summary.deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._refusals.tell(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._refusals.look()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002 - pytest goes by the names
        """A worker of xdist has ended: take over what it knows."""
        sent = xdist.received(node)
        if sent is not None:
            self._run.from_worker(sent["run"])
            self._summary.from_worker(sent["summary"])

    # --- tests -------------------------------------------------------------------------------------------------------

    # trylast, so innermost: to all other plugins, what we find is found by the test itself.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        if marks.is_stray(item):
            pytest.fail(
                f"{item.name} has the mark snapshot_db, and does not ask for the fixture snapshot_db, so nothing is "
                "compared: add snapshot_db to its arguments, or take the mark away",
                pytrace=False,
            )
        case = item.stash.get(_CASE, None)
        if case is None:
            return (yield)
        with _as_failure():
            case.begin()
        yield
        if not getattr(item, "_excinfo", None):  # where unittest's failures are: they are noted, not raised
            with _as_failure():
                case.finish()
            self._run.finished.add(case.plan.home)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if marks.FIXTURE in getattr(item, "fixturenames", ()) and not report.passed:
            plan = item.stash.get(_PLAN, None)
            if plan is not None and not isinstance(plan, GoldenError):
                is_skip = report.skipped and not hasattr(report, "wasxfail")
                (self._run.skipped if is_skip else self._run.failed).add(plan.home)
        return report

    # --- the end -----------------------------------------------------------------------------------------------------

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self._summary.finished(session, exitstatus)
        sent = {"run": self._run.to_controller(), "summary": self._summary.to_controller()}
        xdist.send(session.config, sent)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = self._summary.lines()
        if lines:
            terminalreporter.section("snapshot_db")
            for line in lines:
                terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        self._run.inspector.close()
        self._refusals.close()


def _plans(items: list[pytest.Item]) -> dict[str, TestPlan]:
    """What is to be known of the tests that have the fixture, and a mark that makes sense; the others fail alone."""
    found = {}
    for item in items:
        if marks.FIXTURE in getattr(item, "fixturenames", ()):
            try:
                found[item.nodeid] = item.stash[_PLAN] = marks.read(item)
            except GoldenError as exc:
                item.stash[_PLAN] = exc
    return found


def _put_in_order(items: list[pytest.Item], order: list[str]) -> None:
    """Tests with artifacts in that order, in the places that such tests have; all others stay where they are."""
    rank = {nodeid: number for number, nodeid in enumerate(order)}
    places = [place for place, item in enumerate(items) if item.nodeid in rank]
    ordered = sorted((items[place] for place in places), key=lambda item: rank[item.nodeid])
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@contextmanager
def _as_failure() -> Iterator[None]:
    """Make what we found wrong a failure of the test, without a traceback: it would be of our own code."""
    try:
        yield
    except (GoldenError, SnapshotMismatch) as exc:
        raise pytest.fail.Exception(str(exc), pytrace=False) from None
