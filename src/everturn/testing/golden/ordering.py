"""Orders tests that start from artifacts of other tests, and refuses impossible orders.

Pure, over the plans of the tests of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from everturn.testing.golden import names
from everturn.testing.golden.database_plans import TestPlan, home_of
from everturn.testing.golden.errors import GoldenError


class ArtifactOrdering:
    """The tests of a run, with the artifacts that they write and need."""

    def __init__(self, plans: Iterable[TestPlan]) -> None:
        self._plans = {plan.nodeid: plan for plan in plans}
        self._writers = {names.same_file_key(plan.home): plan.nodeid for plan in self._plans.values()}

    def refuse_conflicts(self) -> None:
        """Raise GoldenError for two writers of one artifact, and for a cycle of tests."""
        self._refuse_two_writers()
        self.order()

    def writer(self, artifact: Path) -> str | None:
        """Find the test of this run that writes an artifact; None if there is none."""
        return self._writers.get(names.same_file_key(home_of(artifact)))

    def order(self) -> list[str]:
        """Sort the tests so that each comes after those it starts from. Raises GoldenError for a cycle."""
        done: dict[str, None] = {}
        path: list[str] = []

        def visit(nodeid: str) -> None:
            if nodeid in done:
                return
            if nodeid in path:
                circle = " -> ".join((*path[path.index(nodeid) :], nodeid))
                raise GoldenError(f"these tests start from each other's artifacts, in a circle: {circle}. Break it")
            path.append(nodeid)
            for needed in self._needs(nodeid):
                visit(needed)
            path.pop()
            done[nodeid] = None

        for nodeid in self._plans:
            visit(nodeid)
        return list(done)

    def groups(self) -> list[list[str]]:
        """Group tests that must run in one process in an update: chains, and tests that share a built start."""
        leader = {nodeid: nodeid for nodeid in self._plans}

        def find(nodeid: str) -> str:
            while leader[nodeid] != nodeid:
                nodeid = leader[nodeid]
            return nodeid

        builders: dict[str, str] = {}
        for nodeid, plan in self._plans.items():
            for needed in self._needs(nodeid):
                leader[find(nodeid)] = find(needed)
            for start in plan.starts:
                if start.build is not None:
                    first = builders.setdefault(names.same_file_key(start.artifact), nodeid)
                    leader[find(nodeid)] = find(first)
        found: dict[str, list[str]] = {}
        for nodeid in self._plans:
            found.setdefault(find(nodeid), []).append(nodeid)
        return [group for group in found.values() if len(group) > 1]

    def _needs(self, nodeid: str) -> list[str]:
        writers = (self.writer(start.artifact) for start in self._plans[nodeid].starts if start.build is None)
        return [writer for writer in writers if writer is not None]

    def _refuse_two_writers(self) -> None:
        writers: dict[str, str] = {}
        for plan in self._plans.values():
            _claim(writers, plan.home, plan.nodeid)
        for plan in self._plans.values():
            for start in plan.starts:
                if start.build is not None:
                    function = f"{start.build.__module__}.{getattr(start.build, '__qualname__', start.build)}"
                    _claim(writers, start.artifact, f"build={function}")


def _claim(writers: dict[str, str], artifact: Path, writer: str) -> None:
    other = writers.setdefault(names.same_file_key(artifact), writer)
    if other != writer:
        raise GoldenError(
            f"two would write one artifact, {artifact} (where case does not matter, at least): {other} and {writer}. "
            "Give one of them another name; for parameters, ids="
        )
