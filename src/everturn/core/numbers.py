"""Formats numbers for people: counts, sizes, durations."""

from __future__ import annotations


def count(number: int, noun: str, nouns: str = "") -> str:
    """Format a count with its noun: `1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {nouns or noun + 's'}"


def size(octets: float) -> str:
    """Format a number of bytes: `17 B`, `1.2 KB`, `3.4 GB`."""
    if octets < 1000:
        return f"{octets:.0f} B"
    for unit in ("KB", "MB"):
        octets /= 1000
        if octets < 1000:
            return f"{octets:.1f} {unit}"
    return f"{octets / 1000:.1f} GB"


def lasting(seconds: float) -> str:
    """Format a duration: `40 s`, `5 min`, `3 h`, `12 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
