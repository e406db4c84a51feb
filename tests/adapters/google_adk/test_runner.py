"""A real Runner with a scripted model: a tool-calling conversation across two processes, and back again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.adk.errors import InvocationNotFoundError

import everturn
from everturn.adapters.google_adk import EverturnSessionService
from tests.adapters.checking import ask, shows
from tests.adapters.google_adk import worker
from tests.adapters.google_adk.stories import loaded, texts

OF = {"app_name": "shop", **worker.OF}


def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    first = ask(worker.main, url, "Where is my order?")
    assert first["answer"] == "It is in Bern with 1234 (seen 3)"
    assert len(first["session"]["events"]) == 4
    second = ask(worker.main, url, "What did I say?")
    assert second["answer"] == "You began with 'Where is my order?' (seen 5)"
    assert second["session"]["events"][:4] == first["session"]["events"]
    assert second["session"]["state"] == {"order": 1234, "user:tracked": 1, "answer": second["answer"]}
    with everturn.open(url) as store:
        history = store.get_history("shop/ann/42")
        assert [message.role for message in history] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert [message.name for message in history[1:3]] == ["orders", "track"]
        assert store.verify().ok
    said = ("Where is my order?", "assistant (orders)", '-> track({"order":1234})', "in Bern with 1234", "(seen 5)")
    shows(url, "shop/ann/42", *said)


def test_a_rewind_takes_events_and_state_back_and_keeps_what_the_session_began_with() -> None:
    async def story() -> None:
        with everturn.open("sqlite://") as store:
            service = EverturnSessionService(store)
            await service.create_session(**OF, state={"language": "de", "order": "none", "app:theme": "dark"})
            running = worker.runner(service)
            await worker.ask(running, "Where is my order?")
            before = await loaded(service, **OF)
            await worker.ask(running, "What did I say?")
            after = await loaded(service, **OF)
            await running.rewind_async(**worker.OF, rewind_before_invocation_id=after.events[-1].invocation_id)
            back = await loaded(service, **OF)
            assert back.state == before.state
            assert texts(back) == texts(after)  # they stay; ADK leaves them out of what a model sees
            answer = await worker.ask(running, "Hello?")
            assert answer == "You began with 'Where is my order?' (seen 5)"
            await running.rewind_async(**worker.OF, rewind_before_invocation_id=after.events[0].invocation_id)
            first = await loaded(service, **OF)
            assert first.state == {
                "language": "de",
                "order": "none",
                "answer": None,
                "app:theme": "dark",
                "user:tracked": 1,
            }
            assert await worker.ask(running, "Hello?") == "You began with 'Hello?' (seen 1)"
            with pytest.raises(InvocationNotFoundError):
                await running.rewind_async(**worker.OF, rewind_before_invocation_id="nowhere")

    asyncio.run(story())


def test_two_runs_of_one_session_at_once_lose_nothing_in_silence() -> None:
    async def story() -> None:
        async with await everturn.open_async("sqlite://") as store:
            service = EverturnSessionService(store)
            await service.create_session(**OF)
            questions = [f"Question {number}?" for number in range(4)]
            runs = [worker.ask(worker.runner(service), question) for question in questions]
            done = await asyncio.gather(*runs, return_exceptions=True)
            assert any(isinstance(answer, Exception) for answer in done)
            kept = texts(await loaded(service, **OF))
            for question, answer in zip(questions, done, strict=True):
                if isinstance(answer, str):
                    assert question in kept
                    assert answer in kept
                else:
                    assert "load it again with get_session" in str(answer)

    asyncio.run(story())
