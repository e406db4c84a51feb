"""Sessions that shorten themselves. A turn reads the prompt, appends two messages, and compacts if it is time.

The model that summarises is a fake, which answers at once: the store's own work is measured.

Each compacts once more than LONGEST messages are in view. everturn keeps the newest of these, and LlamaIndex, OpenAI's
session none: its prompts are shorter on average. A fold of ours can be undone and holds a lease meanwhile, so that no
two workers pay a model: three commits where the others have two.
"""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.contenders.on_sqlite.openai_agents import OpenAIItems
from everturn.bench.contenders.contender import AsyncContender
from everturn.bench.contenders.everturn_store import AsyncEverturn
from everturn.bench.workload import PlainMessage
from everturn.model import ChatMessage

LONGEST, KEPT = 40, 20  # messages
SUMMARY = "x" * 200
CHARACTERS_PER_TOKEN = 4


class EverturnFolding(AsyncEverturn):
    """`get_context`, `add_messages`, and `fold` once the context left something out: as the docs have it."""

    is_long = False

    async def latest(self, session: str, count: int) -> list[ChatMessage]:
        """Read the prompt: the summary and the messages in view."""
        context = await self._store.get_context(session, max_messages=count)
        self.is_long = context.left_out > 0
        return context.messages

    async def add(self, session: str, turn: list[ChatMessage]) -> None:
        """Append the turn, and fold if it is time."""
        await self._store.add_messages(session, turn)
        if self.is_long:
            await self._store.fold(session, lambda *_: SUMMARY, max_messages=KEPT)


class OpenAICompactionSession(OpenAIItems):
    """`OpenAIResponsesCompactionSession` over a `SQLiteSession`, one object per session, kept open."""

    def __init__(self, path: Path) -> None:
        """Remember where the file goes; a session opens it."""
        super().__init__()
        self._path = path / "agents.db"
        self._sessions: dict[str, Any] = {}

    def session(self, session_id: str) -> Any:
        from agents import SQLiteSession
        from agents.memory import OpenAIResponsesCompactionSession

        if session_id not in self._sessions:
            self._sessions[session_id] = OpenAIResponsesCompactionSession(
                session_id,
                SQLiteSession(session_id, self._path),
                client=_Client(),  # type: ignore[arg-type]  # it has what the session calls
                should_trigger_compaction=lambda about: len(about["session_items"]) > LONGEST,
            )
        return self._sessions[session_id]

    async def add(self, session: Any, turn: list[Any]) -> None:
        """Append the turn, and compact if it is time, as a run of the SDK does at its end."""
        await session.add_items(turn)
        await session.run_compaction({"compaction_mode": "input"})

    async def latest(self, session: Any, count: int) -> Sequence[object]:  # noqa: ARG002 - it has no other prompt
        """Read the prompt: every item that is left."""
        return await session.get_items()

    def close(self) -> None:
        """Close the sessions and the loop."""
        for session in self._sessions.values():
            session.underlying_session.close()
        self.runner.close()


class _Client:
    """A client of OpenAI's whose model summarises at once."""

    def __init__(self) -> None:
        self.responses = self

    async def compact(self, **_: Any) -> Any:
        return SimpleNamespace(output=[{"role": "assistant", "content": SUMMARY}], usage=None)


class LlamaIndexMemory(AsyncContender):
    """`Memory` over the store that it has by default, in a file, with one block that keeps a summary."""

    def __init__(self, path: Path) -> None:
        """Remember where the file goes; a memory opens it."""
        super().__init__()
        self._uri = f"sqlite+aiosqlite:///{path / 'llama.db'}"
        self._memories: dict[str, Any] = {}

    def session(self, session_id: str) -> Any:
        from llama_index.core.memory import BaseMemoryBlock, Memory

        class Summarized(BaseMemoryBlock[str]):
            """A block whose model summarises at once."""

            text: str = ""

            async def _aget(self, messages: Any = None, **_: Any) -> str:  # noqa: ARG002 - it calls it so
                return self.text

            async def _aput(self, messages: Any) -> None:  # noqa: ARG002 - it calls it so
                self.text = SUMMARY

        if session_id not in self._memories:
            self._memories[session_id] = Memory.from_defaults(
                session_id=session_id,
                async_database_uri=self._uri,
                memory_blocks=[Summarized(name="summary")],
                tokenizer_fn=lambda text: [0] * (len(text) // CHARACTERS_PER_TOKEN),
                token_limit=LONGEST * len(SUMMARY) // CHARACTERS_PER_TOKEN,
                token_flush_size=(LONGEST - KEPT) * len(SUMMARY) // CHARACTERS_PER_TOKEN,
                chat_history_token_ratio=1.0,
            )
        return self._memories[session_id]

    def made(self, turn: Sequence[PlainMessage]) -> list[Any]:
        from llama_index.core.llms import ChatMessage as LlamaMessage

        return [LlamaMessage(message["content"], role=message["role"]) for message in turn]

    async def add(self, session: Any, turn: list[Any]) -> None:
        """Append the turn; the memory hands what is too much to its block."""
        await session.aput_messages(turn)

    async def latest(self, session: Any, count: int) -> Sequence[object]:  # noqa: ARG002 - it has no other prompt
        """Read the prompt: the summary and the messages in the queue."""
        found: Sequence[object] = await session.aget()
        return found

    def close(self) -> None:
        """Close the stores and the loop."""
        for memory in self._memories.values():
            engine = memory.sql_store._async_engine
            if engine is not None:
                self.runner.run(engine.dispose())
        self.runner.close()
