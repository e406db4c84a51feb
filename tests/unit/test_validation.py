"""The quick look at a value and the close one agree on what may be stored."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everturn import InvalidInput
from everturn.core import validation


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    FINE = "fine"
    BROKEN = "\ud800"


class Text(str):
    __slots__ = ()


class Many(list):  # type: ignore[type-arg]
    pass


texts = st.text(st.characters(), max_size=3)  # lone surrogates too
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    texts,
    st.sampled_from([2**63, 2**64, -(2**63), -(2**63) - 1, 2**80, Number.ONE, *Word, Text("a"), b"", (1,), 1j]),
)
keys = st.one_of(texts, st.sampled_from([1, None, Number.ONE, *Word, Text("a")]))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(Many),
        st.dictionaries(texts, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=8,
)


def is_refused(value: Any) -> bool:
    try:
        validation._look(value, "value", 0)
    except InvalidInput:
        return True
    return False


@given(values)
def test_nothing_that_is_plain_would_be_refused(value: Any) -> None:
    assert not (validation._are_plain((value,)) and is_refused(value))


@pytest.mark.parametrize(
    "deep", [validation.MAX_NESTING - 1, validation.MAX_NESTING, validation.MAX_NESTING + 1, 100_000]
)
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_what_is_too_deep_is_refused_and_not_followed(deep: int, wrap: Any) -> None:
    value: Any = wrap(None)
    for _ in range(deep - 1):
        value = wrap(value)
    assert validation._are_plain((value,)) == (deep <= validation.MAX_NESTING)
    assert is_refused(value) == (deep > validation.MAX_NESTING)


def test_what_is_usual_is_plain() -> None:
    assert validation._are_plain(({"a": [1, 2.5, None, True, "\u00e9", {"b": []}]},))
