"""The same walk at random over SQLite and PostgreSQL, side by side: they agree after every step."""

from __future__ import annotations

import random
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, MemoryStoreError, Record, Summary, ToolCall

STEPS = 120
SESSIONS = ("a", "b", "c")


class Walk:
    """Two stores, and the snapshots they gave for the same steps."""

    def __init__(self, seed: int, stores: tuple[Any, Any]) -> None:
        self.choose = random.Random(seed)
        self.stores = stores
        self.snapshots: dict[str, list[tuple[Any, Any]]] = {name: [] for name in SESSIONS}
        self.forks = 0

    def both(self, call: Any) -> list[Any]:
        """Make a call on both stores; they say the same, or refuse in the same way."""
        said = []
        for index, store in enumerate(self.stores):
            try:
                said.append(call(store, index))
            except MemoryStoreError as exc:
                said.append(exc)
        first, second = said
        assert type(first) is type(second), said
        if isinstance(first, everturn.Receipt):
            assert (first.version, first.seqs, first.replayed) == (second.version, second.seqs, second.replayed)
        return said

    def entries(self) -> list[Any]:
        made: list[Any] = []
        for _ in range(self.choose.randrange(1, 4)):
            text = f"word{self.choose.randrange(100)}"
            made.append(
                self.choose.choice(
                    [
                        ChatMessage(self.choose.choice(["user", "assistant", "system"]), text),
                        ChatMessage("assistant", text),
                        ToolCall(text, {"x": text}),
                        Summary(text, [1.0, 2.0], (1, 2)),
                        Record("mine", [text]),
                    ]
                )
            )
        return made

    def step(self) -> None:
        choose, name = self.choose, self.choose.choice(SESSIONS)
        kind = choose.choice(
            [
                "append",
                "append",
                "append",
                "append",
                "keyed",
                "expected",
                "replace",
                "trim",
                "clear",
                "undo",
                "force",
                "snapshot",
                "rollback",
                "rollback",
                "delete",
                "ttl",
                "fork",
                "compact",
            ]
        )
        entries, after, most = self.entries(), choose.randrange(0, 12), choose.randrange(0, 8)
        key, version = f"k{choose.randrange(6)}", choose.randrange(0, 30)
        pair = choose.choice(self.snapshots[name]) if self.snapshots[name] else ("none", "none")
        if kind == "append":
            self.both(lambda store, _: store.append(name, entries))
        elif kind == "keyed":
            self.both(lambda store, _: store.append(name, [ChatMessage("user", key)], key=key))
        elif kind == "expected":
            self.both(lambda store, _: store.append(name, entries, expected_version=version))
        elif kind == "replace":
            self.both(lambda store, _: store.replace(name, entries[: after % 3], after=after))
        elif kind == "trim":
            self.both(lambda store, _: store.trim(name, max_messages=most, keep_system=most % 2 == 0))
        elif kind == "clear":
            self.both(lambda store, _: store.clear(name))
        elif kind == "undo":
            self.both(lambda store, _: store.undo(name))
        elif kind == "force":
            self.both(lambda store, _: store.undo(name, expected_version=store.state(name).version))
        elif kind == "snapshot":
            first, second = self.both(lambda store, _: store.save_snapshot(name, key))
            assert (first.version, first.messages, first.label) == (second.version, second.messages, second.label)
            self.snapshots[name].append((first, second))
        elif kind == "rollback":
            self.both(lambda store, index: store.rollback_to_snapshot(name, pair[index]))
        elif kind == "delete":
            self.both(lambda store, index: store.delete_snapshot(name, pair[index]))
        elif kind == "ttl":
            self.both(lambda store, _: store.set_ttl(name, 1000.5 + most))
        elif kind == "fork":
            self.forks += 1
            at = choose.choice([None, version])
            self.both(lambda store, _: store.fork(name, f"fork{self.forks}", at=at))
            self.compare(f"fork{self.forks}")
        else:
            first, second = self.both(lambda store, _: store.compact(name))
            assert first == second
        self.compare(name)

    def compare(self, name: str) -> None:
        choose = self.choose
        first, second = (store.state(name) for store in self.stores)
        assert first == second
        changes = [
            [(change.version, change.kind, change.seqs, change.label) for change in store.changes(name)]
            for store in self.stores
        ]
        assert changes[0] == changes[1]
        version, limit, before = choose.randrange(0, 40), choose.randrange(0, 6), choose.randrange(0, 40)
        for read in (
            lambda store, _: store.state(name, at=version),
            lambda store, _: store.get_history(name, limit=limit),
            lambda store, _: [message.seq for message in store.get_history(name, limit=limit, before=before)],
            lambda store, _: store.get_history(name, after=before, at=version),
            lambda store, _: store.get_summaries(name),
            lambda store, _: store.get_tool_calls(name),
            lambda store, _: [match.entry.seq for match in store.find("word1", session_id=name)],
        ):
            one, other = self.both(read)
            assert isinstance(one, MemoryStoreError) or one == other


@pytest.mark.parametrize("seed", range(100, 160))
def test_sqlite_and_postgres_agree_after_every_step(url: str, seed: int) -> None:
    with everturn.open("sqlite://") as sqlite, everturn.open(url, timeout=30) as postgres:
        walk = Walk(seed, (sqlite, postgres))
        for _ in range(STEPS):
            walk.step()
        names = [[found.session_id for found in store.sessions(limit=1000).sessions] for store in walk.stores]
        assert names[0] == names[1]
        infos = [[store.info(name) for name in names[0]] for store in walk.stores]
        for one, other in zip(*infos, strict=True):
            assert (one.messages, one.last_seq, one.bytes, one.snapshots, one.undo_steps, one.ttl) == (
                *(other.messages, other.last_seq, other.bytes, other.snapshots, other.undo_steps, other.ttl),
            )
        assert sqlite.verify().ok
        assert postgres.verify().ok
