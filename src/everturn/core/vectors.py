"""Searches the embeddings of one session, exactly: one pure function for every backend, with and without numpy."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import fsum, sqrt
from operator import mul

TOLERANCE = 1e-9  # by how much numpy's score may differ from the exact one; it is far less


def nearest(wanted: bytes, embeddings: Sequence[bytes], k: int) -> list[tuple[float, int]]:
    """Find the `k` embeddings most like `wanted` (all float32, of one length): (cosine similarity, index), best first.

    Ties go to the lower index. A vector of zeros is like nothing: 0.0. Results are the same to the last bit with and
    without numpy, which only narrows down where to look.
    """
    vector = _numbers(wanted)
    length = _length(vector)
    scored = ((_similarity(vector, length, embeddings[index]), index) for index in _candidates(wanted, embeddings, k))
    return nsmallest(k, scored, key=lambda found: (-found[0], found[1]))


def _similarity(vector: array[float], length: float, embedding: bytes) -> float:
    other = _numbers(embedding)
    lengths = length * _length(other)
    # The product of two float32 is exact in float64, and fsum rounds once: every order of adding gives the same score.
    return max(-1.0, min(1.0, fsum(map(mul, vector, other)) / lengths)) if lengths else 0.0


def _length(vector: array[float]) -> float:
    return sqrt(fsum(map(mul, vector, vector)))


def _numbers(embedding: bytes) -> array[float]:
    numbers = array("f", embedding)
    if sys.byteorder == "big":
        numbers.byteswap()  # stored little-endian
    return numbers


def _candidates(wanted: bytes, embeddings: Sequence[bytes], k: int) -> Iterable[int]:
    """Find the indexes among which the `k` best are: all of them, unless numpy can narrow them down."""
    if k >= len(embeddings):
        return range(len(embeddings))
    if k < 1:
        return ()
    try:
        import numpy as np
    except ImportError:
        return range(len(embeddings))
    matrix = np.frombuffer(b"".join(embeddings), dtype="<f4").reshape(len(embeddings), -1).astype(np.float64)
    vector = np.frombuffer(wanted, dtype="<f4").astype(np.float64)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(vector)
    products = matrix @ vector
    scores = np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)
    kth = np.partition(scores, len(scores) - k)[len(scores) - k]
    return [int(index) for index in np.flatnonzero(scores >= kth - TOLERANCE)]
