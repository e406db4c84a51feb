"""Decodes rows of entries of every kind, as a backend hands them over. (Rows of messages: core/message_batches.py.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.core import codec
from everturn.model import ChatMessage, Entry


class EntryReader:
    """Decodes rows of all kinds, or of one `kind`, one by one."""

    def __init__(self, session_id: str, kind: str | None = None) -> None:
        self._session_id = session_id
        self._kind = kind
        self.entries: list[Entry] = []

    def take(self, rows: Sequence[Any]) -> None:
        """Decode a batch. Raises CorruptEntry at the first bad row."""
        for row in rows:
            self.entries.append(codec.decode(self._session_id, self._kind or row[4], *row[:4]))

    @property
    def messages(self) -> int:
        """Number of messages among the entries."""
        return sum(isinstance(entry, ChatMessage) for entry in self.entries)
