"""Records of a framework that name messages by their seqs, and so must not be moved. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from everturn import Record, Unsupported
from everturn.model import Entry

NAMING = ("lg.", "pydantic_ai.")  # how their kinds begin


def refuse_referenced(session_id: str, moved: Iterable[Entry], what: str) -> None:
    """Raises Unsupported if taking `what` out would move a record that could not be read any more behind it."""
    kind = next((one.kind for one in moved if isinstance(one, Record) and one.kind.startswith(NAMING)), None)
    if kind is not None:
        raise Unsupported(
            f"{what} of session {session_id!r} has a record of another framework behind it ({kind}), "
            "which names what stands before it: take it back there, or with rollback_to_snapshot or undo"
        )
