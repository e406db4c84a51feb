"""What a user's type checker sees. Checked by mypy (make lint), never run."""

from __future__ import annotations

from typing import assert_type

import everturn
from everturn import (
    ChatMessage,
    Compaction,
    Context,
    CopyReport,
    ErasureReceipt,
    Hit,
    Page,
    Receipt,
    SessionInfo,
    SessionState,
    Snapshot,
    Summary,
    ToolCall,
    Turn,
    VerifyReport,
)


def blocking() -> None:
    with everturn.open("sqlite://", ttl=60.0) as store:
        assert_type(store, everturn.MemoryStore)
        receipt = store.add_messages("a", [ChatMessage("user", "hi"), {"role": "user", "content": "hi"}], key="k")
        assert_type(receipt, Receipt)
        assert_type(store.append("a", [ToolCall("f", {}), Summary("s", [0.5], (1, 2))]), Receipt)
        assert_type(store.replace("a", [], after=1, expected_version=receipt), Receipt)
        assert_type(store.get_history("a", limit=3, heal=True, on_corrupt="skip"), list[ChatMessage])
        assert_type(store.load_memory("a"), list[dict[str, str]])
        assert_type(store.save_snapshot("a", "label"), Snapshot)
        assert_type(store.list_snapshots("a"), list[Snapshot])
        assert_type(store.search_summaries("a", [0.5], k=2), list[Hit])
        assert_type(store.state("a"), SessionState)
        assert_type(store.info("a"), SessionInfo)
        assert_type(store.sessions("a", order="recent"), Page)
        assert_type(store.trim("a", max_tokens=100, count_tokens=lambda message: len(message.text)), Receipt)
        assert_type(
            store.fold("a", lambda messages, earlier: f"{earlier} {len(messages)}", max_messages=9), Receipt | None
        )
        assert_type(store.get_context("a", max_tokens=100), Context)
        store.add_messages("a", [], expected_version=store.get_context("a"))
        assert_type(store.get_turn("a", "k"), Turn | None)
        assert_type(store.rollback("a", 3), Receipt)
        assert_type(store.erase("a"), ErasureReceipt)
        assert_type(store.compact(), Compaction)
        assert_type(store.verify(), VerifyReport)
        assert_type(everturn.copy(store, "sqlite://", ["a"], lambda progress: print(progress.why)), CopyReport)
        store.add_messages("a", "not a turn")  # type: ignore[arg-type]
        store.get_history("a", on_corrupt="ignore")  # type: ignore[arg-type]
        store.search_summaries("a", "no embedding")  # type: ignore[arg-type]
    everturn.open("sqlite://", timeout="5 s")  # type: ignore[arg-type]
    everturn.open("sqlite://", synchronous="ON")  # type: ignore[arg-type]
    everturn.open("postgresql://", sslmode="require", pool_size=4, warnings=False)


async def asynchronous() -> None:
    async with await everturn.open_async("sqlite://") as store:
        assert_type(store, everturn.AsyncMemoryStore)
        assert_type(await store.add_messages("a", [ChatMessage("user", "hi")]), Receipt)
        assert_type(await store.get_history("a"), list[ChatMessage])
        assert_type(await store.undo("a", expected_version=3), Receipt)
