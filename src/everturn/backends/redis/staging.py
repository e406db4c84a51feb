"""Rows written where nobody looks, in bounded steps: what a fork or a copy will be, before one script makes it visible.

What its writer leaves behind expires by itself. How rows are laid out in arguments is said in lua/rows.lua.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from everturn.backends.redis import scripts
from everturn.backends.redis.names import Keys, session_meta
from everturn.backends.redis.sending import Sender
from everturn.portable import STAGED_FOR

EntryArgs: TypeAlias = tuple[int, bytes | str, bytes]  # seq, kind, value
ChangeArgs: TypeAlias = tuple[Any, ...]  # version, key, how many fields, and these

STEP = 200  # rows written by one script: a millisecond or so
STEP_BYTES = 2**20  # of their values, about
FORGOTTEN = round(STAGED_FOR * 1000)  # milliseconds after which what was never made visible goes


def rows_args(entries: Sequence[EntryArgs], changes: Sequence[ChangeArgs]) -> list[Any]:
    """Rows as arguments."""
    return [len(entries), *chain.from_iterable(entries), len(changes), *chain.from_iterable(changes)]


async def put(
    sender: Sender,
    staged: Keys,
    entries: Iterable[EntryArgs],
    changes: Sequence[ChangeArgs],
    deadline: float,
    *,
    forgotten: str = "",
) -> None:
    """Write rows behind those that are staged; those that are there are left as they are. `forgotten` says which of the
    changes made versions that cannot be read any more."""
    keys = (*staged, session_meta(staged))
    for step in _steps(entries):
        await sender.change(scripts.STAGE, keys, [FORGOTTEN, "", *rows_args(step, ())], "", deadline)
    for start in range(0, len(changes), STEP):
        rows = rows_args((), changes[start : start + STEP])
        await sender.change(scripts.STAGE, keys, [FORGOTTEN, "" if start else forgotten, *rows], "", deadline)


def _steps(entries: Iterable[EntryArgs]) -> Iterator[list[EntryArgs]]:
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
