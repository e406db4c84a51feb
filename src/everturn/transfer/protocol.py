"""What a backend does beyond Backend so that sessions can be copied in and out of it: four operations.

How they make a copy is in transfer/copy.py. A backend without them works, and says `Unsupported` when it is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from everturn.core.requests import ChangeOutcome
from everturn.transfer.session_lines import EntryPart, Outline, Portion

STAGED_FOR = 600.0  # seconds that a staged portion is kept for the next one, or for being restored


class PortionRequest(msgspec.Struct, frozen=True, gc=False):
    """Which rows to hand over: entries past `after_seq` up to `last_seq`, then changes past `after_version` up to
    `last_version`. At most so many of each, and no more entries once their bodies come to `bytes`."""

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
        """Whether these are all that a portion takes: there may be more."""
        return len(entries) >= self.entries or sum(entry.size for entry in entries) >= self.bytes


class Staging(msgspec.Struct, frozen=True, gc=False):
    """Put a portion behind those staged under `handle` (None: it is the first). `version` and `life` are those that the
    session will have."""

    session_id: str
    version: int
    portion: Portion
    handle: str | None = None
    life: str = ""


class Mark(msgspec.Struct, frozen=True, gc=False):
    """Where a session stands: no two pasts have the same mark."""

    life: str
    version: int
    call: bytes


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """A session to restore, to expire `expires_in` seconds from now. It may be there already at `onto` (None: not at
    all). `portion` holds the rows that are not there: what follows those staged under `handle`, which with them is all
    of it and takes the place of what is there; or, without a handle, what is to be added to what is there."""

    outline: Outline
    expires_in: float | None
    portion: Portion = Portion()
    onto: Mark | None = None
    handle: str | None = None


class Portable(Protocol):
    """What a backend does beyond Backend so that sessions can be copied in and out of it. Each is one atomic request.

    Entries and remembered changes are only ever added and reclaimed, so they can be fetched after the outline that
    names them, a portion at a time: nobody holds a lock or a transaction while a copy is under way.
    """

    async def outline(self, session_id: str, deadline: float) -> Outline | None:
        """All of the session's present life but its log and its changes. None if there is none."""
        ...

    async def portion(self, request: PortionRequest, deadline: float) -> Portion | None:
        """The next rows of that life, as they are stored; what was reclaimed is left out. None if it is over."""
        ...

    async def stage(self, request: Staging, deadline: float) -> str | None:
        """Put rows where nobody sees them; those that are there are left as they are. Returns the handle for what is
        staged, None if it has gone: what nobody restores is reclaimed ten minutes after its latest portion."""
        ...

    async def restore(self, arrival: Arrival, deadline: float) -> ChangeOutcome:
        """Make the session visible in one step: its life, version, times, snapshots, undo steps, remembered changes.

        EXISTS, with its life and version, if what is there does not stand at `onto`; MOVED if what was staged has gone;
        SNAPSHOT_TAKEN if the backend keeps a snapshot once, and has it elsewhere. Only APPLIED wrote anything.
        """
        ...
