"""Damage behind the store's back: every edit of an item is loud or harmless, and `verify` tells of it.

Harmless is an edit after which every read gives what it gave before. Beyond that, what no read gives may differ: keys
that callers used, receipts of erased calls, the tag of the head. Somebody who writes an item anew together with its
seal is a forger; that is no accident, and not tried here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import everturn
from everturn import CorruptEntry, MemoryStoreBackendError, MemoryStoreError, Record, Summary, ToolCall
from everturn.backends.dynamodb import new_state
from everturn.backends.dynamodb.stored_form import CHUNK, SEAL, Item, sealed
from tests.store.places import Servers
from tests.store.speech import say, system, user
from tests.tiers import first

NAMES = ("a", "b")  # twins: an item of the one fits the other
EDITS, BATCH = 300, 10
LOUD = (CorruptEntry, MemoryStoreBackendError)


def a_long_story(store: Any, name: str) -> None:
    """A session that has every kind of item, several ranges, hidden entries, and effects."""
    say(store, name, "start", key="first")
    store.append(
        name, [system("rules"), ToolCall("f", {"x": name}), Summary(name, [1.0, 2.0], (1, 1)), Record("r", name)]
    )
    for number in range(12):
        store.replace(name, [user(f"{name}{number}"), ToolCall("g", {"n": number})], after=5)
    store.save_snapshot(name, "label")
    store.compact(name)
    for number in range(2):
        last = store.add_messages(name, [user(f"{name} more {number}"), user("and more")]).seqs[0]
        store.replace(name, [user(f"{name} instead {number}"), Record("r", number)], after=last)
    store.trim(name, max_messages=4)
    store.save_snapshot(name)
    store.set_facts(name, {"user": name})
    store.begin_effect(name, "done", {"of": name})
    store.finish_effect(name, "done", {"receipt": name})
    store.begin_effect(name, "in doubt", {"of": name})
    store.append(name, [Summary("late", [3.0, 4.0], (1, 2)), user("end")])


def outcomes(store: Any, name: str, snapshots: list[str]) -> dict[str, Any]:
    """Every read of a session: what it gave, or the error it raised."""
    reads: dict[str, Callable[[], Any]] = {
        "history": lambda: store.get_history(name),
        "the latest": lambda: store.get_history(name, limit=3),
        "a prompt": lambda: store.get_context(name, max_messages=3),
        "a window": lambda: store.get_history(name, after=6, before=40),
        "state": lambda: store.state(name),
        "tool calls": lambda: store.get_tool_calls(name),
        "summaries": lambda: store.get_summaries(name),
        "find": lambda: list(store.find("e", session_id=name)),
        "snapshots": lambda: store.list_snapshots(name),
        "info": lambda: store.info(name),
        "changes": lambda: store.changes(name, limit=100),
        "effects": lambda: store.get_effects(name),
        "an effect that is done": lambda: store.begin_effect(name, "done"),
        "an effect in doubt": lambda: store.begin_effect(name, "in doubt"),
        "the first snapshot": lambda: store.state(name, at=snapshots[0]),
        "version 18": lambda: store.get_history(name, at=18),
    }
    found: dict[str, Any] = {}
    for called, read in reads.items():
        try:
            found[called] = repr(read())
        except MemoryStoreError as exc:
            found[called] = exc if isinstance(exc, LOUD) else type(exc)
    return found


class Damaged:
    """A table whose items are edited, and put back."""

    def __init__(self, servers: Servers, url: str) -> None:
        self.url = url
        self.store: Any = everturn.open(url, timeout=30)
        self.driver = servers.beside_dynamodb
        self.table = url.partition("://")[2].partition("?")[0]
        for name in NAMES:
            a_long_story(self.store, name)
        self.items = self._all()
        self.snapshots = {name: [one.id for one in self.store.list_snapshots(name)] for name in NAMES}
        self.before = {name: self.reads(name) for name in NAMES}
        assert self.store.verify().ok

    def reads(self, name: str) -> dict[str, Any]:
        return outcomes(self.store, name, self.snapshots[name])

    def _all(self) -> list[Item]:
        pages = self.driver.get_paginator("scan").paginate(TableName=self.table, ConsistentRead=True)
        items = [item for page in pages for item in page["Items"]]
        return sorted(items, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))

    def put(self, item: Item) -> None:
        self.driver.put_item(TableName=self.table, Item=item)

    def delete(self, item: Item) -> None:
        self.driver.delete_item(TableName=self.table, Key={"pk": item["pk"], "sk": item["sk"]})

    def put_back(self) -> None:
        now = self._all()
        for item in now:
            if item not in self.items:
                self.delete(item)
        for item in self.items:
            if item not in now:
                self.put(item)

    def edit(self, chance: random.Random) -> tuple[str, set[str]]:
        """Make one edit. Returns what was done, and the sessions that it concerns."""
        items = [item for item in self.items if session_of(item)]
        item, other = chance.choice(items), chance.choice(items)
        kind = chance.choices(["spoil", "delete", "swap", "move"], [12, 4, 2, 2])[0]
        concerned = {session_of(item)}
        named = f"{kind} {item['pk']['S']} {item['sk']['S']}"
        if kind == "delete":
            self.delete(item)
        elif kind == "spoil":
            name = chance.choice(sorted({*item} - {"pk", "sk", "tag"}) or [SEAL])
            self.put({**item, name: spoilt(chance, item.get(name, {"N": "1"}))})
            named += f" {name}"
        else:
            concerned.add(session_of(other))
            keys = {"pk": item["pk"], "sk": item["sk"]}
            if kind == "swap":
                self.put({**item, "pk": other["pk"], "sk": other["sk"]})
            else:
                self.delete(item)
            self.put({**other, **keys})
            named += f" with {other['pk']['S']} {other['sk']['S']}"
        return named, concerned


def session_of(item: Item) -> str:
    """The session that an item is of; "" for the items of the store itself."""
    pk, sk = item["pk"]["S"], item["sk"]["S"]
    if pk.startswith("session//"):
        return str(pk.removeprefix("session//"))
    return str(sk) if pk == "names/" else ""


def spoilt(chance: random.Random, value: dict[str, Any]) -> dict[str, Any]:
    """A value with a character changed, or without its end."""
    ((kind, held),) = value.items()
    if kind == "N":
        return {"N": str(int(held) + chance.choice([1, -1, 7, 10**6]))}
    text = held.decode("latin-1") if kind == "B" else held
    if not text or chance.random() < 0.3:
        text = text[: chance.randrange(len(text) + 1)] + ("" if chance.random() < 0.5 else "x")
    else:
        place = chance.randrange(len(text))
        text = (
            text[:place]
            + chance.choice([one for one in '0123456789 abc-,;"{' if one != text[place]])
            + text[place + 1 :]
        )
    return {kind: text.encode("latin-1") if kind == "B" else text}


@pytest.fixture(scope="module")
def damaged(servers: Servers) -> Iterator[Damaged]:
    # A worker of pytest may make it again, if it is given tests of other modules in between.
    damaged = Damaged(servers, servers.dynamodb.url_of(f"everturn-{uuid4().hex}"))
    yield damaged
    damaged.store.close()


@pytest.fixture(autouse=True)
def whole(damaged: Damaged) -> Iterator[None]:
    yield
    damaged.put_back()


def test_reads_of_what_is_not_damaged_are_not_loud(damaged: Damaged) -> None:
    for found in damaged.before.values():
        assert [called for called, value in found.items() if not isinstance(value, str)] == []
        assert len(set(found.values())) > len(found) / 2


@pytest.mark.parametrize("batch", first(2, range(EDITS // BATCH)))
def test_every_edit_is_loud_or_harmless(damaged: Damaged, batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        done, concerned = damaged.edit(random.Random(seed))
        is_loud = False
        for name in NAMES:
            found, before = damaged.reads(name), damaged.before[name]
            if name not in concerned:
                assert found == before, f"seed {seed}: {done}: {name}"
            wrong = [called for called, told in found.items() if not isinstance(told, LOUD) and told != before[called]]
            assert wrong == [], f"seed {seed}: {done}: {name}: {wrong[0]}: {found[wrong[0]]}"
            is_loud |= found != before
        report = damaged.store.verify()
        assert not (is_loud and report.ok), f"seed {seed}: {done}: verify says nothing"
        assert {problem.session_id for problem in report.problems} <= {*concerned, None}, f"seed {seed}: {done}"
        damaged.put_back()


def item_of(damaged: Damaged, letter: str, name: str = "a") -> Item:
    return next(item for item in damaged.items if session_of(item) == name and item["sk"]["S"].startswith(letter))


def test_a_head_that_is_lost_is_no_new_session(damaged: Damaged) -> None:
    damaged.delete(item_of(damaged, "H"))
    store = damaged.store
    calls = (
        store.get_history,
        lambda name: store.get_history(name, limit=3),
        store.info,
        store.lease,
        lambda name: store.begin_effect(name, "done"),
        lambda name: store.rollback(name, 1),
        lambda name: say(store, name, "anew"),
        lambda name: store.set_facts(name, {"user": "b"}),
    )
    for call in calls:
        with pytest.raises(CorruptEntry, match="lost"):
            call("a")
    assert {problem.session_id for problem in store.verify().problems} == {"a"}
    assert len(store.get_history("b")) > 2


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "damaged"])
def test_an_erasure_removes_a_session_whose_head_cannot_be_read(damaged: Damaged, lost: bool) -> None:
    head = item_of(damaged, "H")
    if lost:
        damaged.delete(head)
    else:
        damaged.put({**head, "session": {"S": head["session"]["S"][:40]}})
    assert damaged.store.erase("a").complete
    assert [item["sk"]["S"] for item in damaged._all() if item["pk"]["S"] == "session//a"] in (["H"], ["H", "R"])
    assert damaged.store.get_history("a") == []
    assert damaged.store.verify().ok
    say(damaged.store, "a", "anew")
    assert len(damaged.store.get_history("a")) == 1


@pytest.mark.parametrize("letter", ["C", "E", "F", "P"])
def test_an_erasure_removes_a_session_with_damaged_items(damaged: Damaged, letter: str) -> None:
    item = item_of(damaged, letter)
    damaged.put({**item, SEAL: {"N": "1"}})
    assert damaged.store.erase("a").complete
    assert damaged.store.verify().ok


@pytest.mark.parametrize("letter", ["F", "B", "P", "S", "C", "K"])
def test_an_item_that_is_lost_is_named_by_verify(damaged: Damaged, letter: str) -> None:
    damaged.delete(item_of(damaged, letter))
    assert {problem.session_id for problem in damaged.store.verify().problems} == {"a"}


def test_an_effect_that_is_lost_does_not_begin_again(damaged: Damaged) -> None:
    for item in damaged.items:
        if session_of(item) == "a" and item["sk"]["S"].startswith("F"):
            damaged.delete(item)
    for key in ("done", "in doubt"):
        with pytest.raises(CorruptEntry, match="effects"):
            damaged.store.begin_effect("a", key)
    assert damaged.store.begin_effect("b", "new one").status == "new"


def test_a_name_that_is_lost_is_named_by_verify(damaged: Damaged) -> None:
    damaged.delete({"pk": {"S": "names/"}, "sk": {"S": "a"}})
    assert {problem.session_id for problem in damaged.store.verify().problems} == {"a"}


@pytest.mark.parametrize("edit", ["lost", "cut", "another line"])
def test_a_damaged_chunk_of_a_large_turn_is_loud(damaged: Damaged, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    monkeypatch.setattr(new_state, "TRANSACTION_BYTES", 1000)
    store = damaged.store
    store.add_messages("large", [user("before")])
    store.add_messages("large", [user("x" * 3000), user("y" * 3000)])
    item = next(item for item in damaged._all() if item["sk"]["S"].startswith(CHUNK))
    if edit == "lost":
        damaged.delete(item)
    else:
        body = item["b"]["B"]
        damaged.put({**item, "b": {"B": body[:-7] if edit == "cut" else body.replace(b"\n", b"\n\n", 1)}})
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("large")
    assert caught.value.session_id == "large"
    assert [message.content for message in store.get_history("large", on_corrupt="skip")][:1] == ["before"]
    assert not store.verify("large").ok
    store.erase("large")


def test_an_effect_begins_by_one_request_and_a_note_keeps_it_from_beginning_again(damaged: Damaged) -> None:
    store = damaged.store
    say(store, "b", "the head is known from now on")
    backend = store._operations.backend
    send, sent = backend.client.send, []

    async def counting(operation: str, *args: Any, **options: Any) -> Any:
        sent.append(operation)
        return await send(operation, *args, **options)

    backend.client.send = counting
    try:
        for number in range(30):
            assert store.begin_effect("b", f"pay {number}").status == "new"
    finally:
        backend.client.send = send
    assert sent == ["transact_write_items"] * 30
    for item in damaged._all():
        if session_of(item) == "b" and item["sk"]["S"].startswith("F"):
            damaged.delete(item)
            break
    refused = 0
    for key in [f"pay {number}" for number in range(30)] + ["done", "in doubt"]:
        try:
            assert store.begin_effect("b", key).status != "new"
        except CorruptEntry:
            refused += 1
    assert refused == 1
    assert store.begin_effect("b", "another").status == "new"


@pytest.mark.parametrize("lost", [False, True])
def test_effects_of_before_there_were_notes_are_counted_and_noted(damaged: Damaged, lost: bool) -> None:
    head = item_of(damaged, "H")
    damaged.put(sealed({**head, "session": {"S": head["session"]["S"].replace('"noted":2,', "")}}))
    for item in damaged.items:
        if session_of(item) == "a" and item["sk"]["S"].startswith("B"):
            damaged.delete(item)
    with everturn.open(damaged.url, timeout=30) as store:
        if lost:
            damaged.delete(item_of(damaged, "F"))
            with pytest.raises(CorruptEntry, match="effects"):
                store.begin_effect("a", "new one")
        else:
            assert store.begin_effect("a", "new one").status == "new"
            assert [item["sk"]["S"][0] for item in damaged._all() if session_of(item) == "a"].count("B") == 3
            assert store.verify("a").ok
