"""Finding text: in every string of every entry that is shown, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everturn import ChatMessage, InvalidInput, Record, Summary, ToolCall, Unsupported
from tests.store.places import Place
from tests.store.speech import say, say_each, user


def where(matches: list[Any]) -> list[tuple[str, int]]:
    return [(match.session_id, match.entry.seq) for match in matches]


Found = Callable[..., list[int]]


@pytest.fixture
def found(place: Place, store: Any) -> Found:
    """The seqs of what is found in session "a"; and if that is the only one, so it is in all sessions."""

    def find(text: str, **options: Any) -> list[int]:
        matches = where(store.find(text, session_id="a", **options))
        assert not place.finds_everywhere or where(store.find(text, **options)) == matches
        return [seq for _, seq in matches]

    return find


def test_text_is_found_in_its_session(store: Any) -> None:
    say_each(store, "a", "the red fox", "the blue whale")
    assert store.find("whale", session_id="a")[0].entry == user("the blue whale")
    assert where(store.find("whale", session_id="a")) == [("a", 2)]


@pytest.mark.where(finds_everywhere=True)
def test_text_is_found_across_sessions(store: Any) -> None:
    say(store, "a", "fox")
    say_each(store, "b", "fox", "fox and fox", "hound")
    assert sorted(where(store.find("fox"))) == [("a", 1), ("b", 1), ("b", 2)]
    assert [match for match in where(store.find("fox")) if match[0] == "b"] == [("b", 2), ("b", 1)]
    assert len(store.find("fox", limit=2)) == 2
    store.clear("b")
    assert where(store.find("fox")) == [("a", 1)]


@pytest.mark.where(finds_everywhere=False)
def test_where_all_sessions_cannot_be_searched_that_is_said_with_what_to_do(store: Any) -> None:
    say(store, "a", "fox")
    with pytest.raises(Unsupported, match=r"name a session_id.*or use SQLite or PostgreSQL"):
        store.find("fox")


def test_text_is_found_in_one_session(store: Any) -> None:
    say(store, "a", "fox")
    say(store, "b", "fox")
    assert where(store.find("fox", session_id="b")) == [("b", 1)]
    assert store.find("fox", session_id="nobody") == []


def test_the_newest_comes_first(store: Any, found: Found) -> None:
    say_each(store, "a", "fox 1", "fox 2", "fox 3")
    assert found("fox") == [3, 2, 1]
    assert found("fox", limit=2) == [3, 2]
    assert found("fox", limit=0) == []


def test_ascii_letters_match_in_either_case(store: Any, found: Found) -> None:
    say(store, "a", "The Red FOX")
    assert found("red fox") == found("RED fox") == [1]


def test_other_letters_match_as_they_are(store: Any, found: Found) -> None:
    say(store, "a", "Ärger")
    assert found("ärger") == []
    assert found("Ärger") == [1]


@pytest.mark.parametrize(
    ("text", "decoy"),
    [
        ("100%", "100 percent"),
        ("a_b", "axb"),
        ("a*b", "aab"),
        ('say "hi"', "say hi"),
        ("back\\slash", "backslash"),
        ("it's", "its"),
        ("日本", "日木"),
        ("\U0001f600", "\U0001f601"),
        ("</script>", "<script>"),
        ("{a}", "{b}"),
        ("[1]", "1"),
    ],
)
def test_text_is_taken_literally(store: Any, found: Found, text: str, decoy: str) -> None:
    say_each(store, "a", f"before {text} behind", f"before {decoy} behind")
    assert found(text) == [1]


@pytest.mark.parametrize("text", ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "two\nlines", "a\tb", "a\u00a0b"])
def test_whatever_can_be_said_can_be_found(store: Any, found: Found, text: str) -> None:
    say(store, "a", f"before {text} behind")
    assert found(text) == [1]


def test_every_string_of_an_entry_is_searched(store: Any, found: Found) -> None:
    store.append(
        "a",
        [
            ChatMessage("user", [{"type": "text", "text": "fox"}]),
            user("x", name="fox"),
            user("x", metadata={"deep": [{"er": "a fox"}]}),
            ChatMessage.from_dict({"role": "user", "content": "x", "unknown": "fox"}),
            ToolCall("fox", {}),
            ToolCall("f", {"q": "fox"}),
            ToolCall("f", {}, result=["fox"]),
            ToolCall("f", {}, error="no fox"),
            Summary("about a fox", [1.0], (1, 1)),
            Record("r", {"animal": "fox"}),
        ],
    )
    assert found("fox") == list(range(10, 0, -1))


def test_field_names_and_encodings_are_not_text(store: Any, found: Found) -> None:
    store.append("a", [user("x", metadata={"k": 1}), Summary("s", [0.1, 0.2, 0.3], (1, 1))])
    for word in ("content", "metadata", "role", "zczMPc"):
        assert found(word) == []


def test_only_what_is_shown_is_found(store: Any, found: Found) -> None:
    say_each(store, "a", "fox 1", "fox 2")
    snapshot = store.save_snapshot("a")
    say(store, "a", "fox 3")
    store.rollback_to_snapshot("a", snapshot)
    assert found("fox") == [2, 1]
    store.trim("a", max_messages=1)
    assert found("fox") == [2]
    store.clear("a")
    assert found("fox") == []
    store.undo("a")
    assert found("fox") == [2]


def test_a_summary_of_what_was_trimmed_is_found(store: Any, found: Found) -> None:
    store.append("a", [user("1"), Summary("fox", [1.0], (1, 1))])
    say_each(store, "a", "2", "3")
    store.trim("a", max_messages=1)
    assert found("fox") == [2]


def test_the_limit_counts_what_is_shown(store: Any, found: Found) -> None:
    say(store, "a", "fox 1")
    say_each(store, "a", "fox 2", "fox 3")
    store.replace("a", [], after=1)
    assert found("fox", limit=1) == [1]


@pytest.mark.parametrize("text", ["", 7, None, b"fox", "x" * 1001, "\ud800"])
def test_what_is_no_text_is_refused(one_store: Any, text: object) -> None:
    with pytest.raises(InvalidInput, match=r"^text: "):
        one_store.find(text)


def test_a_negative_limit_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^limit: "):
        store.find("fox", limit=-1)
