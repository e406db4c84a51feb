"""The base of shapes whose caller reads the state, extends it and stores the result: the store orders nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.testing.shapes.base import SentMessage, Shape


class ReadThenPutShape(Shape):
    """A shape of which one append is `get`, then `put`. Two callers may read the same state, and both put."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held: dict[str, Any] = {}

    def more(self) -> set[str]:
        return {"caller_orders", "hold"}

    async def get(self, session: str) -> Any:
        """Get the state that the next `put` extends; None if there is none."""
        raise NotImplementedError

    async def put(self, session: str, messages: Sequence[SentMessage], latest: Any, **options: Any) -> Any:
        """Extend the state that was read, and store it."""
        raise NotImplementedError

    async def append(self, session: str, messages: Sequence[SentMessage], **options: Any) -> Any:
        return await self.put(session, messages, await self.get(session), **options)

    async def hold(self, session: str, holder: str) -> None:
        """Read as `holder`, and keep the state for `put_held`, so that other calls can come between."""
        self._held[holder] = await self.get(session)

    async def put_held(self, session: str, holder: str, messages: Sequence[SentMessage]) -> Any:
        """Put on top of the state that `holder` read."""
        return await self.put(session, messages, self._held[holder])
