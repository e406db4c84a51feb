"""Portable: four more operations of a backend, by which sessions are copied in and out of it.

transfer/copy.py makes a copy of them. A backend without them works; copying it raises `Unsupported`. All names here are
public as everturn.backend's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.core.requests import ChangeOutcome
from everturn.transfer.session_lines import EntryPart, Outline, Portion

STAGED_FOR = 600.0  # seconds that a staged portion is kept for the next one, or for being restored


class PortionRequest(msgspec.Struct, frozen=True, gc=False):
    """Ask for rows: entries past `after_seq` up to `last_seq`, then changes past `after_version` up to `last_version`.

    At most `entries` and `changes` of them, and no more entries once their bodies come to `bytes`.
    """

    session_id: str
    life: str
    after_seq: int
    last_seq: int
    after_version: int
    last_version: int
    entries: int = 1000
    changes: int = 2048
    bytes: int = 2**20

    def is_filled_by(self, entries: Sequence[EntryPart]) -> bool:
        """Whether the portion is full, so that there may be more."""
        return len(entries) >= self.entries or sum(entry.size for entry in entries) >= self.bytes


class Staging(msgspec.Struct, frozen=True, gc=False):
    """Stage a portion, behind those staged under `handle` (None: it is the first).

    `version` and `life` are those that the session will have.
    """

    session_id: str
    version: int
    portion: Portion
    handle: str | None = None
    life: str = ""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """Identifies the past of a session: two sessions with the same mark have the same past."""

    life: str
    version: int
    call: bytes


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A session to restore; it expires `expires_in` seconds from now. `onto` is its mark in the target (None: absent).

    With a `handle`: the rows staged under it and `portion` together are the whole session, and replace the one that is
    there. Without: `portion` has the rows to add to the session that is there.
    """

    outline: Outline
    expires_in: float | None
    portion: Portion = Portion()
    onto: Mark | None = None
    handle: str | None = None


class Portable(Protocol):
    """A backend whose sessions can be copied in and out. Each operation is one atomic request.

    Entries and remembered changes are only ever added and reclaimed. So they can be fetched after the outline that
    names them, a portion at a time: no lock or transaction is held while a copy is under way.
    """

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        """Read the session's present life without its log and its changes. None if there is none."""
        ...

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        """Read the next rows of that life, as they are stored, without reclaimed ones. None if the life is over."""
        ...

    async def stage(self, request: Staging, deadline: float) -> str | None:
        """Store rows where no read finds them; staged rows that are there already stay as they are.

        Returns the handle of the staged rows; None if they have gone. Staged rows that are not restored are reclaimed
        ten minutes after their latest portion.
        """
        ...

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        """Make the session visible in one step: its life, version, times, snapshots, undo steps, remembered changes.

        EXISTS, with life and version, if the session that is there is not at `onto`; MOVED if the staged rows have
        gone; SNAPSHOT_TAKEN if snapshot ids are unique in the backend, and another session has one of them. Only
        APPLIED wrote anything.
        """
        ...
