"""Cases that are left to `make deep` are marked, and never all cases of a test."""

from __future__ import annotations

import pytest

from tests.tiers import only_deep

FEW = """
import pytest
from tests.tiers import deep, first

@pytest.mark.parametrize("seed", first(2, range(5)))
def test_seeds(seed):
    pass

@pytest.mark.parametrize(("one", "other"), [(1, 2), deep((3, 4))])
def test_pairs(one, other):
    pass
"""
ALL = """
import pytest

@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_deep(seed):
    pass

@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_kept(seed):
    pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nmarkers =\n    deep: later\n")
    return pytester


def test_a_few_cases_are_kept_and_the_rest_is_deep(project: pytest.Pytester) -> None:
    project.makepyfile(FEW)
    project.runpytest_inprocess("-m", "not deep").assert_outcomes(passed=3, deselected=4)
    project.runpytest_inprocess("-m", "deep or not deep").assert_outcomes(passed=7)


def test_a_test_of_which_every_case_is_deep_is_named(project: pytest.Pytester) -> None:
    items, _ = project.inline_genitems(project.makepyfile(ALL))
    assert only_deep(items) == ["test_a_test_of_which_every_case_is_deep_is_named.py::test_deep"]
