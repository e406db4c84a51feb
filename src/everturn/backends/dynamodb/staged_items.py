"""Items that a call writes beside a session, before one transaction makes them visible: the bodies of a large turn.

They are named after the call, and not after its plan. So a plan that lost to another change leaves them where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn.backends.dynamodb.stored_form import Item, sk_of
from everturn.backends.dynamodb.table import Table


class StagedItems:
    """The items that one call has written so far, beside the session."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._written: dict[str, Item] = {}

    async def write(self, items: Sequence[Item], deadline: float) -> None:
        """Write items, the first of which notes the others; but for those that an earlier plan has written."""
        fresh = [item for item in items[1:] if self._written.get(sk_of(item)) != item]
        if fresh:
            # The note first: it names the others, should this process die before they are published.
            await self._table.write_many(deadline, puts=items[:1])
            await self._table.write_many(deadline, puts=fresh)
            self._written.update((sk_of(item), item) for item in fresh)

    def forget(self) -> None:
        """Write all of them again the next time: a compaction may have taken the note, and them with it."""
        self._written.clear()
