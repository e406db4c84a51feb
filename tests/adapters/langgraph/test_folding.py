"""A graph whose conversation is a session of its own: one node reads what fits, another folds."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

import everturn
from everturn import ChatMessage, MemoryStore
from everturn.adapters.langgraph import EverturnSaver, to_langchain
from everturn.core.prompts import SUMMARY_PREFIX
from tests.adapters.folding import LEFT, folding_elsewhere, summarize

TALK = "c/talk"


class Turn(TypedDict, total=False):
    question: str
    answer: str


class Graph:
    """The graph of the docs, with a model that remembers its prompts."""

    def __init__(self, store: MemoryStore, *, fold_at: int) -> None:
        self._store, self._fold_at = store, fold_at
        self.prompts: list[list[str]] = []
        builder = StateGraph(Turn)
        builder.add_node("answer", self._answer)
        builder.add_node("fold", self._fold)
        builder.add_edge(START, "answer")
        builder.add_edge("answer", "fold")
        self._graph = builder.compile(checkpointer=EverturnSaver(store))

    def _answer(self, state: Turn) -> Turn:
        question = ChatMessage("user", state["question"])
        prompt = to_langchain([*self._store.get_context(TALK).messages, question])
        self.prompts.append([message.text for message in prompt])
        answer = f"a{state['question'][1:]}"
        self._store.add_messages(TALK, [question, ChatMessage("assistant", answer)], key=state["question"])
        return {"answer": answer}

    def _fold(self, _: Turn) -> Turn:
        if self._store.get_context(TALK, max_messages=self._fold_at).left_out:
            self._store.fold(TALK, summarize, max_messages=LEFT)
        return {}

    def ask(self, question: str) -> str:
        config: RunnableConfig = {"configurable": {"thread_id": "c"}}
        answer: str = self._graph.invoke({"question": question}, config)["answer"]
        return answer


def test_a_node_folds_when_the_conversation_is_long(tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path}/memory.db") as store:
        graph = Graph(store, fold_at=6)
        assert [graph.ask(f"q{number}") for number in range(1, 7)] == [f"a{number}" for number in range(1, 7)]
        assert graph.prompts[3] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4"]
        assert graph.prompts[4] == [f"{SUMMARY_PREFIX}[q1 a1 q2 a2]", "q3", "a3", "q4", "a4", "q5"]
        assert len(store.get_history(TALK)) == LEFT  # and the checkpoints of the thread are not in it


def test_a_thread_goes_on_while_another_process_folds_its_conversation(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store:
        graph = Graph(store, fold_at=100)
        for number in range(1, 5):
            graph.ask(f"q{number}")
        with folding_elsewhere(url, TALK) as fold:
            assert graph.ask("q5") == "a5"
            assert store.fold(TALK, pytest.fail, max_messages=LEFT) is None  # one model is paid
            fold.finish()
        graph.ask("q6")
        assert graph.prompts[-1] == [f"{SUMMARY_PREFIX}[q1 a1 q2 a2]", "q3", "a3", "q4", "a4", "q5", "a5", "q6"]
