"""Options that several backends have are read alike by all, and before any time is counted. No server is asked."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pytest

import everturn
from everturn import InvalidInput
from everturn.backends import postgres
from everturn.backends._shared.options import namespace, switch, whole_number

BACKENDS = ["sqlite://", "redis://localhost:1", "postgresql://localhost:1/x"]


@pytest.mark.parametrize("url", BACKENDS)
@pytest.mark.parametrize("value", ["x" * 513, "é" * 257, "a\0b", "\ud800", None, 7])
def test_a_namespace_that_no_backend_can_keep_is_refused_by_each(url: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        everturn.open(url, namespace=value)
    assert caught.value.path == "namespace"


@pytest.mark.parametrize("way", [everturn.open, everturn.open_async])
def test_every_option_of_our_backends_is_a_typed_keyword(way: Any) -> None:
    """But for libpq's parameters, of which there are many, and which stand in a URL."""
    backends = [import_module(f"everturn.backends.{name}") for name in ("sqlite", "redis", "postgres", "dynamodb")]
    options = {name for backend in backends for name in backend.OPTIONS} - set(postgres._OF_LIBPQ)
    keywords = inspect.signature(way, eval_str=True).parameters
    assert {name for name, each in keywords.items() if each.kind is each.KEYWORD_ONLY} == {
        *options,
        *("ttl", "timeout", "max_message_bytes"),
    }
    assert all(each.annotation is not Any for each in keywords.values() if each.kind is each.KEYWORD_ONLY)


def test_the_keywords_of_a_store_over_a_client_are_those_of_one_that_is_opened() -> None:
    opened = inspect.signature(everturn.open).parameters
    over = dict(inspect.signature(everturn.from_client).parameters)
    del over["client"]
    assert all(opened[name] == each for name, each in over.items())


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("sqlite://", {"wait_replicas": 1}),
        ("sqlite://", {"sslmode": "require"}),
        ("redis://localhost:1", {"synchronous": "FULL"}),
        ("postgresql://localhost:1/x", {"synchronous": "FULL"}),
        ("sqlite://", {"time_out": 3}),
    ],
)
def test_an_option_of_another_backend_or_of_none_is_refused_with_those_there_are(url: str, option: Any) -> None:
    with pytest.raises(InvalidInput, match=r"is not an option here; these are: .*namespace, .*timeout, ttl") as caught:
        everturn.open(url, **option)
    assert caught.value.path in option


def test_a_keyword_goes_before_the_url_and_none_is_a_value() -> None:
    def ttl_of(**options: Any) -> float | None:
        with everturn.open("sqlite://?ttl=60", **options) as store:
            store.save_context("a", "x", "y")
            return store.info("a").ttl

    assert (ttl_of(), ttl_of(ttl=30), ttl_of(ttl=None)) == (60, 30, None)


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
