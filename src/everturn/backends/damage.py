"""The error for what somebody changed by hand in a table of ours. Knows no engine."""

from __future__ import annotations

import msgspec

from everturn.errors import CorruptEntry

SURPRISES = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, msgspec.MsgspecError)
"""The errors of code that meets a value it never wrote. (MemoryStoreErrors among them are no surprise.)"""


def unreadable_session(session_id: str, exc: Exception) -> CorruptEntry:
    """For a session whose own row cannot be read: then it is not known what it shows."""
    return CorruptEntry(
        f"session {session_id!r}: its row in the table sessions cannot be read ({exc}). Was it changed by hand? "
        "Nothing was changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )


def damaged_jump(session_id: str, seq: int, after: int) -> CorruptEntry:
    """For a jump that does not lead back: then it is not known which entries came before."""
    return CorruptEntry(
        f"session {session_id!r}: entry {seq} is said to follow entry {after}, which is not before it; run verify",
        session_id=session_id,
        seq=seq,
    )


def damaged_session(session_id: str, what: str) -> CorruptEntry:
    """For a session of which rows are lost, or are not as they were written."""
    return CorruptEntry(
        f"session {session_id!r}: {what}. Was it changed by hand? `verify` tells what else is wrong. Nothing was "
        "changed now; restore it, or erase the session",
        session_id=session_id,
        seq=0,
    )


def unreadable_store(name: str, exc: Exception) -> CorruptEntry:
    """For what is read of many sessions at once."""
    return CorruptEntry(
        f"{name}: its sessions cannot be listed ({exc}). Nothing was changed; run verify to see what is damaged",
        session_id="",
        seq=0,
    )
