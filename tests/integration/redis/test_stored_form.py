"""What is in the server: names that cannot collide, one expiry for all keys, and no more memory than promised."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from everturn import ChatMessage, CorruptEntry, Record, Summary, ToolCall
from everturn.backends.redis.keys import KeyNames, escape, unescape
from everturn.core import codec
from everturn.testing.servers import ValkeyServer
from tests.store.speech import say, user, words

HOSTILE = ["a", "a:b", "{a}", "}", "{", "a}:meta", "%", "%7B", "a%3Ab", ":", "é", "*", "[a]", "a b", "\n"]


def test_no_two_sessions_share_a_key() -> None:
    keys = [key for space, name in product(HOSTILE, HOSTILE) for key in KeyNames(space).keys(name)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", HOSTILE)
def test_all_keys_of_a_session_are_in_one_slot(name: str) -> None:
    from redis.crc import key_slot

    keys = KeyNames(name).keys(name) + KeyNames(name).staged(name, b"call")
    assert len({key_slot(key) for key in keys}) == 1
    assert KeyNames(name).session_of(keys[0]) == name
    assert unescape(escape(name)) == name


def test_hostile_names_are_sessions_of_their_own(store: Any) -> None:
    for name in HOSTILE:
        say(store, name, name)
    assert [words(store, name) for name in HOSTILE] == [[name] for name in HOSTILE]
    assert sorted(session.session_id for session in store.sessions().sessions) == sorted(HOSTILE)


def full_session(store: Any, name: str = "a") -> None:
    """A session that has every kind of key."""
    store.append(name, [user("1"), ToolCall("f", {}), Summary("s", [1.0], (1, 1)), Record("r", {})], key="k")
    store.save_snapshot(name, "label")
    say(store, name, "dropped")
    store.replace(name, [Record("r", {})], after=4)


def test_every_key_expires_at_the_same_time(store: Any, client: Any) -> None:
    full_session(store)
    assert {client.ttl(key) for key in client.keys("*")} == {-1}
    store.set_ttl("a", 100)
    assert len(client.keys("*")) == 6
    assert len({client.pexpiretime(key) for key in client.keys("*")}) == 1
    assert 90_000 < client.pttl("everturn:{:a}:meta") <= 100_001
    store.set_ttl("a", None)
    assert {client.ttl(key) for key in client.keys("*")} == {-1}


def test_a_change_refreshes_the_expiry_of_every_key(store: Any, client: Any) -> None:
    full_session(store)
    store.set_ttl("a", 100)
    for key in client.keys("*"):
        client.pexpire(key, 50_000)
    say(store, "a", "2")
    assert len({client.pexpiretime(key) for key in client.keys("*")}) == 1
    assert client.pttl("everturn:{:a}:log") > 90_000


def test_a_fork_of_a_session_that_expires_expires_as_a_whole(store: Any, client: Any) -> None:
    import everturn

    brief = everturn.from_client(client, ttl=100)
    full_session(store)
    brief.fork("a", "b")
    keys = client.keys("everturn:{:b}:*")
    assert sorted(key.rpartition(b":")[2] for key in keys) == [b"changes", b"jumps", b"log", b"meta", b"others"]
    assert len({client.pexpiretime(key) for key in keys}) == 1


def test_an_expired_session_leaves_nothing(server: ValkeyServer, client: Any) -> None:
    import everturn
    from everturn.testing.servers import wait_until

    with everturn.open(server.url, ttl=0.05) as store:
        full_session(store)
        wait_until(lambda: store.get_history("a") == [], "the session expires")
        assert client.keys("*") == []
        assert say(store, "a", "new").version == 1


def test_ten_thousand_messages_cost_at_most_half_more_than_their_json(store: Any, client: Any) -> None:
    turn = [ChatMessage("user", "x" * 200), ChatMessage("assistant", "y" * 200)]
    for _ in range(5000):
        store.add_messages("a", turn)
    memory = sum(client.memory_usage(key, samples=0) for key in client.keys("*"))
    assert memory <= 1.5 * store.info("a").bytes
    assert store.info("a").bytes > 2_000_000


def test_what_is_remembered_of_changes_is_bounded(store: Any, client: Any) -> None:
    for number in range(2500):
        say(store, "a", "x", key=f"k{number}")
    assert 1024 <= client.xlen("everturn:{:a}:changes") < 1024 + 64
    assert say(store, "a", "x", key="k1").replayed
    assert len(store.changes("a", limit=2000)) >= 1024


def test_keys_go_with_their_changes_and_their_turns(store: Any, client: Any) -> None:
    def remembered() -> set[int]:
        """The numbers of the keys that are remembered, by what they are stored as."""
        digests = {codec.digest(f"k{number}".encode()): number for number in range(1200)}
        fields = {field for field in client.hkeys("everturn:{:a}:meta") if field[:1] == b"k"}
        turns = [field for field in client.hkeys("everturn:{:a}:meta") if field[:1] == b"t" and field != b"ttl"]
        assert len(turns) == len(fields)
        return {digests[field[1:]] for field in fields}

    for number in range(100):
        say(store, "a", "x", "y", key=f"k{number}")
    for _ in range(11):  # so that no undo step reaches them
        store.replace("a", [user("z")], after=2 * 40)
    store.compact("a")
    assert remembered() == set(range(100)), "their changes are remembered"
    for number in range(100, 1200):
        say(store, "a", "x", key=f"k{number}")
    assert remembered() == {*range(40), *range(100, 1200)}
    for _ in range(11):
        store.replace("a", [user("z")], after=2 * 20)
    store.compact("a")
    assert not {*range(20, 40)} & remembered(), "neither a change nor an entry is left of them"
    assert remembered() >= set(range(20))
    assert say(store, "a", "x", "y", key="k7").replayed


def test_trimmed_and_compacted_entries_give_their_memory_back(store: Any, client: Any) -> None:
    for _ in range(3000):
        say(store, "a", "x" * 200)
    before = client.memory_usage("everturn:{:a}:log", samples=0)
    store.trim("a", max_messages=10)
    for _ in range(11):
        store.replace("a", [user("z")], after=0)
    assert store.compact("a").entries > 2900
    assert client.memory_usage("everturn:{:a}:log", samples=0) < before / 50
    assert store.verify("a").ok


def test_a_session_without_its_meta_is_corrupt_and_not_empty(store: Any, client: Any) -> None:
    full_session(store)
    client.delete("everturn:{:a}:meta")
    with pytest.raises(CorruptEntry, match="meta"):
        store.get_history("a")
    with pytest.raises(CorruptEntry, match="meta"):
        say(store, "a", "2")
    assert not store.verify().ok
    store.erase("a")
    assert say(store, "a", "2").version == 1


def test_a_session_without_its_log_is_corrupt_and_not_empty(store: Any, client: Any) -> None:
    full_session(store)
    client.delete("everturn:{:a}:log")
    for read in (store.get_history, store.get_tool_calls, store.get_summaries, store.state):
        with pytest.raises(CorruptEntry):
            read("a")
    assert not store.verify("a").ok


@pytest.mark.parametrize("text", [b"", b"x", b"1 2", b"9 0 0 1 zz"])
def test_a_state_that_cannot_be_read_is_corrupt(store: Any, client: Any, text: bytes) -> None:
    say(store, "a", "1")
    client.hset("everturn:{:a}:meta", "state", text)
    with pytest.raises(CorruptEntry):
        store.get_history("a")


FIELDS = ["version", "last_seq", "state", "bytes", "changed_at", "life", "created_at", "dimension", "ttl", "expires_at"]


def meta_with(store: Any, client: Any, field: str, value: str | None) -> None:
    """A session one of whose facts is damaged."""
    client.flushdb()
    say(store, "a", "1", "2")
    if value is None:
        client.hdel("everturn:{:a}:meta", field)
    else:
        client.hset("everturn:{:a}:meta", field, value)


def lengths(client: Any) -> list[int]:
    return [client.xlen(f"everturn:{{:a}}:{part}") for part in ("log", "changes")]


@pytest.mark.parametrize("value", ["x", "", "nan", "1.5", "0x10", None])
@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_fact_is_corruption_or_harmless(store: Any, client: Any, field: str, value: str | None) -> None:
    for call in (store.get_history, store.info, store.state, lambda name: say(store, name, "3"), store.clear):
        meta_with(store, client, field, value)
        before = lengths(client)
        try:
            call("a")
        except CorruptEntry:
            assert lengths(client) == before


@pytest.mark.parametrize("value", ["x", "", "nan", "1.5", "0x10", None])
@pytest.mark.parametrize("field", FIELDS)
def test_a_session_can_be_erased_whatever_is_damaged(store: Any, client: Any, field: str, value: str | None) -> None:
    meta_with(store, client, field, value)
    assert store.erase("a").entries == 2
    assert client.keys("everturn:*") == [b"everturn:{:a}:meta"]
    assert set(client.hkeys("everturn:{:a}:meta")) <= {b"fence", b"calls"}  # its tombstone


def test_a_missing_entry_is_named(store: Any, client: Any) -> None:
    for word in "1234":
        say(store, "a", word)
    client.xdel("everturn:{:a}:log", "3-0")
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("a")
    assert caught.value.seq == 3
    assert words(store, "a", on_corrupt="skip") == ["1", "2", "4"]


def test_an_effect_that_was_changed_by_hand_is_loud(store: Any, client: Any) -> None:
    store.once("a", "pay", lambda: "paid")
    kept = client.hget("everturn:{:a}:meta", "effect:pay")
    client.hset("everturn:{:a}:meta", "effect:pay", kept.replace(b"finished", b"failed"))
    for ask in (lambda: store.get_effects("a"), lambda: store.once("a", "pay", lambda: "paid again")):
        with pytest.raises(CorruptEntry):
            ask()
    assert not store.verify().ok
