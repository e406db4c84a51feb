"""Visibility: whether an item that is not there is lost, or belongs to a transaction that is not to be seen whole yet.

DynamoDB shows the items of a transaction one by one to `Query` and `GetItem`: a head may be seen before the entries
that it names. `TransactGetItems` is isolated from transactions: it is refused while one is under way on these items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everturn.backends.dynamodb.stored_form import HEAD, Head, sk_of
from everturn.backends.dynamodb.table import Table, gone, read_head
from everturn.transfer.session_lines import ChangePart

ITEMS = 49  # of each kind, in one request
RECENT = 64  # changes: a transaction of one that is older is over


async def settle(
    table: Table, head: Head, deadline: float, *, absent: Iterable[str], present: Iterable[str] = ()
) -> None:
    """Return if a session is as it was seen: with this head, without some items and with others.

    Else raise a fault that passes, so that the store reads again. An item that is missing after this is lost.
    """
    if not head.life:
        return
    pk = table.key_of(head.session_id)
    lacking, seen = [*dict.fromkeys(absent)][:ITEMS], [*dict.fromkeys(present)][:ITEMS]
    stored, *items = await table.get_together([(pk, HEAD), *((pk, sk) for sk in (*lacking, *seen))], deadline)
    now = read_head(head.session_id, stored)
    if now is None or now.head != head or {sk_of(item) for item in items if item} != {*seen}:
        raise gone(table.client.name)


def seqs_written(latest: Sequence[ChangePart]) -> list[range]:
    """Compute the seqs that each of the latest changes wrote, in their order: newest first.

    The copies of summaries that a replace wrote first are no part of its receipt; they follow the change before it.
    """
    written: list[range] = []
    end = 0  # of the log before the change, as far as it is known
    for part in reversed(latest):
        last = part.first_seq + part.count - 1 if part.count else part.state.head if part.kind == "replace" else 0
        first = end + 1 if end and part.kind == "replace" else part.first_seq or last + 1
        written.append(range(first, last + 1))
        end = max(end, last)
    return written[::-1]
