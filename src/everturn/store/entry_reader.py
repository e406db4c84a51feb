"""Collects the rows of entries of every kind that a backend hands over. Messages: core/message_batches.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everturn.core import codec
from everturn.model import ChatMessage, Entry


class EntryReader:
    """Takes rows of all kinds, or of the one `kind` it is told, and decodes them one by one."""

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
        """How many of the entries are messages."""
        return sum(isinstance(entry, ChatMessage) for entry in self.entries)
