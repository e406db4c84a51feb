"""Records that refer to messages by seq (LangGraph's, Pydantic AI's), and so must keep their place. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from everturn import Record, Unsupported
from everturn.model import Entry

REFERRING = ("lg.", "pydantic_ai.")  # prefixes of their kinds


def refuse_referenced(session_id: str, moved: Iterable[Entry], what: str) -> None:
    """Check that no record in `moved` refers to messages by seq. Raises Unsupported: its references would dangle."""
    kind = next((one.kind for one in moved if isinstance(one, Record) and one.kind.startswith(REFERRING)), None)
    if kind is not None:
        raise Unsupported(
            f"{what} of session {session_id!r} has a record of another framework behind it ({kind}), "
            "which names what stands before it: take it back there, or with rollback_to_snapshot or undo"
        )
