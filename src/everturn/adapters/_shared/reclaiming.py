"""What a framework deletes from a session shall be gone: out of undo's reach, and its bytes given back."""

from __future__ import annotations

from collections.abc import Sequence

from everturn import AsyncMemoryStore, Receipt, Record, VersionConflict

UNDO_STEPS = 10  # how many a session keeps


async def reclaim(store: AsyncMemoryStore, receipt: Receipt, *, after: int, mark: Record) -> None:
    """Push what a `replace` removed out of undo's reach, by changes that change nothing, and compact.

    `receipt` is that of the replace, `after` the seq of the last entry that it left (0: none), `mark` an entry that
    comes and goes. Someone who writes meanwhile stops it: then later changes push it out, and a later compact finds it.
    """
    session_id = receipt.session_id
    try:
        for step in range(UNDO_STEPS):
            entries: Sequence[Record] = [] if step % 2 else [mark]
            receipt = await store.replace(session_id, entries, after=after, expected_version=receipt)
    except VersionConflict:
        pass
    await store.compact(session_id)
