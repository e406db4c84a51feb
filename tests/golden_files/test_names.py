"""Names of artifacts are the same on every file system, parameters included, and one is never another's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn.testing.golden import names
from everturn.testing.golden.errors import GoldenError
from tests.golden_files.conftest import Project

FOLDER = Path("snapshots/test_it")
SAFE = re.compile(r"[A-Za-z0-9_.,=+@-]+\.sqlite")


def name(test: str, database: str = "", stage: str = "") -> str:
    return names.artifact(FOLDER, test=test, database=database, stage=stage).name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("test_a",), "test_a.sqlite"),
        (("TestA::test_b",), "TestA.test_b.sqlite"),
        (("test_a[1-True-None]",), "test_a-1-True-None.sqlite"),
        (("test_a", "users"), "test_a+users.sqlite"),
        (("test_a", "users", "after the first rollback"), "test_a+users@after-the-first-rollback.sqlite"),
        (("test_a[x/y:z]",), "test_a-x-y-z-83ca8b53.sqlite"),
        (("test_a[日本]",), "test_a-33d9b3df.sqlite"),
        (("test_a", "", "why?"), "test_a@why-e0c6b6ab.sqlite"),
    ],
)
def test_a_name_stays_as_it_is_where_that_is_safe(given: tuple[str, ...], expected: str) -> None:
    found = name(*given)
    assert re.sub(r"[0-9a-f]{8}", "#", found) == re.sub(r"[0-9a-f]{8}", "#", expected)


@given(st.text(), st.text())
def test_any_parameters_make_a_portable_name_and_different_ones_a_different_name(one: str, other: str) -> None:
    first, second = name(f"test_a[{one}]"), name(f"test_a[{other}]")
    assert SAFE.fullmatch(first)
    assert len(first) < 120
    assert (first == second) == (one == other)


@pytest.mark.parametrize("device", ["con", "NUL", "aux", "com1", "lpt9.txt"])
def test_the_names_of_devices_are_avoided(device: str) -> None:
    assert names.portable(device).partition(".")[0].casefold() != device.partition(".")[0].casefold()
    with pytest.raises(GoldenError, match="not a portable name"):
        names.given(device)


@pytest.mark.parametrize("bad", ["a:b", "a b", "ä", "a*", "../a", "", "a.", "-a", "a\\b", "x" * 81, "a\nb"])
def test_a_name_that_the_user_chose_is_refused_if_it_is_not_portable(bad: str) -> None:
    with pytest.raises(GoldenError, match="not a portable name for an artifact"):
        names.given(bad)


def test_a_file_may_be_named_with_folders_and_with_its_suffix() -> None:
    assert names.given_path("memory_test") == Path("memory_test.sqlite")
    assert names.given_path("base/memory_test.sqlite") == Path("base/memory_test.sqlite")
    for bad in ("/etc/passwd", "a/../b", "a//b"):
        with pytest.raises(GoldenError):
            names.given_path(bad)


def test_one_file_for_each_test_and_stage(project: Project) -> None:
    project.tests("""
        class TestDeep:
            class TestDeeper:
                @pytest.mark.parametrize("x", ["a/b", "a:b", 1.5, None])
                def test_it(self, snapshot_db, x):
                    make(snapshot_db.path)
                    say(snapshot_db.path, repr(x))
                    snapshot_db.check(f"said {x}")
    """)
    project.update().assert_outcomes(passed=4)
    assert len(project.artifacts()) == 8
    assert all(SAFE.fullmatch(Path(each).name) for each in project.artifacts())
    assert "snapshots/test_it/TestDeep.TestDeeper.test_it-None@said-None.sqlite" in project.artifacts()
    project.pytest().assert_outcomes(passed=4)
