"""CopyReport and CopyProgress: the result of a copy of sessions, and how far it is."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

CopyOutcome: TypeAlias = Literal["imported", "extended", "skipped", "conflict", "absent", "corrupt"]
"""Outcome of a copy for one session: the target did not have it; had an earlier version of it; had it all; has one with
another past, which stays as it is; the source does not have it; it is damaged, in the source or in the target."""


class CopyProgress(msgspec.Struct, frozen=True):
    """Progress of a copy: told for every session when it is done, and for a long one in between (`outcome` is None).

    `entries` counts those of this session copied so far, `sessions` those done so far, `total` all of them, if known.
    """

    session_id: str
    outcome: CopyOutcome | None
    why: str | None
    entries: int
    sessions: int
    total: int | None


class CopyReport(msgspec.Struct, frozen=True):
    """Result of a copy: numbers of sessions by CopyOutcome, and `conflicts`: ids, each with a reason and advice.

    `verified` sessions were compared, and are the same in both stores at the version that was copied. `behind` ones
    were changed in the source meanwhile: the target has an earlier version, and the next copy extends it.
    """

    imported: int
    extended: int
    skipped: int
    absent: int
    verified: int
    behind: int
    conflicts: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        return not self.conflicts
