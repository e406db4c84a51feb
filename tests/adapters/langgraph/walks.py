"""A walk through everything a checkpointer does, beside a plain model of it: dicts, and whole copies of everything."""

from __future__ import annotations

import random
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.base.id import uuid6
from langgraph.types import Send

from everturn import ChatMessage, MemoryStore
from everturn.adapters.langgraph import EverturnSaver, session_of

THREAD = "t"


class Walk:
    """Takes random steps, and compares after each of them what is there with what should be."""

    def __init__(self, store: MemoryStore, seed: int, namespace: str = "") -> None:
        """`namespace`: of a subgraph, which begins with messages that it is given."""
        self.store = store
        self.namespace = namespace
        self.session_id = session_of(THREAD, namespace)
        self.savers = [EverturnSaver(store), EverturnSaver(store)]  # as if in two processes
        self.draw = random.Random(seed)
        self.puts: dict[str, tuple[Any, Any, str | None]] = {}  # checkpoint, metadata and parent by id
        self.order: list[str] = []
        self.orphans: set[str] = set()  # whose parents were deleted
        self.writes: dict[str, dict[tuple[str, int], tuple[str, str, Any]]] = {}
        self.number = 0

    def go(self, steps: int) -> None:
        acts = [self.put] * 12 + [self.write] * 5 + [self.interfere, self.delete_a_run, self.prune, self.copy]
        for _ in range(steps):
            act = self.draw.choice(acts) if self.order else self.put
            act(self.draw.choice(self.savers))
            if self.draw.random() < 0.3:
                self.compare(self.draw.choice([*self.savers, EverturnSaver(self.store)]))
        for saver in (*self.savers, EverturnSaver(self.store)):
            self.compare(saver)

    # --- steps -------------------------------------------------------------------------------------------------------

    def put(self, saver: EverturnSaver) -> None:
        parent = self.order[-1] if self.order else None
        if self.order and self.draw.random() < 0.15:
            parent = self.draw.choice(self.order)
        elif self.namespace and self.draw.random() < 0.1:
            parent = None  # as a subgraph that goes back with its parent to before its first checkpoint
        found = saver.get_tuple(self.config(parent)) if parent else None
        values = deepcopy(found.checkpoint["channel_values"]) if found else {}
        versions = dict(found.checkpoint["channel_versions"]) if found else {}
        changed: dict[str, Any] = {}
        given = values.pop("__start__", None)
        if self.namespace and parent is None:
            values["__start__"] = {"messages": [self.message() for _ in range(self.draw.randrange(5))], "n": 1}
            channels = ["__start__"]
        else:
            values |= {"messages": given["messages"]} if given else {}
            channels = [*self.change(values), *(["__start__"] if given else [])]
        for channel in channels:
            versions[channel] = changed[channel] = max([0, *versions.values()]) + 1
        seen = dict(found.checkpoint["versions_seen"]) if found else {}
        checkpoint = {
            "v": 4,
            "id": str(uuid6()),
            "ts": datetime.now(UTC).isoformat(),
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": seen | {f"node {self.draw.randrange(3)}": {"messages": versions.get("messages", 0)}},
            "updated_channels": self.draw.choice([None, sorted(changed), ["messages"]]),
        }
        metadata = {"source": "loop", "step": len(self.puts), "parents": {}, "run_id": f"run {self.draw.randrange(6)}"}
        if self.draw.random() < 0.1:
            self.write(saver, checkpoint["id"])  # a task's writes may overtake the checkpoint they are for
        begins: Any = self.config()
        if self.order:
            begins = {"recursion_limit": 1, "configurable": begins["configurable"] | {"__pregel_replay_state": True}}
        saver.put(found.config if found else begins, deepcopy(checkpoint), metadata, changed)  # type: ignore[arg-type]
        self.puts[checkpoint["id"]] = checkpoint, metadata, parent
        self.order.append(checkpoint["id"])

    def change(self, values: dict[str, Any]) -> list[str]:
        """Change some channels. Returns which."""
        draw = self.draw
        changed = ["messages"]
        said = values.setdefault("messages", [])
        match draw.choice(["say"] * 6 + ["remove", "edit", "cut", "shuffle", "clear", "nothing"]):
            case "remove" if said:
                del said[draw.randrange(len(said))]
            case "edit" if said:
                draw.choice(said).additional_kwargs["edited"] = len(self.puts)
            case "cut" if said:
                del said[: draw.randrange(len(said))]
            case "shuffle":
                draw.shuffle(said)
            case "clear":
                said.clear()
            case "nothing":
                changed = []
            case _:
                said += [self.message(deepcopy(said[:2])) for _ in range(draw.randrange(1, 4))]
        if draw.random() < 0.4:
            values["log"] = [*values.get("log", []), draw.choice([1, {"a": 1}, ("t", 1), "x" * 50, self.quote(said)])]
            changed.append("log")
        elif draw.random() < 0.1 and "log" in values:
            values["log"] = values["log"][1:]
            changed.append("log")
        if draw.random() < 0.3:
            values["doc"] = draw.choice(["d" * 100, {"k": [*range(30)], "n": self.number}, None, 3, {"s": {1, 2}}])
            if draw.random() < 0.3:
                values["doc"] = {"so far": self.quote(said), "more": [self.quote(said)] * 2}
            changed.append("doc")
        gone = draw.choice(["log", "doc", "", "", "", ""])
        if gone in values:
            del values[gone]
            changed.append(gone)
        return changed

    def quote(self, said: list[BaseMessage]) -> Any:
        """Something with a part of the conversation in it, and more."""
        messages = deepcopy(said[: self.draw.randrange(len(said) + 2)])
        match self.draw.choice(["as it is", "more", "edited", "sent"]):
            case "more":
                messages.append(self.message())
            case "edited" if messages:
                self.draw.choice(messages).additional_kwargs["quoted"] = True
            case "sent":
                return Send("node", {"messages": messages, "n": 1})
        return messages

    def message(self, artifact: Any = (1, 2)) -> BaseMessage:
        self.number += 1
        name, text = f"m{self.number}", f"text {self.number}"
        return self.draw.choice(
            [
                HumanMessage(text, id=name),
                HumanMessage(text),
                AIMessage(text, id=name, tool_calls=[{"name": "f", "args": {"x": 1}, "id": f"c{self.number}"}]),
                ToolMessage(text, id=name, tool_call_id=f"c{self.number}", artifact=artifact),
                SystemMessage(text, id=name, additional_kwargs={"k": [1, (2,)]}),
                AIMessage([{"type": "text", "text": text}], id=name, response_metadata={"a": 1}),
                HumanMessage(
                    [{"type": "text", "text": text, "!": "quote", "of": [{"said": [[1, 4]], "n": 3}, []]}], id=name
                ),
                HumanMessage([{"type": "text", "text": text, "!": "quote", "of": "hello"}], id=name),
            ]
        )

    def write(self, saver: EverturnSaver, checkpoint: str | None = None) -> None:
        checkpoint = checkpoint or self.draw.choice([*self.order[-3:], self.order[0]])
        task, path = f"task {self.draw.randrange(3)}", f"path {self.draw.randrange(2)}"
        channels = [self.draw.choice(["messages", "log", "__interrupt__", "__error__"]) for _ in range(2)]
        said = self.said(checkpoint if checkpoint in self.puts else self.order[-1]) if self.order else []
        if self.order:
            given = self.puts[self.order[0]][0]["channel_values"].get("__start__", {})
            said = said or given.get("messages", [])
        values = [1, [HumanMessage("w")], ("t",), self.quote(said), {"state": self.quote(said)}]
        writes = [(channel, self.draw.choice(values)) for channel in channels]
        saver.put_writes(self.config(checkpoint), deepcopy(writes), task, path)
        kept = self.writes.setdefault(checkpoint, {})
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            if index < 0 or (task, index) not in kept:
                kept[task, index] = path, channel, value

    def interfere(self, _saver: EverturnSaver) -> None:
        """Someone else speaks in the session."""
        self.store.add_messages(self.session_id, [ChatMessage("user", "foreign")])

    def delete_a_run(self, saver: EverturnSaver) -> None:
        run = f"run {self.draw.randrange(6)}"
        saver.delete_for_runs([run])
        self.keep([name for name in self.order if self.puts[name][1]["run_id"] != run])

    def prune(self, saver: EverturnSaver) -> None:
        saver.prune([THREAD])
        self.keep(self.order[-1:])

    def keep(self, names: list[str]) -> None:
        for name in set(self.order) - set(names):
            self.writes.pop(name, None)
        self.order = names
        for name in names:
            checkpoint, metadata, parent = self.puts[name]
            if parent is not None and parent not in names:  # one that went is no parent
                self.puts[name] = checkpoint, metadata, None
                self.orphans.add(name)

    def copy(self, saver: EverturnSaver) -> None:
        saver.delete_thread("copy")
        saver.copy_thread(THREAD, "copy")
        there: Any = {"configurable": {"thread_id": "copy", "checkpoint_ns": self.namespace}}
        copied = [found.checkpoint for found in saver.list(there)]
        assert copied == [self.puts[name][0] for name in reversed(self.order)]

    # --- comparisons -------------------------------------------------------------------------------------------------

    def compare(self, saver: EverturnSaver) -> None:
        latest = saver.get_tuple(self.config())
        assert (latest and latest.checkpoint["id"]) == (self.order[-1] if self.order else None)
        listed = list(saver.list(self.config()))
        assert [found.checkpoint["id"] for found in listed] == self.order[::-1]
        named = [saver.get_tuple(self.config(name)) for name in self.order[:: self.draw.randrange(3, 9)]]
        for found in (*listed, *named):
            assert found is not None
            checkpoint, metadata, parent = self.puts[found.checkpoint["id"]]
            assert found.checkpoint == checkpoint
            assert found.metadata == metadata
            assert (found.parent_config and found.parent_config["configurable"]["checkpoint_id"]) == parent
            assert found.pending_writes == self.written(checkpoint["id"])
        if self.order:
            self.compare_history()
        assert self.store.verify(self.session_id).ok

    def written(self, checkpoint: str) -> list[Any]:
        kept = self.writes.get(checkpoint, {})
        ordered = sorted((path, task, index) for (task, index), (path, _, _) in kept.items())
        return [(task, *kept[task, index][1:]) for _, task, index in ordered]

    def compare_history(self) -> None:
        """All that the thread knows is in the session's history; nothing of another branch is."""
        shown = {message.text for message in self.store.get_history(self.session_id)} - {"foreign"}
        assert {message.text for message in self.said(self.order[-1])} <= shown
        spoken: set[str] = set()
        name: str | None = self.order[-1]
        while name is not None:
            if name in self.orphans:
                return  # what it stood on was deleted: who was where cannot be told
            given = self.puts[name][0]["channel_values"].get("__start__", {})
            spoken |= {message.text for message in (*self.said(name), *given.get("messages", []))}
            name = self.puts[name][2]
        assert shown <= spoken

    def said(self, name: str) -> list[BaseMessage]:
        messages: list[BaseMessage] = self.puts[name][0]["channel_values"].get("messages", [])
        return messages

    def config(self, checkpoint: str | None = None) -> Any:
        named = {"checkpoint_id": checkpoint} if checkpoint else {}
        return {"configurable": {"thread_id": THREAD, "checkpoint_ns": self.namespace, **named}}
