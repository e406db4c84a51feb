"""The two errors of golden files. Each message says what is wrong, where, and what to do."""

from __future__ import annotations


class GoldenError(Exception):
    """A file cannot be read, copied, compared or written, or was asked for in a wrong way; nothing was changed."""


class SnapshotMismatch(AssertionError):
    """A database file is not what its artifact says, or has none."""
