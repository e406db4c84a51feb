"""The example backend (examples/backend) as a place, installed as a third party's package."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from typing import Any

import msgspec

from tests.store.places.place import Place, Stored


class ToyEditor:
    """It is all in this process."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def _life(self, session_id: str) -> Any:
        return self._memory.lives["", session_id]

    def _log(self, session_id: str) -> Any:
        return self._memory.logs[self._life(session_id).life]

    def entry(self, session_id: str, seq: int) -> Stored:
        entry = self._log(session_id)[seq]
        return Stored(entry.kind, entry.body, entry.checksum, entry.turn, entry.created_at)

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        log = self._log(session_id)
        log[seq] = replace(log[seq], kind=entry.kind, body=entry.body, checksum=entry.checksum)

    def drop_entry(self, session_id: str, seq: int) -> None:
        del self._log(session_id)[seq]

    def drop_log(self, session_id: str) -> None:
        self._log(session_id).clear()

    def drop_session(self, session_id: str) -> None:
        del self._memory.lives["", session_id]

    def drop_change(self, session_id: str, version: int) -> None:
        life = self._life(session_id)
        life.changes = [change for change in life.changes if change.version != version]

    def set_state(self, session_id: str, **fields: int) -> None:
        life = self._life(session_id)
        life.last_seq = fields.pop("last_seq", life.last_seq)
        life.state = msgspec.structs.replace(life.state, **fields)

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        life = self._life(session_id)
        life.jumps = sorted({**dict(life.jumps), seq: after}.items(), reverse=True)

    def move_snapshots(self, session_id: str, head: int) -> None:
        snapshots = self._life(session_id).snapshots
        for name, (snapshot, state) in snapshots.items():
            snapshots[name] = snapshot, msgspec.structs.replace(state, head=head)

    def move_undo_steps(self, session_id: str, head: int) -> None:
        life = self._life(session_id)
        moved = msgspec.structs.replace
        life.undo = [moved(step, before=moved(step.before, head=head)) for step in life.undo]

    def entries(self) -> int:
        return sum(map(len, self._memory.logs.values()))

    def remnants(self, *markers: str) -> dict[str, int]:
        stored = repr([self._memory.lives, self._memory.logs])
        return {marker: stored.count(marker) for marker in markers if marker in stored}

    def size(self) -> int:
        return len(repr([self._memory.lives, self._memory.logs]))

    def reader(self) -> AbstractContextManager[Callable[[str], bool]]:
        raise NotImplementedError("there are no read transactions")


class Toy(Place):
    shared = keeps_the_expired = has_readers = erases_by_age = False
    examples = 15

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._package = import_module(self.servers.toy)
        self._package._memories.clear()

    @property
    def url(self) -> str:
        return f"toy://{self.folder.name}"

    @property
    def editor(self) -> ToyEditor:
        return ToyEditor(self._package._memories[self.url])
