"""Options that several engines have are read alike by all, and before any time is counted. No server is asked."""

from __future__ import annotations

from typing import Any

import pytest

import everturn
from everturn import InvalidInput
from everturn.backends.options import namespace, switch, whole_number
from tests.store.speech import in_another_process

ENGINES = ["sqlite://", "redis://localhost:1", "postgresql://localhost:1/x"]


@pytest.mark.parametrize("url", ENGINES)
@pytest.mark.parametrize("value", ["x" * 513, "é" * 257, "a\0b", "\ud800", None, 7])
def test_a_namespace_that_no_engine_can_keep_is_refused_by_each(url: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        everturn.open(url, namespace=value)
    assert caught.value.path == "namespace"


def test_a_namespace_is_taken_as_it_is() -> None:
    assert [namespace(text) for text in ("", "é" * 256, "a:{b}", " ")] == ["", "é" * 256, "a:{b}", " "]


@pytest.mark.parametrize("value", [0, "0", -1, "x", None, "1.5", float("inf"), float("nan")])
def test_a_number_that_is_too_small_or_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="at least 1") as caught:
        whole_number("pool_size", 1)(value)
    assert caught.value.path == "pool_size"


def test_numbers_and_switches_come_as_text_in_urls() -> None:
    assert (whole_number("n", 0)("12"), whole_number("n", 0)(0)) == (12, 0)
    assert [switch("s")(value) for value in ("on", "1", True, "TRUE")] == [True] * 4
    assert [switch("s")(value) for value in ("off", "0", False, "False")] == [False] * 4
    with pytest.raises(InvalidInput, match="on or off"):
        switch("s")("maybe")


@pytest.mark.parametrize(("engine", "driver"), [("redis", "redis.connection"), ("postgres", "psycopg")])
def test_a_driver_is_imported_before_the_time_of_a_call_begins(engine: str, driver: str) -> None:
    script = """
        import importlib, everturn
        scheme, driver = argv
        module = importlib.import_module(f"everturn.backends.{scheme}")
        def look(*_):
            print(driver in sys.modules)
            sys.exit()
        print(driver in sys.modules)
        module.open = look
        everturn.open(f"{scheme}://localhost")
    """
    assert in_another_process(script, engine, driver).split() == ["False", "True"]
