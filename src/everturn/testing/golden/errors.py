"""The two errors of golden files. Each message names the fault, its place, and the next step."""

from __future__ import annotations


class GoldenError(Exception):
    """A file cannot be read, copied, compared or written, or was asked for in a wrong way; nothing was changed."""


class SnapshotMismatch(AssertionError):
    """A database file differs from its artifact, or has none."""
