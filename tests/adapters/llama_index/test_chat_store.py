"""LlamaIndex's two kinds of store: every message comes back as it was, alone and under LlamaIndex's memories."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import BaseModel

import everturn
from everturn import InvalidInput, MemoryStore, ToolCall, Unsupported
from everturn.adapters.llama_index import EverturnChatStore, EverturnDBChatStore
from everturn.adapters.llama_index import messages as mapping
from tests.adapters.checking import shows
from tests.adapters.stores import WatchedStore, over_both_stores
from tests.tiers import examples

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED


def call(number: int, arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=f"c{number}", tool_name="track", tool_kwargs=arguments)


MESSAGES: list[ChatMessage] = [
    ChatMessage("hi"),
    ChatMessage(""),
    ChatMessage(),
    ChatMessage("nul \x00, \u2028 and \U0001f600", role=MessageRole.SYSTEM),
    *[ChatMessage(role.value, role=role) for role in MessageRole],
    ChatMessage([TextBlock(text="one"), TextBlock(text=""), TextBlock(text="three")]),
    ChatMessage(
        [TextBlock(text="see"), ImageBlock(image=PNG), ImageBlock(url="https://example.org/a.png", detail="low")]
    ),
    ChatMessage([ImageBlock(path=__file__, image_mimetype="image/png"), ImageBlock()]),
    ChatMessage([AudioBlock(audio=b"RIFF\xff\xfe", format="wav"), VideoBlock(video=b"\x00\xff", fps=3)]),
    ChatMessage([DocumentBlock(data=b"%PDF-1.7 \xff", title="t"), DocumentBlock(path="/nowhere/x.pdf", url="u")]),
    ChatMessage([TextBlock(text="x"), CachePoint(cache_control=CacheControl(type="ephemeral", ttl="1h"))]),
    ChatMessage([CitableBlock(title="t", source="s", content=[TextBlock(text="x"), ImageBlock(image=PNG)])]),
    ChatMessage(
        [CitationBlock(cited_content=TextBlock(text="x"), source="s", title="t", additional_location_info={"page": 1})]
    ),
    ChatMessage(
        [ThinkingBlock(content="hm", num_tokens=3, additional_information={"signature": b"\xff", "at": (1, 2)})],
        role="assistant",
    ),
    ChatMessage([call(1, {"order": 1234, "é": [1.0, None, True]})], role="assistant"),
    ChatMessage([TextBlock(text=""), call(1, {})], role="assistant"),
    ChatMessage(
        [TextBlock(text="Wait."), call(1, "not json"), call(2, '{"a": 1}'), call(3, {"t": (1,)})], role="assistant"
    ),
    ChatMessage([call(1, {}), TextBlock(text="between"), call(2, {}), ImageBlock(image=PNG)], role="assistant"),
    ChatMessage([ToolCallBlock(tool_name="no id")], role="assistant"),
    ChatMessage("in Bern", role="tool", additional_kwargs={"tool_call_id": "c1", "name": "track"}),
    ChatMessage("in Bern", role="tool", additional_kwargs={"name": "track", "tool_call_id": "c1"}),
    ChatMessage(
        "x", additional_kwargs={"name": 1, "tool_call_id": None, "!": {"of": (1, {2})}, "raw": b"\xff", "n": 2**70}
    ),
]


def exactly(message: ChatMessage) -> tuple[object, ...]:
    return type(message), repr(message.role), repr(message.blocks), repr(message.additional_kwargs)


def on_both(tmp_path: Path, story: Callable[[EverturnChatStore], Awaitable[None]]) -> None:
    over_both_stores(tmp_path, lambda store: story(EverturnChatStore(store)))


def texts(messages: list[ChatMessage] | None) -> list[str | None]:
    return [message.content for message in messages or ()]


def said(*words: str) -> list[ChatMessage]:
    return [ChatMessage(word) for word in words]


# --- what goes in comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(len(MESSAGES)))
def test_a_message_comes_back_with_every_block_and_all_its_kwargs(index: int) -> None:
    with everturn.open("sqlite://") as store:
        chat = EverturnChatStore(store)
        chat.add_message("s", MESSAGES[index])
        [read] = chat.get_messages("s")
    assert read == MESSAGES[index]
    assert exactly(read) == exactly(MESSAGES[index])


def test_legacy_images_are_not_doubled_when_they_are_read() -> None:
    """LlamaIndex makes blocks of them again whenever a message is checked; what is stored was checked."""

    class Picture(BaseModel):
        def resolve_image(self, as_base64: bool = False) -> io.BytesIO:
            return io.BytesIO(b"cGljdHVyZQ==")

    message = ChatMessage("look", additional_kwargs={"images": [Picture()]})
    with everturn.open("sqlite://") as store:
        chat = EverturnChatStore(store)
        chat.add_message("s", message)
        [read] = chat.get_messages("s")
    assert read.blocks == message.blocks
    assert read.additional_kwargs == {"images": [{}]}  # a Pydantic object comes back as LlamaIndex serializes it


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
BLOCKS = st.one_of(
    st.builds(TextBlock, text=st.text(max_size=5)),
    st.builds(ThinkingBlock, content=st.none() | st.text(max_size=5)),
    st.builds(
        ToolCallBlock,
        tool_call_id=st.none() | st.text(max_size=3),
        tool_name=st.text(max_size=3),
        tool_kwargs=st.text(max_size=5) | st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    ),
)
KWARGS = st.dictionaries(st.sampled_from(["name", "tool_call_id", "x", "!"]), JSON, max_size=3)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.builds(
        ChatMessage, blocks=st.lists(BLOCKS, max_size=4), role=st.sampled_from(MessageRole), additional_kwargs=KWARGS
    )
)
def test_any_message_comes_back(message: ChatMessage) -> None:
    assert exactly(mapping.from_entry(mapping.to_entry(message))) == exactly(message)
    archived = mapping.archived(mapping.to_entry(message))
    assert exactly(mapping.from_entry(archived)) == exactly(message)


class Loud(ChatMessage):
    pass


class OwnBlock(TextBlock):
    pass


def unchecked(block: Any) -> ChatMessage:
    message = ChatMessage("x")
    message.blocks = [block]
    return message


@pytest.mark.parametrize(
    "wrong",
    [
        Loud("x"),
        unchecked(OwnBlock(text="x")),
        ChatMessage([ImageBlock(image=io.BytesIO(PNG))]),
        ChatMessage("x", additional_kwargs={"score": float("nan")}),
        ChatMessage("x", additional_kwargs={"of": object()}),
        ChatMessage("lone \ud800"),
        "text",
    ],
    ids=["subclass", "own block", "stream", "nan", "object", "surrogate", "text"],
)
def test_what_would_not_come_back_is_refused_and_nothing_is_written(wrong: Any) -> None:
    with everturn.open("sqlite://") as store:
        chat = EverturnChatStore(store)
        chat.set_messages("s", said("before"))
        with pytest.raises(InvalidInput, match=r"(messages|entries)\[1\]"):
            chat.set_messages("s", [ChatMessage("first"), wrong])
        assert texts(chat.get_messages("s")) == ["before"]


# --- the chat store --------------------------------------------------------------------------------------------------


def test_all_methods_over_both_stores(tmp_path: Path) -> None:
    async def story(chat: EverturnChatStore) -> None:
        assert await chat.aget_messages("s") == []
        assert await chat.adelete_messages("s") is None
        assert await chat.adelete_message("s", 0) is None
        assert await chat.adelete_last_message("s") is None
        await chat.async_add_message("s", ChatMessage("a"))
        await chat.aset_messages("s", said("b", "c", "d", "e"))
        await chat.aset_messages("t", said("other"))
        assert await chat.aget_keys() == ["s", "t"]
        assert texts([await chat.adelete_message("s", 1) or ChatMessage()]) == ["c"]
        assert texts([await chat.adelete_message("s", -2) or ChatMessage()]) == ["d"]
        assert await chat.adelete_message("s", 2) is None
        assert await chat.adelete_message("s", -3) is None
        assert texts([await chat.adelete_last_message("s") or ChatMessage()]) == ["e"]
        assert texts(await chat.aget_messages("s")) == ["b"]
        assert texts(await chat.adelete_messages("s")) == ["b"]
        assert await chat.aget_keys() == ["t"]
        assert texts(await chat.aget_messages("t")) == ["other"]

    on_both(tmp_path, story)


def test_set_is_one_change_that_can_be_undone() -> None:
    with everturn.open("sqlite://") as store:
        chat = EverturnChatStore(store)
        chat.set_messages("s", said("a", "b"))
        version = store.info("s").version
        chat.set_messages("s", said("c"))
        assert store.info("s").version == version + 1
        store.undo("s")
        assert texts(chat.get_messages("s")) == ["a", "b"]


def test_what_is_deleted_is_gone_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with everturn.open(f"sqlite:///{path}") as store:
        chat = EverturnChatStore(store)
        chat.set_messages("s", said("keep", "the secret word", "stay"))
        store.add_tool_call("s", ToolCall("track", {"order": 1234}))
        chat.delete_message("s", 1)
        assert texts(chat.get_messages("s")) == ["keep", "stay"]
        assert [one.name for one in store.get_tool_calls("s")] == ["track"]
        assert store.verify().ok
        while store.info("s").undo_steps:
            store.undo("s")
            assert "the secret word" not in texts(chat.get_messages("s"))
        chat.set_messages("t", said("another secret"))
        chat.delete_last_message("t")
        assert chat.get_messages("t") == []
        chat.set_messages("u", said("a third secret"))
        chat.delete_messages("u")
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"stay" in stored
    assert b"secret" not in stored


@pytest.mark.parametrize("kind", ["lg.put", "pydantic_ai.record"])
def test_a_message_that_records_of_another_framework_name_is_not_deleted(kind: str) -> None:
    with everturn.open("sqlite://") as store:
        chat = EverturnChatStore(store)
        store.append("a", [everturn.ChatMessage("user", "1"), everturn.Record(kind, {"names": 1})])
        chat.add_message("a", ChatMessage("2"))
        with pytest.raises(Unsupported, match=rf"session 'a'.*{kind}.*rollback"):
            chat.delete_message("a", 0)
        assert chat.delete_last_message("a") == ChatMessage("2")
        assert [entry.seq for entry in store.state("a").entries] == [1, 2]


def test_many_that_delete_and_append_at_once_share_the_messages_exactly(tmp_path: Path) -> None:
    async def story(chat: EverturnChatStore) -> None:
        await chat.aset_messages("s", said(*map(str, range(12))))
        work = [
            *(chat.adelete_last_message("s") for _ in range(3)),
            *(chat.adelete_message("s", 0) for _ in range(3)),
            *(chat.async_add_message("s", ChatMessage(f"new {number}")) for number in range(6)),
        ]
        taken = [message.content for message in await asyncio.gather(*work) if message is not None]
        left = texts(await chat.aget_messages("s"))
        assert sorted([*taken, *left]) == sorted([*map(str, range(12)), *(f"new {number}" for number in range(6))])

    on_both(tmp_path, story)


def test_what_is_no_store_is_refused_and_the_wrong_face_says_so() -> None:
    with pytest.raises(InvalidInput, match="store: "):
        EverturnChatStore("sqlite://")  # type: ignore[arg-type]

    async def run() -> None:
        async with await everturn.open_async("sqlite://") as store:
            with pytest.raises(Unsupported, match="use its async methods"):
                EverturnChatStore(store).get_messages("s")

    asyncio.run(run())


def test_a_block_that_is_not_here_is_an_error_that_names_it() -> None:
    with everturn.open("sqlite://") as store:
        part = {"type": "hologram", "of": "x"}
        store.add_messages("s", [{"role": "user", "content": [part], "metadata": {"llama_index": {"native": True}}}])
        with pytest.raises(Unsupported, match=r"message 1 of session 's'.*hologram"):
            EverturnChatStore(store).get_messages("s")


def test_people_read_what_was_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    with everturn.open(url) as store:
        chat = EverturnChatStore(store)
        chat.add_message("customer-42", ChatMessage("Where is order 1234?"))
        chat.add_message("customer-42", ChatMessage([call(1, {"order": 1234})], role="assistant"))
        chat.add_message("customer-42", ChatMessage("in Bern", role="tool", additional_kwargs={"tool_call_id": "c1"}))
        chat.add_message(
            "customer-42", ChatMessage([TextBlock(text="It is here."), ImageBlock(url="https://e.org/m.png")])
        )
    shows(
        url,
        "customer-42",
        "user",
        "Where is order 1234?",
        "assistant",
        "track",
        '"order": 1234',
        "tool",
        "in Bern",
        "It is here.",
    )


# --- LlamaIndex's memories -------------------------------------------------------------------------------------------


def test_a_chat_memory_buffer_goes_on_where_another_stopped(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    for expected in (["one"], ["one", "two"]):
        with everturn.open(url) as store:
            buffer = ChatMemoryBuffer.from_defaults(
                chat_store=EverturnChatStore(store), chat_store_key="s", token_limit=50
            )
            buffer.put(ChatMessage(expected[-1]))
            assert texts(buffer.get_all()) == expected
    with everturn.open(url) as store:
        buffer = ChatMemoryBuffer.from_defaults(chat_store=EverturnChatStore(store), chat_store_key="s", token_limit=50)
        asyncio.run(buffer.aput(ChatMessage("three")))
        assert texts(asyncio.run(buffer.aget())) == ["one", "two", "three"]
        buffer.set(said("only"))
        assert texts(buffer.get()) == ["only"]
        buffer.reset()
        assert buffer.get_all() == []
        assert store.sessions().sessions == ()


def count(text: str) -> list[str]:
    return text.split()


def memory(store: Any, limit: int = 10) -> Memory:
    return Memory.from_defaults(
        session_id="s",
        chat_store=EverturnDBChatStore(store),
        token_limit=limit,
        chat_history_token_ratio=0.5,
        token_flush_size=2,
        tokenizer_fn=count,
    )


def turns(first: int, last: int) -> list[ChatMessage]:
    return [
        ChatMessage(f"{'asked' if role == 'user' else 'told'} {number}", role=role)
        for number in range(first, last)
        for role in ("user", "assistant")
    ]


def test_a_memory_archives_what_its_queue_cannot_hold_and_loses_nothing(tmp_path: Path) -> None:
    async def run(store: Any) -> None:
        talk = memory(store)
        for message in turns(0, 4):
            await talk.aput(message)
        active, archived = texts(await talk.aget_all(ACTIVE)), texts(await talk.aget_all(ARCHIVED))
        assert archived
        assert len(active) <= 4
        assert archived + active == texts(turns(0, 4))
        assert texts(await talk.aget()) == active
        again = memory(store)  # another worker
        await again.aput_messages(turns(4, 5))
        everything = texts(await again.aget_all(ARCHIVED)) + texts(await again.aget_all(ACTIVE))
        assert everything == texts(turns(0, 5)) == texts(await again.aget_all())
        await again.areset(ACTIVE)
        assert await again.aget_all(ACTIVE) == []
        assert texts(await again.aget_all()) == texts(await again.aget_all(ARCHIVED)) != []
        await again.aset(said("new"))
        assert texts(await again.aget_all()) == ["new"]
        await again.areset()
        assert await again.aget_all() == []

    over_both_stores(tmp_path, run)


def test_the_blocking_methods_of_a_memory_work_over_a_blocking_store() -> None:
    with everturn.open("sqlite://") as store:
        talk = memory(store, limit=1000)
        talk.put(ChatMessage("hello"))
        talk.put_messages(said("there"))
        assert texts(talk.get()) == ["hello", "there"]
        assert [message.text for message in store.get_history("s")] == ["hello", "there"]


def test_a_rollback_takes_archived_messages_back_into_the_queue() -> None:
    async def run(store: MemoryStore) -> None:
        chat = EverturnDBChatStore(store)
        await chat.add_messages("s", said("a", "b", "c"))
        before = store.save_snapshot("s")
        assert texts(await chat.archive_oldest_messages("s", 2)) == ["a", "b"]
        assert texts(await chat.get_messages("s")) == ["c"]
        store.rollback_to_snapshot("s", before)
        assert texts(await chat.get_messages("s")) == ["a", "b", "c"]

    with everturn.open("sqlite://") as store:
        asyncio.run(run(store))


def test_statuses_survive_that_others_are_removed(tmp_path: Path) -> None:
    async def run(store: MemoryStore) -> None:
        chat = EverturnDBChatStore(store)
        await chat.add_messages("s", said("a", "b", "c", "d", "e", "f"))
        await chat.archive_oldest_messages("s", 3)
        await chat.add_message("s", ChatMessage("old"), ARCHIVED)
        assert texts(await chat.get_messages("s", ARCHIVED)) == ["a", "b", "c", "old"]
        assert texts([await chat.delete_message("s", 1) or ChatMessage()]) == ["b"]
        assert texts(await chat.get_messages("s", ARCHIVED)) == ["a", "c", "old"]
        assert texts(await chat.get_messages("s", ACTIVE)) == ["d", "e", "f"]
        assert texts(await chat.delete_oldest_messages("s", 1)) == ["d"]
        assert texts(await chat.archive_oldest_messages("s", 1)) == ["e"]
        assert texts(await chat.get_messages("s", ARCHIVED)) == ["a", "c", "e", "old"]
        assert texts(await chat.get_messages("s", None, limit=2, offset=1)) == ["c", "e"]
        assert [await chat.count_messages("s", status) for status in (None, ACTIVE, ARCHIVED)] == [5, 1, 4]
        await chat.delete_messages("s", ARCHIVED)
        assert texts(await chat.get_messages("s", None)) == ["f"]
        assert await chat.archive_oldest_messages("s", 0) == await chat.delete_oldest_messages("s", 0) == []
        assert await chat.get_keys() == ["s"]

    with everturn.open("sqlite://") as store:
        asyncio.run(run(store))


def test_a_session_that_is_erased_while_it_is_read_reads_as_it_is_then() -> None:
    class Erased(EverturnDBChatStore):
        """Between the two steps of reading the queue."""

        def __init__(self, store: MemoryStore, then: list[ChatMessage]) -> None:
            super().__init__(store)

            async def interrupted(method: str, call: Coroutine[Any, Any, Any]) -> Any:
                answer = await call
                if method == "state":  # the first step, of two
                    self._sessions._store = self._runner.store
                    store.erase("s")
                    EverturnChatStore(store).set_messages("s", then)
                return answer

            self._sessions._store = WatchedStore(self._sessions._store, interrupted)  # type: ignore[assignment]

    async def run(store: MemoryStore) -> None:
        chat = EverturnDBChatStore(store)
        for word in ("a", "b", "c"):
            await chat.add_message("s", ChatMessage(word))
        assert texts(await Erased(store, said("new")).get_messages("s")) == ["new"]

    with everturn.open("sqlite://") as store:
        asyncio.run(run(store))
