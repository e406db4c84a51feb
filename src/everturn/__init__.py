"""everturn: agent memory that cannot lose a turn.

import everturn

store = everturn.open("sqlite:///memory.db")
store.add_messages("customer-42", [everturn.ChatMessage("user", "My order is 1234.")])
"""

from __future__ import annotations

from everturn.aio import AsyncMemoryStore
from everturn.errors import (
    CorruptEntry,
    InvalidInput,
    MemoryStoreBackendError,
    MemoryStoreError,
    SchemaTooNew,
    SessionNotFound,
    SnapshotNotFound,
    Unsupported,
    VersionConflict,
)
from everturn.model import (
    Change,
    ChatMessage,
    Compaction,
    Diff,
    ErasureReceipt,
    Hit,
    Match,
    Page,
    Problem,
    Receipt,
    Record,
    SessionInfo,
    SessionState,
    Snapshot,
    Summary,
    ToolCall,
    VerifyReport,
)
from everturn.opening import open, open_async  # noqa: A004 - everturn.open is the public name
from everturn.store import MemoryStore

__all__ = [
    "AsyncMemoryStore",
    "Change",
    "ChatMessage",
    "Compaction",
    "CorruptEntry",
    "Diff",
    "ErasureReceipt",
    "Hit",
    "InvalidInput",
    "Match",
    "MemoryStore",
    "MemoryStoreBackendError",
    "MemoryStoreError",
    "Page",
    "Problem",
    "Receipt",
    "Record",
    "SchemaTooNew",
    "SessionInfo",
    "SessionNotFound",
    "SessionState",
    "Snapshot",
    "SnapshotNotFound",
    "Summary",
    "ToolCall",
    "Unsupported",
    "VerifyReport",
    "VersionConflict",
    "open",
    "open_async",
]
