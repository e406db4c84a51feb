"""LlamaIndex's `Memory` over a session that is folded: a memory block tells the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemoryBlock, Memory

import everturn
from everturn import MemoryStore
from everturn.adapters.llama_index import EverturnDBChatStore
from tests.adapters.folding import LEFT, folding_elsewhere, summarize


class FoldedSummary(BaseMemoryBlock[str]):
    """The block of the docs."""

    store: Any
    session_id: str

    async def _aget(self, messages: Any = None, **_: Any) -> str:
        context = self.store.get_context(self.session_id, max_messages=1)
        return "\n".join(summary.text for summary in context.summaries)

    async def _aput(self, messages: Any) -> None:
        """Keep nothing: a fold of the store writes the summary."""


def memory_of(store: MemoryStore) -> Memory:
    block = FoldedSummary(name="summary", store=store, session_id="c")
    chat_store = EverturnDBChatStore(store)
    return Memory.from_defaults(session_id="c", chat_store=chat_store, memory_blocks=[block])


def turn(number: int) -> list[ChatMessage]:
    return [ChatMessage(f"q{number}"), ChatMessage(f"a{number}", role="assistant")]


def test_a_memory_goes_on_while_another_process_folds_its_session(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store:
        memory = memory_of(store)
        for number in range(1, 5):
            memory.put_messages(turn(number))
        with folding_elsewhere(url, "c") as fold:
            memory.put_messages(turn(5))
            assert store.fold("c", pytest.fail, max_messages=LEFT) is None  # one model is paid
            assert len(memory.get()) == 10
            fold.finish()
        told, *messages = memory.get()
        assert "[q1 a1 q2 a2]" in (told.content or "")
        assert [message.content for message in messages] == ["q3", "a3", "q4", "a4", "q5", "a5"]
        assert store.fold("c", summarize, max_messages=LEFT) is not None
        assert "[q1 a1 q2 a2] [q3 a3]" in (memory.get()[0].content or "")
        store.undo("c")
        store.undo("c")
        assert len(memory.get()) == 10


def test_another_process_sees_the_summary_that_this_one_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store, everturn.open(url) as other:
        for number in range(1, 5):
            memory_of(store).put_messages(turn(number))
        store.fold("c", summarize, max_messages=LEFT)
        assert "[q1 a1 q2 a2]" in (memory_of(other).get()[0].content or "")
