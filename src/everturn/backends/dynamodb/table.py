"""The table: single items, ranges of items, batches and transactions, all consistent. Knows no session's rules."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from everturn.backends._shared.verification import SURPRISES, damaged_session
from everturn.backends.dynamodb.client import DynamoDBClient
from everturn.backends.dynamodb.stored_form import (
    HEAD,
    PURGE,
    SEAL,
    Item,
    StoredHead,
    head_of,
    names_key,
    sealed,
    session_key,
    waiting_in,
)
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import MemoryStoreBackendError

FIRST_PAUSE, LONGEST_PAUSE = 0.004, 0.2
GET_BATCH, WRITE_BATCH = 100, 25  # items that DynamoDB takes in one request
WRITE_BATCH_BYTES = 8 * 2**20
IS_NEW, IS_THERE = "attribute_not_exists(pk)", "attribute_exists(pk)"
NOBODY_FIRST = "(attribute_not_exists(waiting) OR size(waiting) = :nobody OR waiting[0] = :place)"


class Table:
    """The items of one namespace in a table."""

    def __init__(self, client: DynamoDBClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._name = client.table

    def key_of(self, session_id: str) -> str:
        """Make the `pk` of a session."""
        return session_key(self.namespace, session_id)

    # --- reads -------------------------------------------------------------------------------------------------------

    async def get(self, pk: str, sk: str, deadline: float) -> Item | None:
        """Get an item as it is now; None if there is none."""
        wanted = {"TableName": self._name, "Key": _key(pk, sk), "ConsistentRead": True}
        return (await self.client.send("get_item", wanted, deadline)).get("Item")

    async def get_together(self, keys: Sequence[tuple[str, str]], deadline: float) -> list[Item | None]:
        """Get some items as of one moment."""
        wanted = [{"Get": {"TableName": self._name, "Key": _key(*key)}} for key in keys]
        answer = await self.client.send("transact_get_items", {"TransactItems": wanted}, deadline)
        return [found.get("Item") for found in answer["Responses"]]

    async def get_many(self, keys: Iterable[tuple[str, str]], deadline: float) -> dict[tuple[str, str], Item]:
        """Get many items, each as it is now; those that are not there are left out."""
        left = [_key(*key) for key in keys]
        found: dict[tuple[str, str], Item] = {}
        tries = 0
        while left:
            some, left = left[:GET_BATCH], left[GET_BATCH:]
            wanted = {"RequestItems": {self._name: {"Keys": some, "ConsistentRead": True}}}
            answer = await self.client.send("batch_get_item", wanted, deadline)
            found |= {(item["pk"]["S"], item["sk"]["S"]): item for item in answer["Responses"].get(self._name, ())}
            again = answer.get("UnprocessedKeys", {}).get(self._name, {}).get("Keys", [])
            left += again
            tries = tries + 1 if len(again) == len(some) else 0
            if tries:
                await self.pause(tries, deadline)
        return found

    async def head(self, session_id: str, deadline: float) -> StoredHead | None:
        """Get the head of a session. Raises CorruptEntry if it is not as it was written, or was lost."""
        return await self.stored_head(session_id, deadline) or await self.look_again(session_id, deadline)

    async def stored_head(self, session_id: str, deadline: float) -> StoredHead | None:
        """Get the head of a session; None if there is none, whether it is absent or lost."""
        return read_head(session_id, await self.get(self.key_of(session_id), HEAD, deadline))

    async def look_again(self, session_id: str, deadline: float) -> StoredHead | None:
        """Make sure that a head that was not found is not lost: then the name of the session is still there.

        Returns the head if the session has begun meanwhile. Raises CorruptEntry if it is lost.
        """
        name = (names_key(self.namespace), session_id)
        if await self.get(*name, deadline) is None:
            return None
        head, there = await self.get_together([(self.key_of(session_id), HEAD), name], deadline)
        if head is None and there is not None:
            raise damaged_session(session_id, "its head is lost")
        return read_head(session_id, head)

    async def pages(
        self,
        pk: str,
        low: str | None,
        high: str | None,
        deadline: float,
        *,
        newest: bool = False,
        limit: int | None = None,
        after: str | None = None,
        only: str | None = None,
    ) -> AsyncIterator[list[Item]]:
        """Yield the items whose `sk` is from `low` to `high` (None: all), a page at a time, in order or newest first.

        `limit` is the size of the first page; `after` is the `sk` to go on behind. `only`: the attributes to read.
        """
        bounds = {} if low is None else {":low": {"S": low}, ":high": {"S": high}}
        wanted: dict[str, Any] = {
            "TableName": self._name,
            "KeyConditionExpression": "pk = :pk AND sk BETWEEN :low AND :high" if bounds else "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": pk}, **bounds},
            "ScanIndexForward": not newest,
            "ConsistentRead": True,
        }
        if only is not None:
            wanted["ProjectionExpression"] = only
        if limit is not None:
            wanted["Limit"] = limit
        if after is not None:
            wanted["ExclusiveStartKey"] = _key(pk, after)
        while True:
            answer = await self.client.send("query", wanted, deadline)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            wanted["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
            if limit is not None:
                wanted["Limit"] = limit = min(4 * limit, 1000)

    async def all(
        self, pk: str, low: str | None, high: str | None, deadline: float, *, only: str | None = None
    ) -> list[Item]:
        """Get all items whose `sk` is from `low` to `high`, in order."""
        return [item async for page in self.pages(pk, low, high, deadline, only=only) for item in page]

    async def latest(self, pk: str, low: str, high: str, deadline: float) -> Item | None:
        """Get the last item whose `sk` is from `low` to `high`; None if there is none."""
        async for page in self.pages(pk, low, high, deadline, newest=True, limit=1):
            if page:
                return page[0]
        return None

    # --- writes ------------------------------------------------------------------------------------------------------

    async def write_together(self, writes: Sequence[dict[str, Any]], deadline: float) -> None:
        """Write all or nothing. Raises ConditionNotMet if a condition is not met."""
        await self.client.send("transact_write_items", {"TransactItems": list(writes)}, deadline, writes=True)

    async def write_many(
        self, deadline: float, *, puts: Iterable[Item] = (), deletes: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Put and delete many items, in batches. Not atomic: nobody may be able to reach them meanwhile."""
        requests: list[dict[str, Any]] = [{"PutRequest": {"Item": sealed(item)}} for item in puts]
        requests += ({"DeleteRequest": {"Key": _key(*key)}} for key in deletes)
        tries = 0
        while requests:
            batch = _batch(requests)
            answer = await self.client.send(
                "batch_write_item", {"RequestItems": {self._name: batch}}, deadline, writes=True
            )
            again = answer.get("UnprocessedItems", {}).get(self._name, [])
            requests = requests[len(batch) :] + again
            tries = tries + 1 if again else 0
            if again:
                await self.pause(tries, deadline)

    async def update(
        self, key: tuple[str, str], expression: str, condition: str, values: dict[str, Any], deadline: float
    ) -> Item | None:
        """Change an attribute of an item. Returns the item. Raises ConditionNotMet with the item as it is."""
        wanted = self._update(key, expression, condition, values) | {"ReturnValues": "ALL_NEW"}
        return (await self.client.send("update_item", wanted, deadline, writes=True)).get("Attributes")

    def leave_queue(self, pk: str, place: str, waiting: Sequence[str]) -> None:
        """Take a place out of the queue of a head. Nobody waits for it, and it may go wrong."""

        def without_place(names: Sequence[str]) -> dict[str, Any] | None:
            # By its index, if it is there still: DynamoDB removes nothing from a list by its value.
            if place not in names:
                return None
            at = f"waiting[{names.index(place)}]"
            return self._update((pk, HEAD), f"REMOVE {at}", f"{at} = :place", {":place": {"S": place}})

        first, again = without_place(waiting), lambda stored: without_place(waiting_in(stored or {}))
        self.client.send_unawaited("update_item", first, again)

    def _update(self, key: tuple[str, str], expression: str, condition: str, values: dict[str, Any]) -> dict[str, Any]:
        told = {"TableName": self._name, "Key": _key(*key), "UpdateExpression": expression}
        return told | _conditional(condition, values)

    def put(self, item: Item, condition: str | None = None, **values: Any) -> dict[str, Any]:
        """Make a put for a transaction. If the condition is not met, the stored item comes back."""
        return {"Put": {"TableName": self._name, "Item": sealed(item), **_conditional(condition, values)}}

    def delete(self, pk: str, sk: str, condition: str | None = None, **values: Any) -> dict[str, Any]:
        """Make a delete for a transaction."""
        return {"Delete": {"TableName": self._name, "Key": _key(pk, sk), **_conditional(condition, values)}}

    def put_head(self, item: Item, before: StoredHead | None) -> dict[str, Any]:
        """Make the write of a head, on the condition that it is as it was planned on."""
        if before is None:
            return self.put(item, IS_NEW)
        return self.put(item, "tag = :tag", **{":tag": {"B": before.tag}})

    def put_in_place(self, item: Item, before: Item | None) -> dict[str, Any]:
        """Make a put for a transaction, on the condition that the item is exactly as it was, damaged as it may be."""
        if not before:
            return self.put(item, IS_NEW)
        names = sorted({*before} - {"pk", "sk"})
        told = " AND ".join(["attribute_exists(pk)", *(f"#{at} = :{at}" for at in range(len(names)))])
        write = self.put(item, told, **{f":{at}": before[name] for at, name in enumerate(names)})
        write["Put"] |= {"ExpressionAttributeNames": {f"#{at}": name for at, name in enumerate(names)}} if names else {}
        return write

    def move_head(self, item: Item, before: StoredHead | None, place: str = "", keep: str = "") -> dict[str, Any]:
        """Make the write of a head that leaves the queue to others, and takes `place` out of it, or keeps it as `keep`.

        On the condition that the head is as it was planned on, and that nobody else is the first of its queue.
        """
        if before is None:
            return self.put(item, IS_NEW)
        values = {":tag": {"B": before.tag}, ":new": item["tag"], ":session": item["session"]}
        values |= {":seal": sealed(item)[SEAL], ":place": {"S": place or "-"}}
        sets, removes, condition = f"SET tag = :new, #session = :session, {SEAL} = :seal", [], NOBODY_FIRST
        if PURGE in item:
            sets += f", {PURGE} = :purge"
            values[":purge"] = item[PURGE]
        else:
            removes.append(PURGE)
        if keep:
            sets += ", waiting[0] = :keep"
            values[":keep"] = {"S": keep}
            condition = "waiting[0] = :place"
        else:
            values[":nobody"] = {"N": "0"}
            removes += ["waiting[0]"] if place else []
        changed = {
            "TableName": self._name,
            "Key": {"pk": item["pk"], "sk": item["sk"]},
            "UpdateExpression": sets + (f" REMOVE {', '.join(removes)}" if removes else ""),
            "ExpressionAttributeNames": {"#session": "session"},  # a reserved word
        }
        return {"Update": changed | _conditional(f"tag = :tag AND {condition}", values)}

    async def pause(self, tries: int, deadline: float) -> None:
        """Wait before a request is sent again: longer each time, and never past the deadline. At random: several that
        met wait differently."""
        left = deadline - time.monotonic()
        most = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
        await self.client.sleep(max(0.0, min(random.uniform(0, most), left / 2)))  # noqa: S311 - no secret


