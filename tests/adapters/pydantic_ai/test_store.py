"""EverturnConversationStore beside Pydantic AI's own store in memory: every call answers the same on both."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.usage import RunUsage

import everturn
from everturn import ChatMessage, InvalidInput, MemoryStore
from everturn.adapters.pydantic_ai import EverturnConversationStore
from tests.adapters.stores import WatchedStore
from tests.store.places import Servers
from tests.tiers import first

T = TypeVar("T")


class Mirror(ConversationStore):
    """Two stores that are told the same, and must answer the same."""

    def __init__(self, *stores: ConversationStore) -> None:
        self.stores = stores

    async def _ask(self, call: Callable[[ConversationStore], Awaitable[T]]) -> T:
        answers: list[Any] = []
        for store in self.stores:
            try:
                answers.append(await call(store))
            except (ConversationConflict, KeyError) as exc:
                answers.append(exc)
        first, second = answers
        if isinstance(first, Exception):
            assert type(second) is type(first), (first, second)
            raise second
        assert second == first
        return second  # type: ignore[no-any-return]  # the durable one's

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        return await self._ask(lambda store: store.read_record(conversation_id))

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        return await self._ask(lambda store: store.read_records(scope=scope, limit=limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await self._ask(
            lambda store: store.write_record(record, new_entries=new_entries, expected_revision=expected_revision)
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._ask(lambda store: store.delete_record(conversation_id, expected_revision=expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        return await self._ask(lambda store: store.read_entry(entry_id))

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await self._ask(lambda store: store.read_history(head_id, limit=limit))


def turn(text: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)]), ModelResponse(parts=[TextPart(f"answer to {text}")])]


def words(messages: Sequence[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts]  # type: ignore[union-attr]


@pytest.fixture(params=["sqlite", "valkey", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/memory.db"
    return str(getattr(servers, request.param).url)


async def walk(mirror: Mirror, seed: int) -> None:
    """A random walk of saves, branches, forks, deletions, and loads of all there is."""
    dice = random.Random(seed)
    names = ["a", "b", "c"]
    for step in range(40):
        name = dice.choice(names)
        act = dice.choice(["save", "save", "save", "rewrite", "branch", "back", "fork", "delete", "stale", "list"])
        held = await mirror.load(name, limit=dice.choice([None, None, 1, 3]))
        record = await mirror.read_record(name)
        if act == "list":
            await mirror.list_conversations(scope=dice.choice([None, "x"]), limit=dice.choice([None, 2]))
        elif act == "save" or held is None or record is None:
            conversation = held or Conversation(conversation_id=name)
            conversation.messages.extend(turn(f"{name}{step}"))
            conversation.usage = RunUsage(requests=step)
            await mirror.save(conversation, scope="x" if name == "a" else None)
        elif act == "rewrite":
            kept = await mirror.load(name)
            assert kept is not None
            written = kept.messages[: dice.randrange(len(kept.messages) + 1)] + turn(f"{name}{step} instead")
            await mirror.save(Conversation(conversation_id=name, messages=written, revision=kept.revision))
        elif act == "branch":
            length = len(await mirror.load_entries(name) or ())
            await mirror.branch(name, at=dice.randrange(length + 1), expected_revision=held.revision)
        elif act == "back" and record.branches:
            tip = dice.choice(record.branches)
            entry = dice.choice(await mirror.read_history(tip))
            await mirror.branch(name, from_entry=entry.id, expected_revision=held.revision)
        elif act == "fork":
            new = dice.choice(names)
            try:
                await mirror.fork(name, new_conversation_id=new, from_entry=dice.choice([None, record.head_id]))
            except (ConversationConflict, UserError):
                assert await mirror.load(new) is not None or record.head_id is None
        elif act == "delete":
            await mirror.delete(name)
            assert await mirror.load(name) is None
        elif act == "stale":
            held.revision = "another"
            with pytest.raises(ConversationConflict):
                await mirror.save(held)
        for each in names:
            await mirror.load(each)
            found = await mirror.read_record(each)
            for tip in found.branches if found is not None else ():
                await mirror.read_history(tip)


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_walks_end_where_those_in_memory_end(url: str, seed: int) -> None:
    async def run() -> None:
        with everturn.open(url, namespace=uuid4().hex[:12]) as store:
            memory = InMemoryConversationStore()
            await walk(Mirror(memory, EverturnConversationStore(store)), seed)
            # And for whoever comes later, and has seen nothing of it.
            await read_all(Mirror(memory, EverturnConversationStore(store)), memory)
            assert store.verify().ok

    asyncio.run(run())


async def read_all(mirror: Mirror, memory: InMemoryConversationStore) -> None:
    await mirror.read_records()
    for record in memory._records.values():
        for tip in [record.head_id, *record.branches]:
            if tip is not None:
                entry = await mirror.read_entry(tip)
                await mirror.read_history(tip, limit=2)
                assert entry.id == tip
    with pytest.raises(KeyError):
        await mirror.read_entry("nowhere")


def over_both_stores(story: Callable[[Any, Any], Awaitable[None]], tmp_path: Path) -> None:
    async def run() -> None:
        with everturn.open(f"sqlite:///{tmp_path / 'blocking.db'}") as store:
            await story(store, EverturnConversationStore(store))
        async with await everturn.open_async(f"sqlite:///{tmp_path / 'awaited.db'}") as opened:
            await story(opened, EverturnConversationStore(opened))

    asyncio.run(run())


def test_of_many_savers_at_once_one_wins(tmp_path: Path) -> None:
    async def story(_: Any, store: EverturnConversationStore) -> None:
        await store.save(Conversation(conversation_id="a", messages=turn("first")))
        held = [await store.load("a") for _ in range(8)]
        for number, conversation in enumerate(held):
            assert conversation is not None
            conversation.messages.extend(turn(str(number)))
        done = await asyncio.gather(*(store.save(one) for one in held if one), return_exceptions=True)
        assert [type(one) for one in done].count(list) == 1
        assert all(isinstance(one, list | ConversationConflict) for one in done)
        loaded = await store.load("a")
        assert loaded is not None
        assert len(loaded.messages) == 4
        new = [Conversation(conversation_id="b", messages=turn(str(n))) for n in range(8)]
        done = await asyncio.gather(*(store.save(one) for one in new), return_exceptions=True)
        assert [type(one) for one in done].count(list) == 1

    over_both_stores(story, tmp_path)


def test_a_save_is_one_turn_of_the_session() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            conversation = Conversation(conversation_id="a", messages=turn("one"))
            await store.save(conversation)
            conversation.messages.extend(turn("two"))
            await store.save(conversation)
            assert [change.kind for change in opened.changes("a")] == ["append", "append"]
            assert [message.text for message in opened.get_history("a")] == words(conversation.messages)
            assert await store.save(conversation) == []
            before = opened.state("a")
            stale = Conversation(conversation_id="a", messages=turn("x"), revision="stale")
            with pytest.raises(ConversationConflict):
                await store.save(stale)
            assert opened.state("a") == before

    asyncio.run(run())


def test_a_branch_moves_the_history_and_leaves_a_snapshot() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            conversation = Conversation(conversation_id="a", messages=turn("one") + turn("two"))
            await store.save(conversation)
            branched = await store.branch("a", at=2, expected_revision=conversation.revision)
            branched.messages.extend(turn("instead"))
            await store.save(branched)
            assert [message.text for message in opened.get_history("a")] == words(turn("one") + turn("instead"))
            (snapshot,) = opened.list_snapshots("a")
            left = opened.get_history("a", at=snapshot)
            assert [message.text for message in left] == words(turn("one") + turn("two"))

    asyncio.run(run())


def test_delete_is_erase_and_forks_stay(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def run() -> None:
        with everturn.open(f"sqlite:///{path}") as opened:
            store = EverturnConversationStore(opened)
            await store.save(Conversation(conversation_id="a", messages=turn("kept") + turn("unforgettable-4711")))
            await store.fork("a", at=2, new_conversation_id="b")
            await store.delete("a")
            await store.delete("a")
            fork = await store.load("b")
            assert fork is not None
            assert words(fork.messages) == words(turn("kept"))

    asyncio.run(run())
    assert b"unforgettable-4711" not in path.read_bytes()


def test_a_deletion_that_was_begun_is_a_deletion() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            conversation = Conversation(conversation_id="a", messages=turn("one"))
            await store.save(conversation)

            async def dying(method: str, call: Coroutine[Any, Any, Any]) -> Any:
                if method == "erase":
                    call.close()
                    raise KeyboardInterrupt
                return await call

            store._store = WatchedStore(store._store, dying)  # type: ignore[assignment]
            with pytest.raises(KeyboardInterrupt):
                await store._delete("a", conversation.revision or "")
            store = EverturnConversationStore(opened)
            assert await store.load("a") is None
            assert await store.list_conversations() == []
            with pytest.raises(ConversationConflict):
                await store.save(conversation)
            await store.save(Conversation(conversation_id="a", messages=turn("anew")))
            loaded = await store.load("a")
            assert loaded is not None
            assert words(loaded.messages) == words(turn("anew"))

    asyncio.run(run())


def test_a_session_that_others_write_to_is_a_conversation_too() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            opened.add_messages("a", [ChatMessage("user", "from elsewhere"), ChatMessage("assistant", "yes")])
            conversation = await store.load("a")
            assert conversation is not None
            assert words(conversation.messages) == ["from elsewhere", "yes"]
            stale = await store.load("a")
            conversation.messages.extend(turn("and on"))
            await store.save(conversation)
            assert stale is not None
            with pytest.raises(ConversationConflict):
                await store.save(stale)
            held = await store.load("a")
            opened.add_messages("a", [ChatMessage("user", "once more")])
            assert held is not None
            held.messages.extend(turn("not so"))
            with pytest.raises(ConversationConflict):
                await store.save(held)
            held = await store.load("a")
            assert held is not None
            assert words(held.messages) == ["from elsewhere", "yes", *words(turn("and on")), "once more"]
            held.messages.extend(turn("at last"))
            await store.save(held)
            assert len(opened.get_history("a")) == 7

    asyncio.run(run())


def test_what_a_conversation_waits_for_comes_back() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            waiting = DeferredToolRequests(
                approvals=[ToolCallPart("refund", {"order": 1}, tool_call_id="c1")], metadata={"c1": {"why": "money"}}
            )
            conversation = Conversation(conversation_id="a", messages=turn("x"), deferred_tool_requests=waiting)
            await store.save(conversation, scope="ann")
            assert await EverturnConversationStore(opened).load("a", scope="ann") == conversation
            assert await store.load("a", scope="ben") is None

    asyncio.run(run())


def test_a_rollback_of_the_session_is_one_of_the_conversation(tmp_path: Path) -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            conversation = Conversation(conversation_id="a", messages=turn("one"))
            await store.save(conversation)
            snapshot = opened.save_snapshot("a")
            early = await store.load("a")
            conversation.messages.extend(turn("two"))
            await store.save(conversation)
            opened.rollback_to_snapshot("a", snapshot)
            assert await store.load("a") == early
            with pytest.raises(ConversationConflict):
                await store.save(conversation)

    asyncio.run(run())


def test_what_cannot_be_kept_is_refused_and_nothing_is_written() -> None:
    async def run() -> None:
        with everturn.open("sqlite://") as opened:
            store = EverturnConversationStore(opened)
            for wrong in ("\ud800", {"x": float("nan")}):
                message = ModelRequest(parts=[UserPromptPart("x")], metadata={"wrong": wrong})
                with pytest.raises(InvalidInput):
                    await store.save(Conversation(conversation_id="a", messages=[message]))
            assert opened.state("a").version == 0
            with pytest.raises(InvalidInput):
                await store.load("")

    asyncio.run(run())


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidInput, match="store"):
        EverturnConversationStore("sqlite://")  # type: ignore[arg-type]


def test_a_long_conversation_is_loaded_by_its_end(tmp_path: Path) -> None:
    """Agent is imported as the framework's users do; its results are saved as they are."""

    async def run() -> None:
        with everturn.open(f"sqlite:///{tmp_path}/memory.db") as opened:
            store = EverturnConversationStore(opened)
            conversation = Conversation(conversation_id="a")
            for number in range(60):
                conversation.messages.extend(turn(str(number)))
                await store.save(conversation)
            for fresh in (store, EverturnConversationStore(opened)):
                for limit in (0, 1, 5, 119, 120, 500):
                    window = await fresh.load("a", limit=limit)
                    assert window is not None
                    assert window.messages == conversation.messages[120 - min(limit, 120) :]
            window = await store.load("a", limit=2)
            assert window is not None
            window.messages.extend(turn("more"))
            await store.save(window)
            assert len(opened.get_history("a")) == 122

    asyncio.run(run())


def test_an_agent_takes_it(tmp_path: Path) -> None:
    async def story(_: MemoryStore, store: EverturnConversationStore) -> None:
        agent = Agent("test")
        result = await agent.run("hello", conversation=Conversation(conversation_id="t"))
        entries = await store.save(result)
        assert [entry.id for entry in entries] == [entry.id for entry in await store.load_entries("t") or ()]
        loaded = await store.load("t")
        again = await agent.run("more", conversation=loaded)
        await store.save(again)
        assert len(await store.load_entries("t") or ()) == 4

    over_both_stores(story, tmp_path)
