"""Any two different session ids never share or shadow data, whatever characters they hold."""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import strategies as st

import everturn
from everturn import InvalidInput, Record, SessionNotFound, Summary
from tests.store.places import Place
from tests.store.speech import made_up, say, words

FAMILIES = {
    "case": ["session", "Session", "SESSION", "sessioN"],
    "prefixes": ["a", "aa", "aaa", "a:", "a:b", "a:b:c"],
    "wildcards": ["%", "_", "*", "?", "a%", "a_", "a*", "ab", "[ab]", "[!a]", "^", "a?", "\\%", "\\"],
    "unicode forms": [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    + ["e", "ﬁ", "fi", "\u017f", "s", "K", "K"],
    "white space": [
        " ",
        "  ",
        "\t",
        "\n",
        "a",
        " a",
        "a ",
        " a ",
        "a\n",
        "a\r\n",
        "\u00a0",
        "\u200b",
        "a\u200b",
        "\ufeffa",
    ],
    "separators": ["a/b", "a//b", "a.b", "a|b", "a,b", "a;b", "a-b", "a b", "/", ".", "..", "../a", "a\x1fb", "a\x01b"],
    "braces": ["{a}", "a", "{a", "a}", "{}", "{}a", "{a}b", "{a}:b", "a:{b}", "{{a}}", "{a}{b}", "%7Ba%7D", ":", "::"],
    "quotes": ["'", '"', "''", "a'b", 'a"b', "a' OR '1'='1", "a; DROP TABLE sessions", "--", "a\\'b", "`a`"],
    "numbers": ["1", "01", "1.0", "+1", "1e0", " 1", "True", "None", "null", "0", "-0", "\u0661"],
    "long": ["x" * 512, "x" * 511, "x" * 511 + "y", "é" * 256, "é" * 255 + "xy", "\U0001f600" * 128],
}
FAMILIES = {name: list(dict.fromkeys(members)) for name, members in FAMILIES.items()}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_sessions_that_look_alike_are_kept_apart(store: Any, family: str) -> None:
    members = FAMILIES[family]
    for number, name in enumerate(members):
        say(store, name, f"{number}", key="same key")
        store.add_summary(name, Summary(f"{number}", [1.0], (1, 1)))
    store.clear(members[0])
    store.erase(members[1])
    assert words(store, members[0]) == []
    assert words(store, members[1]) == []
    for number, name in enumerate(members[2:], 2):
        assert words(store, name) == [f"{number}"]
        assert [hit.summary.text for hit in store.search_summaries(name, [1.0])] == [f"{number}"]
        assert [match.session_id for match in store.find(f"{number}", session_id=name)] == [name] * 2
        assert (store.info(name).session_id, store.info(name).version) == (name, 2)
    assert [info.session_id for info in store.sessions().sessions] == sorted(members[:1] + members[2:], key=str.encode)
    assert store.verify().ok


ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


def test_any_ids_are_kept_apart(place: Place) -> None:
    store = place.open()

    @made_up(place, names=st.lists(ids, unique=True, min_size=2))
    def check(names: list[str]) -> None:
        for name in names:
            say(store, name, name)
        assert [words(store, name) for name in names] == [[name] for name in names]
        assert [info.session_id for info in store.sessions(limit=1000).sessions] == sorted(names, key=str.encode)
        for name in names:
            store.erase(name)
        assert store.sessions().sessions == ()


BAD_IDS: list[Any] = ["", "x" * 513, "é" * 257, "a\0b", "\0", "\ud800", "a\udfffb", None, 7, 1.5, b"a", ["a"], object()]


@pytest.mark.parametrize("session_id", BAD_IDS, ids=lambda value: ascii(value)[:12])
def test_an_id_that_is_none_is_refused_everywhere(one_store: Any, session_id: Any) -> None:
    calls = {
        "add_messages": lambda: one_store.add_messages(session_id, []),
        "append": lambda: one_store.append(session_id, []),
        "replace": lambda: one_store.replace(session_id, []),
        "save_context": lambda: one_store.save_context(session_id, "q", "a"),
        "load_memory": lambda: one_store.load_memory(session_id),
        "get_history": lambda: one_store.get_history(session_id),
        "add_tool_call": lambda: one_store.add_tool_call(session_id, everturn.ToolCall("f", {})),
        "get_tool_calls": lambda: one_store.get_tool_calls(session_id),
        "add_summary": lambda: one_store.add_summary(session_id, Summary("s", [1.0], (1, 1))),
        "get_summaries": lambda: one_store.get_summaries(session_id),
        "search_summaries": lambda: one_store.search_summaries(session_id, [1.0]),
        "save_snapshot": lambda: one_store.save_snapshot(session_id),
        "list_snapshots": lambda: one_store.list_snapshots(session_id),
        "delete_snapshot": lambda: one_store.delete_snapshot(session_id, "s"),
        "rollback": lambda: one_store.rollback_to_snapshot(session_id, "s"),
        "undo": lambda: one_store.undo(session_id),
        "diff": lambda: one_store.diff(session_id, 0),
        "fork": lambda: one_store.fork(session_id, "b"),
        "trim": lambda: one_store.trim(session_id, max_messages=1),
        "clear": lambda: one_store.clear(session_id),
        "erase": lambda: one_store.erase(session_id),
        "state": lambda: one_store.state(session_id),
        "info": lambda: one_store.info(session_id),
        "changes": lambda: one_store.changes(session_id),
        "set_ttl": lambda: one_store.set_ttl(session_id, 1),
    }
    if session_id is not None:  # None: all of them
        calls["verify"] = lambda: one_store.verify(session_id)
        calls["compact"] = lambda: one_store.compact(session_id)
        calls["find"] = lambda: one_store.find("x", session_id=session_id)
    for name, call in calls.items():
        with pytest.raises(InvalidInput, match=r"^session_id: "):
            raise AssertionError(f"{name} took it: {call()!r}")


def test_a_fork_into_an_id_that_is_none_is_refused(store: Any) -> None:
    say(store, "a", "1")
    with pytest.raises(InvalidInput, match=r"^new_session_id: "):
        store.fork("a", "")


def test_an_id_may_have_512_bytes(store: Any) -> None:
    say(store, "é" * 256, "1")
    assert words(store, "é" * 256) == ["1"]


# --- namespaces ----------------------------------------------------------------------------------------------------


@pytest.fixture
def spaces(lasting: Place) -> dict[str, Any]:
    return {name: lasting.open(namespace=name) for name in ("", "x", "X", "x:", "x%")}


def test_namespaces_share_nothing(spaces: dict[str, Any]) -> None:
    for name, store in spaces.items():
        say(store, "a", f"in {name}", key="k")
    for name, store in spaces.items():
        assert words(store, "a") == [f"in {name}"]
        assert [info.session_id for info in store.sessions().sessions] == ["a"]
        assert [match.entry.content for match in store.find("in", session_id="a")] == [f"in {name}"]


def test_a_member_of_an_enumeration_names_the_namespace_of_its_text(lasting: Place) -> None:
    class Tenant(StrEnum):
        ACME = "acme"

    one, two = lasting.open(namespace=Tenant.ACME), lasting.open(namespace="acme")
    say(one, "a", "1")
    two.append("a", [Record("note", 1)], expected_version=1)
    for store in (one, two):
        assert store.info("a").version == 2
        assert words(store, "a") == ["1"]


@pytest.mark.where(orders_by_change=True, finds_everywhere=True)
def test_what_goes_over_all_sessions_stays_in_its_namespace(spaces: dict[str, Any]) -> None:
    for name, store in spaces.items():
        say(store, "a", f"in {name}")
    for name, store in spaces.items():
        assert [info.session_id for info in store.sessions(order="recent").sessions] == ["a"]
        assert [match.entry.content for match in store.find("in")] == [f"in {name}"]


def test_a_snapshot_of_another_namespace_is_refused(spaces: dict[str, Any]) -> None:
    say(spaces["x"], "a", "1")
    say(spaces[""], "a", "2")
    snapshot = spaces["x"].save_snapshot("a")
    with pytest.raises(everturn.SnapshotNotFound):
        spaces[""].rollback_to_snapshot("a", snapshot)


def test_erase_stays_in_its_namespace(spaces: dict[str, Any]) -> None:
    for store in spaces.values():
        say(store, "a", "1")
    spaces["x"].erase("a")
    with pytest.raises(SessionNotFound):
        spaces["x"].info("a")
    assert [words(store, "a") for name, store in spaces.items() if name != "x"] == [["1"]] * 4


def test_namespace_and_name_do_not_run_together(lasting: Place) -> None:
    one, two = lasting.open(namespace="a"), lasting.open(namespace="ab")
    say(one, "bc", "one")
    say(two, "c", "two")
    assert (words(one, "bc"), words(two, "c"), words(one, "c")) == (["one"], ["two"], [])


@pytest.mark.where(shared=True)
def test_a_namespace_may_stand_in_the_url(lasting: Place) -> None:
    say(lasting.open(namespace="x"), "a", "1")
    with everturn.open(f"{lasting.url}?namespace=x") as store:
        assert words(store, "a") == ["1"]


@pytest.mark.parametrize("namespace", [7, "a\0b", "x" * 513, "\ud800"])
def test_a_namespace_that_is_none_is_refused(namespace: object) -> None:
    with pytest.raises(InvalidInput, match=r"^namespace: "):
        everturn.open("sqlite://", namespace=namespace)
