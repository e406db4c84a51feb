"""Rows written where nobody looks, in bounded steps: what a fork or a copy will be, before one script makes it visible.

What its writer leaves behind expires by itself. How rows are laid out in arguments is said in lua/rows.lua.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from everturn.backends.redis import scripts
from everturn.backends.redis.client import Sender
from everturn.backends.redis.keys import Keys, session_meta
from everturn.core.paths import Jump
from everturn.transfer.protocol import STAGED_FOR

EntryArgs: TypeAlias = tuple[int, bytes | str, bytes]  # seq, kind, value
ChangeArgs: TypeAlias = tuple[Any, ...]  # version, key, how many fields, and these

STEP = 200  # rows written by one script: a millisecond or so
STEP_BYTES = 2**20  # of their values, about
FORGOTTEN = round(STAGED_FOR * 1000)  # milliseconds after which what was never made visible goes


class Rows(msgspec.Struct, frozen=True, gc=False):
    """Rows as lua/rows.lua takes them. Jumps are oldest first; a snapshot is its id and its text."""

    entries: Sequence[EntryArgs] = ()
    changes: Sequence[ChangeArgs] = ()
    jumps: Sequence[Jump] = ()
    snapshots: Sequence[tuple[str, str]] = ()

    def __len__(self) -> int:
        return len(self.entries) + len(self.changes) + len(self.jumps) + len(self.snapshots)

    @property
    def args(self) -> list[Any]:
        """Rows as arguments."""
        parts = (self.entries, self.changes, self.jumps, self.snapshots)
        return [arg for part in parts for arg in (len(part), *chain.from_iterable(part))]


async def put(sender: Sender, staged: Keys, life: str, rows: Rows, deadline: float, *, forgotten: str = "") -> None:
    """Write rows behind those that are staged; those that are there are left as they are. `forgotten` says which of the
    changes made versions that cannot be read any more."""
    keys = (*staged, session_meta(staged))
    for step in _steps(rows):
        await sender.change(scripts.STAGE, keys, [FORGOTTEN, life, forgotten, *step.args], "", deadline)
        forgotten = ""


def _steps(rows: Rows) -> Iterator[Rows]:
    for entries in _portions(rows.entries):
        yield Rows(entries)
    for start in range(0, len(rows.changes), STEP):
        yield Rows(changes=rows.changes[start : start + STEP])
    for start in range(0, len(rows.jumps), STEP):
        yield Rows(jumps=rows.jumps[start : start + STEP])
    for start in range(0, len(rows.snapshots), STEP):
        yield Rows(snapshots=rows.snapshots[start : start + STEP])


def _portions(entries: Iterable[EntryArgs]) -> Iterator[list[EntryArgs]]:
    step: list[EntryArgs] = []
    size = 0
    for entry in entries:
        step.append(entry)
        size += len(entry[2])
        if len(step) >= STEP or size >= STEP_BYTES:
            yield step
            step, size = [], 0
    if step:
        yield step
