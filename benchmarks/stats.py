"""Medians, spread and ratios: pure arithmetic over what the rounds measured. Knows no clock and no store."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median with the quartiles and the extremes around it."""

    median: float
    low: float
    high: float
    least: float
    most: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Summarise one figure per round. Raises ValueError when there is none."""
    if not values:
        raise ValueError("nothing was measured")
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(median, low, high, min(values), max(values), len(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarise ours / theirs round by round: both halves of a pair were measured next to each other."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def excess(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Summarise ours - theirs round by round."""
    return spread([mine - other for mine, other in zip(ours, theirs, strict=True)])


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]
