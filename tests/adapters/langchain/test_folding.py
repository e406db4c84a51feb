"""LangChain's history over a session that is folded in another process."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage

import everturn
from everturn.adapters.langchain import EverturnChatMessageHistory
from tests.adapters.folding import LEFT, folding_elsewhere


def test_a_history_goes_on_while_another_process_folds_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    with everturn.open(url) as store:
        history = EverturnChatMessageHistory("c", store)
        for number in range(1, 5):
            history.add_messages([HumanMessage(f"q{number}"), AIMessage(f"a{number}")])
        with folding_elsewhere(url, "c") as fold:
            history.add_messages([HumanMessage("q5"), AIMessage("a5")])
            assert store.fold("c", pytest.fail, max_messages=LEFT) is None  # one model is paid
            assert len(history.messages) == 10
            fold.finish()
        assert [message.text for message in history.messages] == ["q3", "a3", "q4", "a4", "q5", "a5"]
        assert [summary.text for summary in store.get_context("c").summaries] == ["[q1 a1 q2 a2]"]
        store.undo("c")
        assert len(history.messages) == 10
