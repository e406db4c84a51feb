"""Heads that this process saw last, so that a lone writer plans its next change without a read."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from everturn.backends.dynamodb.stored_form import StoredHead

KNOWN_HEADS = 4096


class KnownHeads:
    """The heads that this process saw last. Safe between threads. A wrong one costs a request, and nothing else."""

    def __init__(self) -> None:
        self._heads: OrderedDict[str, StoredHead | None] = OrderedDict()
        self._lock = Lock()

    def forget_threads(self) -> None:
        self._lock = Lock()

    def get(self, pk: str) -> StoredHead | None:
        return self._heads.get(pk)

    def put(self, pk: str, stored: StoredHead) -> None:
        with self._lock:
            self._heads[pk] = stored
            self._heads.move_to_end(pk)
            while len(self._heads) > KNOWN_HEADS:
                self._heads.popitem(last=False)

    def drop(self, pk: str) -> None:
        with self._lock:
            self._heads.pop(pk, None)
