"""Search over embeddings: the same to the last bit with and without numpy."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.core import vectors

numbers = st.floats(-1e6, 1e6, width=32)


def packed(vector: list[float]) -> bytes:
    return struct.pack(f"<{len(vector)}f", *vector)


def nearest_without_numpy(wanted: bytes, embeddings: list[bytes], k: int) -> list[tuple[float, int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "numpy", None)  # an import of it fails, as if it were not installed
        return vectors.nearest(wanted, embeddings, k)


@st.composite
def several(draw: st.DrawFn) -> list[list[float]]:
    length = draw(st.integers(1, 8))
    return draw(st.lists(st.lists(numbers, min_size=length, max_size=length), min_size=2, max_size=30))


@settings(deadline=None)  # the first example imports numpy
@given(several())
def test_numpy_changes_no_result(vectors_given: list[list[float]]) -> None:
    wanted, *embeddings = map(packed, vectors_given)
    for k in (1, 2, len(embeddings)):
        assert vectors.nearest(wanted, embeddings, k) == nearest_without_numpy(wanted, embeddings, k)


@pytest.mark.parametrize("search", [vectors.nearest, nearest_without_numpy])
def test_ties_go_to_the_lower_index(search: object) -> None:
    embeddings = [packed([1.0, 2.0]), packed([2.0, 4.0]), packed([1.0, 2.0])]
    assert [index for _, index in search(packed([1.0, 2.0]), embeddings, 2)] == [0, 1]  # type: ignore[operator]


@pytest.mark.parametrize("search", [vectors.nearest, nearest_without_numpy])
def test_zeros_are_like_nothing(search: object) -> None:
    assert search(packed([0.0]), [packed([1.0])], 1) == [(0.0, 0)]  # type: ignore[operator]
    assert search(packed([1.0]), [packed([0.0]), packed([-1.0])], 2) == [(0.0, 0), (-1.0, 1)]  # type: ignore[operator]
    assert search(packed([1.0]), [packed([1.0])], 0) == []  # type: ignore[operator]
