"""The shape of LangGraph's `BaseStore`: items with a key in a namespace. langgraph itself is not imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from everturn.testing.shapes.base import SentMessage
from everturn.testing.shapes.read_then_put import ReadThenPutShape

ROOT = "everturn_kit"
KEY = "messages"


class LangGraphStoreShape(ReadThenPutShape):
    """`put`, `get`, `search`, `delete`, or their awaited twins.

    A session is a namespace with one item, which has all of its messages. `put` takes no condition, so the last of two
    callers wins, and the clause about that is not offered. Clauses about items put many of them into a namespace.
    """

    name = "LangGraph BaseStore"
    calls = (
        "put(namespace, key, value)",
        "get(namespace, key)",
    )
    has_fields = True
    appends_to = ("put",)
    clears_with = ("delete",)
    optional: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def fits(cls, example: Any) -> bool:
        names = ("put", "get", "search", "delete")
        return any(all(callable(getattr(example, f"{a}{name}", None)) for name in names) for a in ("", "a"))

    def operations(self) -> frozenset[str]:
        return super().operations() - {"key"}  # the key of put names an item

    def more(self) -> set[str]:
        return {"caller_orders", "whole_states", "items"}

    def message(self, sent: SentMessage) -> Any:
        return {"role": sent.role, "content": sent.content, **sent.fields}

    async def get(self, session: str) -> Any:
        return await self.call(None, "get", (ROOT, session), KEY)

    async def put(self, session: str, messages: Sequence[SentMessage], latest: Any, **options: Any) -> None:
        said = [] if latest is None else latest.value[KEY]
        await self.call(None, "put", (ROOT, session), KEY, {KEY: [*said, *self.made(messages)]}, **options)

    async def read_raw(self, session: str) -> Any:
        item = await self.get(session)
        return [] if item is None else item.value[KEY]

    async def clear(self, session: str) -> None:
        await self.call(None, "delete", (ROOT, session), KEY)

    # --- items -------------------------------------------------------------------------------------------------------

    async def put_item(self, session: str, labels: Sequence[str], key: str, value: str) -> None:
        """Put an item into a namespace of the session."""
        await self.call(None, "put", (ROOT, session, *labels), key, {"value": value})

    async def item(self, session: str, labels: Sequence[str], key: str) -> str | None:
        """Get the value of an item; None if it is not there."""
        found = await self.call(None, "get", (ROOT, session, *labels), key)
        return None if found is None else found.value["value"]

    async def delete_item(self, session: str, labels: Sequence[str], key: str) -> None:
        await self.call(None, "delete", (ROOT, session, *labels), key)

    async def items(self, session: str, labels: Sequence[str], page: int) -> list[tuple[tuple[str, ...], str, str]]:
        """Search all items below a namespace, so many at a time: the labels, key and value of each."""
        found: list[tuple[tuple[str, ...], str, str]] = []
        while True:
            batch = await self.call(None, "search", (ROOT, session, *labels), limit=page, offset=len(found))
            found += ((tuple(one.namespace)[2:], one.key, one.value["value"]) for one in batch)
            if len(batch) < page:
                return found
