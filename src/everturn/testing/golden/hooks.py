"""The pytest hooks of snapshot_db. They only call the modules beside this one."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from everturn.testing.golden import database_plans, summary, xdist
from everturn.testing.golden.database_file import DatabasesOfTest
from everturn.testing.golden.errors import GoldenError, SnapshotMismatch
from everturn.testing.golden.fixture import SnapshotDb
from everturn.testing.golden.ordering import ArtifactOrdering
from everturn.testing.golden.pytest_run import GoldenRun

if TYPE_CHECKING:
    from everturn.testing.golden.database_plans import TestPlan

NAME = "everturn-snapshot-db"
_RUN: pytest.StashKey[GoldenRun] = pytest.StashKey()
_PLAN: pytest.StashKey[TestPlan | GoldenError] = pytest.StashKey()
_DATABASES: pytest.StashKey[DatabasesOfTest] = pytest.StashKey()


def register(config: pytest.Config) -> None:
    """Register mark and hooks for this run."""
    config.addinivalue_line("markers", database_plans.SIGNATURE)
    config.stash[_RUN] = GoldenRun(config)
    config.pluginmanager.register(GoldenHooks(config.stash[_RUN]), NAME)


def snapshot_db(request: pytest.FixtureRequest, factory: pytest.TempPathFactory) -> SnapshotDb:
    """Make the fixture of one test. Files are made on demand, so that a problem with one is a failure of the test."""
    plan = _plan(request.node)
    databases = DatabasesOfTest(request.config.stash[_RUN], plan, factory.mktemp("snapshot_db"))
    request.node.stash[_DATABASES] = databases
    return SnapshotDb(databases)


def _plan(item: pytest.Item) -> TestPlan:
    if _PLAN not in item.stash:
        try:
            item.stash[_PLAN] = database_plans.read(item)
        except GoldenError as exc:
            item.stash[_PLAN] = exc
    plan = item.stash[_PLAN]
    if isinstance(plan, GoldenError):
        pytest.fail(str(plan), pytrace=False)
    return plan


class GoldenHooks:
    """The hooks of one run."""

    def __init__(self, run: GoldenRun) -> None:
        self._run = run
        self._summary = summary.RunSummary(run)
        self._refusals = xdist.Refusals()

    # --- collection --------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None]:
        is_grouped = self._run.is_updating and xdist.has_groups(config)
        if is_grouped:
            xdist.ask_for_groups(items, ArtifactOrdering(_plans(items).values()).groups())
        yield  # others choose among the tests, and shuffle them
        if is_grouped:
            xdist.put_groups_into_ids(items)
        plans = _plans(items)
        ordering = self._run.ordering = ArtifactOrdering(plans.values())
        self._run.tests |= {plan.home for plan in plans.values()}
        self._summary.collected(session, items)
        try:
            ordering.refuse_conflicts()
            if self._run.is_updating:
                if xdist.is_worker(config):
                    xdist.refuse_split_groups(ordering.groups())
                _put_in_order(items, ordering.order())
        except GoldenError as exc:
            self._refusals.refuse(config, str(exc))

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._summary.deselected += len(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._refusals.send_folder(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        self._refusals.check()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:  # noqa: ARG002 - pytest goes by the names
        """Take over the results of an xdist worker that has ended."""
        sent = xdist.received(node)
        if sent is not None:
            self._run.from_worker(sent["run"])
            self._summary.from_worker(sent["summary"])

    # --- tests -------------------------------------------------------------------------------------------------------

    # trylast, so innermost: for all other plugins, our failures are failures of the test itself.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        if database_plans.is_stray(item):
            pytest.fail(
                f"{item.name} has the mark snapshot_db, and does not ask for the fixture snapshot_db, so nothing is "
                "compared: add snapshot_db to its arguments, or take the mark away",
                pytrace=False,
            )
        databases = item.stash.get(_DATABASES, None)
        if databases is None:
            return (yield)
        with _as_failure():
            databases.begin()
        yield
        if not getattr(item, "_excinfo", None):  # where unittest's failures are: they are noted, not raised
            with _as_failure():
                databases.finish()
            self._run.finished.add(databases.plan.home)
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if database_plans.FIXTURE in getattr(item, "fixturenames", ()) and not report.passed:
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
    """Read the marks of the tests that use the fixture. A test with a bad mark is left out, and fails by itself."""
    found = {}
    for item in items:
        if database_plans.FIXTURE in getattr(item, "fixturenames", ()):
            try:
                found[item.nodeid] = item.stash[_PLAN] = database_plans.read(item)
            except GoldenError as exc:
                item.stash[_PLAN] = exc
    return found


def _put_in_order(items: list[pytest.Item], order: list[str]) -> None:
    """Put tests with artifacts into that order, among the places of such tests; all others stay where they are."""
    rank = {nodeid: number for number, nodeid in enumerate(order)}
    places = [place for place, item in enumerate(items) if item.nodeid in rank]
    ordered = sorted((items[place] for place in places), key=lambda item: rank[item.nodeid])
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


@contextmanager
def _as_failure() -> Iterator[None]:
    """Turn our errors into failures of the test, without a traceback of our own code."""
    try:
        yield
    except (GoldenError, SnapshotMismatch) as exc:
        raise pytest.fail.Exception(str(exc), pytrace=False) from None
