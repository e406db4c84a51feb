"""Makes the golden file of the current schema version: `python -m tests.migrations.make`.

A golden file of a version that was released is kept for ever; only one that has not been may be made again. Clock and
random numbers are fixed, so that it differs from the last one only where the stored form does.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

import everturn
from everturn import ChatMessage, MemoryStore, Record, SessionState, Snapshot, Summary, ToolCall
from everturn.backends.sqlite import schema

HERE = Path(__file__).parent
BEGINNING = 1_700_000_000.0
A_CENTURY = 100 * 365 * 86_400.0
OTHER_NAMESPACE = "tenant/2"


def entry_as_json(entry: Any) -> dict[str, Any]:
    """An entry by its public fields; nothing here knows how it is stored."""
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "created_at"}
    return {"is": type(entry).__name__} | {name: value for name, value in fields.items() if value not in (None, {})}


def state_as_json(state: SessionState) -> dict[str, Any]:
    fields = {name: getattr(state, name) for name in ("version", "last_seq", "undo_steps", "ttl", "forked_from")}
    return fields | {"snapshots": state.snapshots, "entries": [entry_as_json(entry) for entry in state.entries]}


def plain(value: Any) -> Any:
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(value))


def open_golden(path: Path, namespace: str = "") -> MemoryStore:
    return everturn.open(f"sqlite:///{path}", namespace=namespace)


def fill(store: MemoryStore) -> None:
    """Several sessions with everything in them."""
    _long_talk(store)
    _tools(store)
    _memory(store)
    for name in ("ünïcödé / 会話 %_", "a", "A"):
        store.add_messages(name, [ChatMessage("user", f"I am {name}, \u0000 and \U0001f600")])
    store.fork("talk", "talk/fork", at=store.list_snapshots("talk")[0])
    store.add_messages("talk/fork", [ChatMessage("user", "elsewhere")], key="k")
    store.save_snapshot("empty", "nothing yet")
    _effects(store)
    store.set_facts("facts", {"user": "42", "title": 'ünïcödé "会話"', "plan": "free"}, key="named")
    store.set_facts("facts", {"plan": None})


def _long_talk(store: MemoryStore) -> None:
    """Branches, snapshots, undo steps of every kind, keys."""
    name = "talk"
    store.add_messages(name, [ChatMessage("system", "be brief"), ChatMessage("user", "one")], key="k1")
    first = store.save_snapshot(name, "first")
    store.save_context(name, "two", "zwei", key="k2")
    second = store.save_snapshot(name)
    store.rollback_to_snapshot(name, first)
    store.add_messages(name, [{"role": "user", "content": "another way", "mood": ["un", {"known": 1.5}]}], key="k2b")
    store.replace(name, [ChatMessage("assistant", "edited")], after=2)
    for number in range(3):
        store.save_context(name, f"q{number}", f"a{number}")
    store.trim(name, max_messages=4)
    third = store.save_snapshot(name, "drei")
    store.rollback_to_snapshot(name, second)
    store.delete_snapshot(name, store.save_snapshot(name, "gone"))
    store.rollback_to_snapshot(name, third, key="back")
    store.add_messages(name, [ChatMessage("user", "and on", name="Ann", id="m-1", metadata={"n": 2**53 + 1})])


def _tools(store: MemoryStore) -> None:
    name = "tools"
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    store.add_messages(name, [ChatMessage("user", "what is it?"), ChatMessage("assistant", None, tool_calls=calls)])
    store.add_messages(name, [ChatMessage("tool", "42", tool_call_id="c1"), ChatMessage("assistant", "42")])
    store.add_tool_call(name, ToolCall("f", {"x": [1, None]}, call_id="c1", result={"is": 42}, duration=0.25))
    store.add_tool_call(name, ToolCall("g", [], error="boom", extra={"later": True}))
    store.append(name, [Record("langgraph.checkpoint", {"v": 1, "deep": [[]]}), Record("note", None)])
    store.clear(name)
    store.add_messages(
        name,
        [
            ChatMessage("assistant", [{"type": "tool_use", "id": "c2", "name": "f", "input": {}}]),
            ChatMessage("user", [{"type": "tool_result", "tool_use_id": "c2", "content": "7"}]),
        ],
    )


def _memory(store: MemoryStore) -> None:
    """Summaries, some of them below a trim; a TTL that ends long after we do."""
    name = "memory"
    for number in range(4):
        store.save_context(name, f"question {number}", f"answer {number}")
    store.add_summary(name, Summary("the beginning", (1.0, 0.0, -0.5), (1, 4)))
    store.add_summary(name, Summary("the middle", (0.0, 1.0, 0.25), (5, 8), extra={"model": "x"}))
    store.save_context(name, "question 4", "answer 4")
    store.trim(name, max_messages=2)
    store.set_ttl(name, A_CENTURY)


def _effects(store: MemoryStore) -> None:
    """An effect of every status, some begun under a lease; and a lease of a session that is not there."""
    name = "effects"
    with store.lease(name) as lease:
        store.begin_effect(name, "refund 1234", {"amount": 20, "text": "\u0000"}, lease=lease)
        store.finish_effect(name, "refund 1234", {"receipt": "r-1"}, lease=lease)
        store.begin_effect(name, "in doubt", lease=lease)
    store.begin_effect(name, "mail")
    store.fail_effect(name, "mail", "no such address", note="Ann looked into it")
    store.begin_effect(name, "mail", ["again"])
    store.finish_effect(name, "mail")
    store.lease("not there", seconds=60)


def expectations(path: Path) -> dict[str, Any]:
    """Read what the file shows now, at every snapshot and version, and after undo. Changes the file: give it a copy."""
    sessions: dict[str, Any] = {}
    with open_golden(path) as store:
        for session in store.sessions().sessions:
            name = session.session_id
            sessions[name] = {
                "now": state_as_json(store.state(name)),
                "life": session.life,
                "snapshots": [_snapshot_as_json(store, name, snapshot) for snapshot in store.list_snapshots(name)],
                "versions": [
                    [entry.seq for entry in store.state(name, at=version).entries]
                    for version in range(session.version + 1)
                ],
                "changes": [(change.kind, change.seqs) for change in store.changes(name)],
            }
            if effects := store.get_effects(name):
                sessions[name]["effects"] = [msgspec.to_builtins(effect) for effect in effects]
            if session.facts:
                sessions[name]["facts"] = session.facts
                found = store.sessions(where=session.facts).sessions
                assert name in {one.session_id for one in found}
        for name, facts in sessions.items():
            facts["undone"] = []
            while store.info(name).undo_steps:
                store.undo(name, expected_version=store.state(name))
                facts["undone"].append(state_as_json(store.state(name)))
    with open_golden(path, OTHER_NAMESPACE) as store:
        other = {"a": state_as_json(store.state("a"))}
    return plain({"schema": schema.CURRENT, "sessions": sessions, "other namespace": other})


def _snapshot_as_json(store: MemoryStore, name: str, snapshot: Snapshot) -> dict[str, Any]:
    shown = [entry_as_json(entry) for entry in store.state(name, at=snapshot).entries]
    return {"id": snapshot.id, "label": snapshot.label, "messages": snapshot.messages, "entries": shown}


def make(path: Path) -> None:
    """Write the golden file, with a clock and random numbers that are the same every time."""
    clock, numbers = count(), count()

    def now() -> float:
        return BEGINNING + next(clock)

    def urandom(size: int) -> bytes:
        return hashlib.blake2b(str(next(numbers)).encode(), digest_size=size).digest()

    for leftover in path.parent.glob(f"{path.name}*"):
        leftover.unlink()
    with tempfile.TemporaryDirectory() as folder:
        open_golden(Path(folder) / "first.db").close()  # imports on first use look at the clock
    with (
        patch("everturn.store.changes.urandom", urandom),
        patch("everturn.store.change_sender.urandom", urandom),
        patch("everturn.store.lease_holder.urandom", urandom),
        patch("everturn.store.worker_name.urandom", urandom),
        patch("everturn.store.worker_name.getpid", lambda: 4711),
        patch("everturn.store.worker_name.uname", lambda: SimpleNamespace(nodename="web-7f9c")),
        patch.object(schema.time, "time", now),
    ):
        for namespace in ("", OTHER_NAMESPACE):
            with open_golden(path, namespace) as store:
                store._operations.backend._clock = now
                if namespace:
                    store.add_messages("a", [ChatMessage("user", "another tenant's")])
                else:
                    fill(store)
    assert not path.with_name(f"{path.name}-wal").exists(), "the last one to close the file empties the WAL"


def main() -> None:
    golden = HERE / f"v{schema.CURRENT}.db"
    make(golden)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        copy.write_bytes(golden.read_bytes())
        expected = expectations(copy)
    text = json.dumps(expected, indent=1, ensure_ascii=False, sort_keys=True)
    golden.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    print(f"{golden.name}: {golden.stat().st_size:,} bytes, {len(expected['sessions'])} sessions")


if __name__ == "__main__":
    main()
