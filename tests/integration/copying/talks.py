"""Sessions with everything in them that a copy has to bring, and what to compare in two stores."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import ChatMessage, MemoryStoreError, Record, Summary, ToolCall

HOSTILE = 'a\0b \N{GRINNING FACE} \u2028 "quoted" \\ {} \' % \r\n é'


def say(store: Any, session_id: str, *texts: str, **options: Any) -> Any:
    return store.add_messages(session_id, [ChatMessage("user", text) for text in texts], **options)


def fill(store: Any) -> list[str]:
    """Begin sessions of every shape. Returns their ids."""
    _rich(store, "rich")
    store.fork("rich", "forked", key="fork it")
    say(store, "forked", "goes on")
    say(store, "lasting", "kept for an hour")
    store.set_ttl("lasting", 3600.5)
    store.save_snapshot("empty", "nothing was said")
    say(store, "cleared", "1", "2")
    store.clear("cleared")
    _reclaimed(store, "reclaimed")
    say(store, HOSTILE.replace("\0", ""), HOSTILE, key=HOSTILE.replace("\0", ""))
    return ["rich", "forked", "lasting", "empty", "cleared", "reclaimed", HOSTILE.replace("\0", "")]


def _rich(store: Any, name: str) -> None:
    """Branches, snapshots, an undo stack, a floor with kept messages, tool calls, summaries, records, keys."""
    store.add_messages(name, [ChatMessage("system", "be brief"), ChatMessage("user", HOSTILE)], key="begin")
    first = store.save_snapshot(name, "first")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    store.add_messages(name, [ChatMessage("assistant", None, tool_calls=[call])])
    store.add_messages(name, [ChatMessage("tool", "42", tool_call_id="c1", metadata={"at": [1, {"deep": None}]})])
    store.add_tool_call(name, ToolCall("f", {"x": 1.5}, call_id="c1", result=[42], duration=0.25))
    store.add_summary(name, Summary("so far", [0.1, -2.0, 3.5], (1, 4), extra={"model": "m"}), key="sum up")
    store.append(name, [Record("mine", {"body": [HOSTILE]}), {"role": "user", "content": "x", "unknown": {"kept": 1}}])
    whole = store.save_snapshot(name, HOSTILE.replace("\0", ""))
    store.rollback_to_snapshot(name, first)
    say(store, name, "another", "branch", key="branch")
    store.save_snapshot(name)
    doomed = store.save_snapshot(name, "doomed")
    store.delete_snapshot(name, doomed, key="delete it")
    store.undo(name, expected_version=store.info(name).version)  # the rollback, and the branch with it
    say(store, name, "on the first branch again")
    store.trim(name, max_messages=4)
    say(store, name, "after the trim", key="after")
    store.replace(name, [ChatMessage("assistant", "a better answer")], after=store.get_history(name)[-1].seq)
    store.rollback_to_snapshot(name, whole)
    store.trim(name, max_messages=3)


def _reclaimed(store: Any, name: str) -> None:
    """Holes in the log, versions that cannot be read any more, and a branch that nothing leads to."""
    say(store, name, "kept")
    snapshot = store.save_snapshot(name, "kept")
    for number in range(4):
        say(store, name, f"dropped {number}", key=f"k{number}")
    store.rollback_to_snapshot(name, snapshot)
    for number in range(10):  # so that no undo step reaches the branch
        store.clear(name)
        say(store, name, f"kept {number}")
    assert store.compact(name).entries == 4


def readable(store: Any, name: str) -> dict[int, Any]:
    """What the session shows at each version it ever had: its entries, or the error."""
    return {
        version: seen(lambda at=version: store.state(name, at=at).entries) for version in range(versions(store, name))
    }


def versions(store: Any, name: str) -> int:
    return int(store.info(name).version) + 1


def seen(read: Any) -> Any:
    """What a read gives, or the kind of error it raises."""
    try:
        return read()
    except MemoryStoreError as exc:
        return type(exc)


def facts(store: Any, name: str) -> dict[str, Any]:
    """Everything of a session that can be had through the store; its times apart."""
    info = store.info(name)
    state = store.state(name)
    snapshots = store.list_snapshots(name)
    return {
        "state": state,
        "life": state.life,
        "info": (info.messages, info.last_seq, info.bytes, info.snapshots, info.undo_steps, info.ttl, info.forked_from),
        "versions": readable(store, name),
        "changes": [
            (change.version, change.kind, change.seqs, change.snapshot, change.label)
            for change in store.changes(name, 10_000)
        ],
        "snapshots": [(each.id, each.life, each.label, each.version, each.messages) for each in snapshots],
        "at snapshots": [store.state(name, at=each).entries for each in snapshots],
        "tool calls": store.get_tool_calls(name),
        "summaries": store.get_summaries(name),
    }


def times(store: Any, name: str) -> list[float]:
    info = store.info(name)
    parts = (store.state(name).entries, store.changes(name, 10_000), store.list_snapshots(name))
    return [info.created_at, info.changed_at, *(each.created_at for part in parts for each in part)]


def assert_alike(one: Any, other: Any, *names: str) -> None:
    """Two stores tell the same of these sessions; a backend may keep times to the microsecond."""
    for name in names:
        first, second = facts(one, name), facts(other, name)
        for what, value in first.items():
            assert second[what] == value, (name, what)
        assert times(other, name) == pytest.approx(times(one, name), rel=0, abs=1e-5)


def go_on(store: Any, name: str) -> list[Any]:
    """Do with a session all that may come next. Returns what it showed on the way."""
    shown: list[Any] = []

    def do(step: Any) -> None:
        shown.append((seen(step), store.state(name)))

    for snapshot in store.list_snapshots(name):
        do(lambda snapshot=snapshot: store.rollback_to_snapshot(name, snapshot.id).version)
        do(lambda: say(store, name, "one more").seqs)
    for _ in range(12):
        do(lambda: store.undo(name, expected_version=store.info(name).version).version)
    do(lambda: store.trim(name, max_messages=2).version)
    do(lambda: store.save_snapshot(name, "the last").version)
    do(lambda: store.append(name, [Summary("more", [1.0, 1.0, 1.0], (1, 2)), ToolCall("g", None)]).seqs)
    do(lambda: store.compact(name))
    assert store.verify(name).ok
    return shown