def read_head(session_id: str, item: Item | None) -> StoredHead | None:
    """Read the head from its item. Raises CorruptEntry if it is not as it was written."""
    try:
        return head_of(item)
    except SURPRISES as exc:
        if is_interruption(exc):
            raise
        raise damaged_session(session_id, f"its head cannot be read ({exc})") from exc


def gone(name: str) -> MemoryStoreBackendError:
    """Make the error for a read that met a session in change: the store reads again."""
    text = f"{name}: the session changed while it was read"
    return MemoryStoreBackendError(text, outcome="not_written", transient=True)


def _key(pk: str, sk: str) -> Item:
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def _conditional(condition: str | None, values: dict[str, Any]) -> dict[str, Any]:
    if condition is None:
        return {}
    told: dict[str, Any] = {"ConditionExpression": condition, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    return told | ({"ExpressionAttributeValues": values} if values else {})


def _batch(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take as many requests from the front as one batch holds."""
    from everturn.backends.dynamodb.entry_blocks import size_of

    batch: list[dict[str, Any]] = []
    room = WRITE_BATCH_BYTES
    for request in requests[:WRITE_BATCH]:
        room -= size_of([request["PutRequest"]["Item"]]) if "PutRequest" in request else 0
        if batch and room < 0:
            break
        batch.append(request)
    return batch
