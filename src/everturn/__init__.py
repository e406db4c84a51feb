"""everturn: agent memory that cannot lose a turn.

import everturn

store = everturn.open("sqlite:///memory.db")
store.add_messages("customer-42", [everturn.ChatMessage("user", "My order is 1234.")])

The folders, from the top of the layers to the bottom (docs/architecture.md has the picture):

cli/ web/          the command and the inspector; ui/ has the parts that both use
adapters/          LangGraph, OpenAI Agents and other frameworks
testing/           the contract kit, golden files, servers for tests
bench/             `everturn bench`
transfer/          copies, exports and imports
store/             MemoryStore and AsyncMemoryStore
backends/          SQLite, Redis, PostgreSQL, DynamoDB
core/              pure rules
model/             the values that users hold: ChatMessage, Receipt, Snapshot, ...

The modules:

connect.py         open, open_async, from_client
errors.py          every error
backend.py         the protocol of a backend, with its guarantees
events.py          every event that is logged; telemetry.py metrics and spans
private_files.py   files that only their owner can read
_pydantic.py       ChatMessage inside Pydantic models
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"  # the one place: pyproject.toml, the command and the docs read it

# Type checkers know the name; importing it from typing would be most of what this costs. jedi, which editors and
# IPython use, takes it for what it is, and does not read what stands under `if False`: so it is not written as that.
TYPE_CHECKING = bool(0)
if TYPE_CHECKING:
    from everturn.connect import from_client, open, open_async  # noqa: A004 - everturn.open is the public name
    from everturn.errors import (
        CorruptEntry,
        EffectInDoubt,
        InvalidInput,
        KeyReused,
        LeaseHeld,
        LeaseLost,
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
        Context,
        CopyProgress,
        CopyReport,
        Diff,
        Effect,
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
        Turn,
        VerifyReport,
    )
    from everturn.model.health import Health
    from everturn.model.held_lease import HeldLease
    from everturn.store.aio import AsyncMemoryStore
    from everturn.store.leases import AsyncLease, Lease
    from everturn.store.sync import MemoryStore
    from everturn.transfer.copy_stores import copy, copy_async

__all__ = [
    "AsyncLease",
    "AsyncMemoryStore",
    "Change",
    "ChatMessage",
    "Compaction",
    "Context",
    "CopyProgress",
    "CopyReport",
    "CorruptEntry",
    "Diff",
    "Effect",
    "EffectInDoubt",
    "ErasureReceipt",
    "Health",
    "HeldLease",
    "Hit",
    "InvalidInput",
    "KeyReused",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
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
    "Turn",
    "Unsupported",
    "VerifyReport",
    "VersionConflict",
    "copy",
    "copy_async",
    "from_client",
    "open",
    "open_async",
]

# Where the names live. They are imported when they are first asked for, so that `import everturn` costs next to
# nothing, and a program that only handles messages loads no store.
_HOMES = {
    "everturn.store.aio": ("AsyncMemoryStore",),
    "everturn.transfer.copy_stores": ("copy", "copy_async"),
    "everturn.model.health": ("Health",),
    "everturn.model.held_lease": ("HeldLease",),
    "everturn.model": (
        "Change",
        "ChatMessage",
        "Compaction",
        "Context",
        "CopyProgress",
        "CopyReport",
        "Diff",
        "Effect",
        "ErasureReceipt",
        "Hit",
        "Match",
        "Page",
        "Problem",
        "Receipt",
        "Record",
        "SessionInfo",
        "SessionState",
        "Snapshot",
        "Summary",
        "ToolCall",
        "Turn",
        "VerifyReport",
    ),
    "everturn.errors": (
        "CorruptEntry",
        "EffectInDoubt",
        "InvalidInput",
        "KeyReused",
        "LeaseHeld",
        "LeaseLost",
        "MemoryStoreBackendError",
        "MemoryStoreError",
        "SchemaTooNew",
        "SessionNotFound",
        "SnapshotNotFound",
        "Unsupported",
        "VersionConflict",
    ),
    "everturn.store.leases": ("AsyncLease", "Lease"),
    "everturn.store.sync": ("MemoryStore",),
    "everturn.connect": ("from_client", "open", "open_async"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'everturn' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
