"""DynamoDB as a place: one stand-in for all tests, a table for each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import uuid4

import msgspec

from everturn.backends.dynamodb.create_table import definition
from everturn.backends.dynamodb.entry_blocks import Block, block_item, block_of
from everturn.backends.dynamodb.stored_form import Head, Item, StoredHead, changes_of, head_item, head_of, sealed
from everturn.transfer.session_lines import SnapshotPart
from tests.store.places.place import Place, Stored

_replace = msgspec.structs.replace


class DynamoDBEditor:
    """See docs/storage-dynamodb.md."""

    def __init__(self, driver: Any, table: str) -> None:
        self._driver = driver
        self._table = table

    def _items(self) -> list[Item]:
        """All items, in the order of their keys."""
        found = self._driver.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        items = [item for page in found for item in page["Items"]]
        return sorted(items, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def _of(self, session_id: str, letter: str) -> list[Item]:
        pk = f"session//{session_id}"
        return [item for item in self._items() if item["pk"]["S"] == pk and item["sk"]["S"].startswith(letter)]

    def _put(self, item: Item) -> None:
        """With a seal of its own, as a fault of ours would: tests/integration/dynamodb/test_damage.py breaks seals."""
        self._driver.put_item(TableName=self._table, Item=sealed(item))

    def _delete(self, item: Item) -> None:
        self._driver.delete_item(TableName=self._table, Key={"pk": item["pk"], "sk": item["sk"]})

    def _head(self, session_id: str) -> Head:
        stored = head_of(self._of(session_id, "H")[0])
        assert stored is not None
        return stored.head

    def _set_head(self, session_id: str, **fields: Any) -> None:
        """Under a new tag: whoever remembers the head that was there learns of it."""
        head = _replace(self._head(session_id), **fields)
        self._put(head_item(f"session//{session_id}", StoredHead(uuid4().bytes[:12], head)))

    def _block(self, session_id: str, seq: int) -> tuple[Block, Item]:
        for item in self._of(session_id, "E"):
            block = block_of(item)
            if block.facts.first <= seq <= block.facts.last:
                return block, item
        raise LookupError(seq)

    def entry(self, session_id: str, seq: int) -> Stored:
        block, _ = self._block(session_id, seq)
        ((_, created_at, checksum, body, kind, turn),) = block.rows(seq, seq)
        return Stored(kind, body, checksum, turn, created_at)

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        """A text is UTF-8, and a block has a line for each body."""
        block, item = self._block(session_id, seq)
        facts, bodies, at = block.facts, list(block.bodies or ()), seq - block.facts.first
        bodies[at] = entry.body.decode(errors="backslashreplace").replace("\n", "\\n").encode()
        kinds = [facts.kind(index) for index in range(facts.count)]
        kinds[at] = entry.kind
        checksums = list(facts.checksums)
        checksums[at] = entry.checksum
        self._put(block_item(item["pk"]["S"], block.sk, _replace(facts, kinds=kinds, checksums=checksums), bodies))

    def drop_entry(self, session_id: str, seq: int) -> None:
        block, item = self._block(session_id, seq)
        checksums = list(block.facts.checksums)
        checksums[seq - block.facts.first] = None
        self._put(block_item(item["pk"]["S"], block.sk, _replace(block.facts, checksums=checksums), block.bodies))

    def drop_log(self, session_id: str) -> None:
        for item in self._of(session_id, "E"):
            self._delete(item)

    def drop_session(self, session_id: str) -> None:
        for item in self._of(session_id, "H"):
            self._delete(item)

    def drop_change(self, session_id: str, version: int) -> None:
        for item in self._of(session_id, "C"):
            if [part.version for part in changes_of(item)] == [version]:
                self._delete(item)

    def set_state(self, session_id: str, **fields: int) -> None:
        head = self._head(session_id)
        last_seq = fields.pop("last_seq", head.last_seq)
        self._set_head(session_id, last_seq=last_seq, state=_replace(head.state, **fields))

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        jumps = {**dict(self._head(session_id).jumps), seq: after}
        self._set_head(session_id, jumps=tuple(sorted(jumps.items(), reverse=True)))

    def move_snapshots(self, session_id: str, head: int) -> None:
        for item in self._of(session_id, "P"):
            part = msgspec.json.decode(item["snapshot"]["S"], type=SnapshotPart)
            moved = _replace(part, state=_replace(part.state, head=head))
            self._put({**item, "snapshot": {"S": msgspec.json.encode(moved).decode()}})

    def move_undo_steps(self, session_id: str, head: int) -> None:
        steps = self._head(session_id).undo
        self._set_head(
            session_id, undo=tuple(_replace(step, before=_replace(step.before, head=head)) for step in steps)
        )

    def entries(self) -> int:
        blocks = [block_of(item) for item in self._items() if "entries" in item]
        return sum(check is not None for block in blocks for check in block.facts.checksums)

    def remnants(self, *markers: str) -> dict[str, int]:
        stored = repr(self._items())
        return {marker: stored.count(marker) for marker in markers if marker in stored}

    def size(self) -> int:
        return len(repr(self._items()))

    def reader(self) -> AbstractContextManager[Callable[[str], bool]]:
        raise NotImplementedError("there are no read transactions")


class DynamoDB(Place):
    has_readers = writers_reap = False
    keeps_names = True
    examples = 10

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._table = f"everturn-{uuid4().hex}"
        self.servers.beside_dynamodb.create_table(**definition(self._table))

    @property
    def url(self) -> str:
        """Region and endpoint are in the environment: some tests add options to the URL."""
        return f"dynamodb://{self._table}"

    @property
    def editor(self) -> DynamoDBEditor:
        return DynamoDBEditor(self.servers.beside_dynamodb, self._table)

    def close(self) -> None:
        super().close()
        self.servers.beside_dynamodb.delete_table(TableName=self._table)


class AsyncDynamoDB(DynamoDB):
    blocking = False
