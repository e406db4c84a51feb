"""Text search looks into every string of an entry, and ignores the case of ASCII letters only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everturn import ChatMessage, Record, Summary, ToolCall
from everturn.core import text_search
from tests.unit.examples import few


@few
@given(text=st.text(max_size=8), part=st.text(min_size=1, max_size=3))
def test_mentions_looks_into_every_string_and_folds_ascii_only(text: str, part: str) -> None:
    found = text_search.fold(part) in text_search.fold(text)
    for entry in (
        ChatMessage("\x00", text),
        ChatMessage("\x00", [{"text": [text]}]),
        ChatMessage("\x00", "", extra={"x": {"y": text}}),
        ToolCall("\x00", [text]),
        ToolCall("\x00", None, result={"r": text}),
        Record("\x00", {"deep": [text]}),
        Summary(text, (1.0,), (0, 0)),
    ):
        if "\x00" not in part:
            assert text_search.mentions(entry, part) == found
    assert text_search.fold("AZaz") == "azaz"
    assert text_search.fold("ÄÖÜÅ\u212a") == "ÄÖÜÅ\u212a"
