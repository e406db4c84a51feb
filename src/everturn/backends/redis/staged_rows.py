"""Rows of a fork or a copy, written to staged keys in bounded steps, before one script makes them visible.

Rows that a dead writer leaves behind expire by themselves. lua/_rows.lua says how rows are laid out in arguments.
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
FORGOTTEN = round(STAGED_FOR * 1000)  # milliseconds after which rows that were never made visible expire


class StagedRows(msgspec.Struct, frozen=True, gc=False):
    """Rows as lua/_rows.lua takes them. Jumps are oldest first; a snapshot is its id and its text."""

    entries: Sequence[EntryArgs] = ()
    changes: Sequence[ChangeArgs] = ()
    jumps: Sequence[Jump] = ()
    snapshots: Sequence[tuple[str, str]] = ()

    def __len__(self) -> int:
        return len(self.entries) + len(self.changes) + len(self.jumps) + len(self.snapshots)

    @property
    def args(self) -> list[Any]:
        """Return the rows as arguments."""
        parts = (self.entries, self.changes, self.jumps, self.snapshots)
        return [arg for part in parts for arg in (len(part), *chain.from_iterable(part))]


async def put(
    sender: Sender, staged: Keys, life: str, rows: StagedRows, now: str, deadline: float, *, forgotten: str = ""
) -> None:
    """Write rows behind those that are staged. Rows that are there already are left as they are. `forgotten` names the
    versions that cannot be read any more; `now` is as in Sender.change."""
    keys = (*staged, session_meta(staged))
    for step in _steps(rows):
        await sender.change(scripts.STAGE, keys, [FORGOTTEN, life, forgotten, *step.args], now, deadline)
        forgotten = ""


def _steps(rows: StagedRows) -> Iterator[StagedRows]:
    for entries in _portions(rows.entries):
        yield StagedRows(entries)
    for start in range(0, len(rows.changes), STEP):
        yield StagedRows(changes=rows.changes[start : start + STEP])
    for start in range(0, len(rows.jumps), STEP):
        yield StagedRows(jumps=rows.jumps[start : start + STEP])
    for start in range(0, len(rows.snapshots), STEP):
        yield StagedRows(snapshots=rows.snapshots[start : start + STEP])


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
