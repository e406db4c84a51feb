"""A history is read some entries at a time: all of them, in order, and damage is named by its entry, wherever it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, Record, Summary, ToolCall
from everturn.backend import FRONT_ENTRIES, FRONT_SUMMARIES, Query, drive
from everturn.backends.redis.reads import BATCH, FEW, PAGE, PAGES
from everturn.testing.servers import ValkeyServer
from tests.integration.redis.test_scripts import monitored
from tests.store.speech import say, user
from tests.store.test_context import PASTS as CONTEXT_PASTS

LOG = "everturn:{:a}:log"
SIZES = [1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH, PAGE - 1, PAGE, PAGE + 1, PAGE * (PAGES + 1) + 1]


@pytest.mark.parametrize("size", SIZES)
def test_every_message_is_read_in_order(store: Any, size: int) -> None:
    say(store, "a", *map(str, range(size)))
    history = store.get_history("a")
    assert [message.content for message in history] == [str(number) for number in range(size)]
    assert [message.seq for message in history] == list(range(1, size + 1))
    assert len({message.created_at for message in history}) == 1
    assert history == list(store.state("a", kind="message").entries)


@pytest.mark.parametrize("seq", [1, BATCH, BATCH + 1, 2 * BATCH])
def test_an_entry_that_is_no_message_may_stand_anywhere(store: Any, seq: int) -> None:
    """Also at the edge of what is read at a time."""
    turn: list[Any] = [user(str(number)) for number in range(1, 2 * BATCH + 1)]
    turn[seq - 1] = Record("odd", seq)
    store.append("a", turn)
    assert [message.seq for message in store.get_history("a")] == [n for n in range(1, 2 * BATCH + 1) if n != seq]
    assert [entry.seq for entry in store.state("a").entries] == list(range(1, 2 * BATCH + 1))
    assert [entry.body for entry in store.state("a", kind="odd").entries] == [seq]
    assert [message.seq for message in store.get_history("a", limit=3)][-1] == 2 * BATCH - (seq == 2 * BATCH)


def rewrite(client: Any, seq: int, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change the parts of a value. A stream's entries cannot be changed: it is written anew."""
    with client.pipeline(transaction=True) as pipe:
        pipe.delete(LOG)
        for name, fields in client.xrange(LOG):
            ((kind, value),) = fields.items()
            turned = b" ".join(change(value.split(b" ", 3))) if name == b"%d-0" % seq else value
            pipe.xadd(LOG, {kind: turned}, name)
        pipe.execute()


DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "no time": lambda parts: [parts[0], b"", *parts[2:]],
    "a time that is no number": lambda parts: [parts[0], b"noon", *parts[2:]],
    "two times": lambda parts: [parts[0], parts[1] + b"," + parts[1], *parts[2:]],
    "no checksum": lambda parts: [*parts[:2], b"", parts[3]],
    "two checksums": lambda parts: [*parts[:2], parts[2] + b"," + parts[2], parts[3]],
    "another checksum": lambda parts: [*parts[:2], b"1", parts[3]],
    "a part too few": lambda parts: parts[1:],
    "a part too many": lambda parts: [b"1", *parts],
    "another body": lambda parts: [*parts[:3], parts[3].replace(b"user", b"used")],
    "no body": lambda parts: parts[:3],
    "nothing": lambda _: [],
}


@pytest.mark.parametrize("damage", list(DAMAGES))
@pytest.mark.parametrize("seq", [1, BATCH, BATCH + 1, BATCH + 7])
def test_damage_is_named_by_its_entry(store: Any, client: Any, damage: str, seq: int) -> None:
    say(store, "a", *map(str, range(BATCH + 7)))
    rewrite(client, seq, DAMAGES[damage])
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("a")
    assert (caught.value.session_id, caught.value.seq) == ("a", seq)
    rest = store.get_history("a", on_corrupt="skip")
    assert [message.seq for message in rest] == [number for number in range(1, BATCH + 8) if number != seq]
    assert {problem.seq for problem in store.verify("a").problems} == {seq}


def test_the_first_of_several_is_named(store: Any, client: Any) -> None:
    """A number too many in one entry and one too few in another: the numbers between belong to their own entries."""
    say(store, "a", *map(str, range(9)))
    rewrite(client, 3, DAMAGES["two checksums"])
    rewrite(client, 7, DAMAGES["no checksum"])
    with pytest.raises(CorruptEntry) as caught:
        store.get_history("a")
    assert caught.value.seq == 3
    assert [message.seq for message in store.get_history("a", on_corrupt="skip")] == [1, 2, 4, 5, 6, 8, 9]


def test_an_entry_whose_id_is_not_ours_is_not_read(store: Any, client: Any) -> None:
    say(store, "a", "1", "2")
    client.xadd(LOG, {"message": "1 1 1 {}"}, "2-1")
    say(store, "a", "3")
    assert [message.content for message in store.get_history("a")] == ["1", "2", "3"]


def long_past(store: Any) -> None:
    """Make a session of more entries than are read at a time."""
    for start in range(0, 2 * PAGE, 200):
        say(store, "a", *map(str, range(start, start + 200)))


def edited(store: Any) -> None:
    """Roll back a thousand times: the path has a range for each."""
    after = say(store, "a", "first").seqs[-1]
    for number in range(1000):
        after = store.replace("a", [user(str(number)), user("dropped")], after=after).seqs[0]


@pytest.mark.parametrize("limit", [None, 1_050])
def test_a_history_of_more_ranges_than_one_answer_has_is_read_whole(store: Any, limit: int | None) -> None:
    """session_state.lua has room for 1,000 of them; walk.lua goes on."""
    after = 0
    for number in range(1_100):
        after = store.replace("a", [user(str(number)), user("dropped")], after=after).seqs[0]
    store.replace("a", [], after=after)
    said = [message.content for message in store.get_history("a", limit=limit)]
    assert said == [*map(str, range(1_100))][-(limit or 1_100) :]


def rolled_back(store: Any) -> None:
    """Roll back to long ago: none of the log's newest entries is in the history."""
    say(store, "a", *map(str, range(200)))
    snapshot = store.save_snapshot("a")
    say(store, "a", *["dropped"] * 500)
    store.rollback_to_snapshot("a", snapshot)


def mixed(store: Any) -> None:
    """Put tool calls, summaries and records between messages."""
    for number in range(150):
        turn = [user(str(number)), ToolCall("f", {}), Record("r", "x" * 100), Summary("s", [1.0], (1, 1))]
        store.append("a", turn * (1 + number % 3))


def behind_others(store: Any) -> None:
    """Let no message be among the latest thousand entries."""
    say(store, "a", *map(str, range(200)))
    store.append("a", [Record("r", number) for number in range(PAGE)])


def trimmed(store: Any) -> None:
    """Trim, so that only five messages stay, and system messages below them."""
    for number in range(30):
        store.add_messages("a", [ChatMessage("system", f"rule {number}"), user(str(number))])
    store.trim("a", max_messages=5)


def cleared(store: Any) -> None:
    """Clear, and go on."""
    long_past(store)
    store.clear("a")
    say(store, "a", *map(str, range(60)))


PASTS = [long_past, edited, rolled_back, mixed, behind_others, trimmed, cleared]


@pytest.mark.parametrize("past", PASTS, ids=lambda past: past.__name__)
@pytest.mark.parametrize("limit", [1, 20, 100])
def test_the_latest_messages_take_one_round_trip_and_no_entry_more(
    server: ValkeyServer, past: Callable[[Any], None], limit: int
) -> None:
    """However long the session is, and whatever was done to it: an agent asks for them at every turn. Pages before them
    are read in the same way."""
    with everturn.open(server.url, timeout=30) as store, monitored(server) as told:
        past(store)
        everything = store.get_history("a")
        store.get_history("a", limit=1)  # from here on, the server knows the script
        before: int | None = None
        for page in range(3):
            told()
            found = store.get_history("a", limit=limit, before=before)
            commands = told()
            end = len(everything) - page * limit
            assert found == everything[max(0, end - limit) : max(0, end)]
            assert [words[0] for by_script, words in commands if not by_script] == ["EVALSHA"]
            assert entries_read(commands) == len(found)
            before = found[0].seq if found else before


@pytest.mark.parametrize("past", CONTEXT_PASTS, ids=lambda past: past.__name__)
def test_a_context_takes_one_round_trip(server: ValkeyServer, past: Callable[[Any], None]) -> None:
    """And it fetches what it returns, and the few entries that tell where the system messages end."""
    with everturn.open(server.url, timeout=30) as store, monitored(server) as told:
        past(store)
        store.get_context("a", max_messages=10)  # from here on, the server knows the script
        told()
        context = store.get_context("a", max_messages=10)
        commands = told()
        assert [words[0] for by_script, words in commands if not by_script] == ["EVALSHA"]
        assert entries_read(commands) <= len(context.messages) + 1 + FRONT_ENTRIES + FRONT_SUMMARIES + 1


def test_a_long_context_takes_one_round_trip(server: ValkeyServer) -> None:
    with everturn.open(server.url, timeout=30) as store, monitored(server) as told:
        store.add_messages("a", [ChatMessage("system", "s")])
        for number in range(300):
            say(store, "a", str(number), "answer")
        store.fold("a", lambda *_: "so far", max_messages=580)
        store.get_context("a", max_messages=500)
        told()
        context = store.get_context("a", max_messages=500)
        assert [words[0] for by_script, words in told() if not by_script] == ["EVALSHA", "XREVRANGE"]  # one pipeline
        assert [message.text[-6:] for message in context.messages[:2]] == ["s", "so far"]


def entries_read(commands: list[tuple[bool, list[str]]]) -> int:
    """Count the entries of the log that the commands ask for."""
    asked = [words for _, words in commands if words[0] in ("XRANGE", "XREVRANGE") and words[1] == LOG]
    return sum(int(words[3].partition("-")[0]) - int(words[2].partition("-")[0]) + 1 for words in asked)


@pytest.mark.parametrize("past", PASTS, ids=lambda past: past.__name__)
def test_the_latest_entries_of_all_kinds_take_one_round_trip(server: ValkeyServer, past: Callable[[Any], None]) -> None:
    """As trim reads them, at the present version or at an earlier one."""
    with everturn.open(server.url, timeout=30) as store, monitored(server) as told:
        past(store)
        backend: Any = store._operations.backend
        for at in (None, store.info("a").version):
            rows: list[Any] = []
            told()
            reading = drive(backend.read(Query("a", limit=20, at=at), rows.extend, time.monotonic() + 30))
            outside = [words[0] for by_script, words in told() if not by_script and words[0] != "EVAL"]
            assert outside in (["EVALSHA"], ["EVALSHA", "XRANGE"])  # the latter fetches summaries of what a trim hid
            everything = [entry.seq for entry in store.state("a").entries]
            assert [row[0] for row in rows] == everything[-len(rows) :]
            messages = [row for row in rows if row[4] == "message"]
            assert len(messages) == min(20, reading.state.messages)
            assert reading.cut == (reading.state.messages > 20)


@pytest.mark.parametrize("limit", [1, 20, FEW, FEW + 1, 500, PAGE + 10])
def test_the_latest_messages_are_found_behind_many_other_entries(store: Any, limit: int) -> None:
    said = [*map(str, range(2 * PAGE + 50))]
    for start in range(0, len(said), 150):
        say(store, "a", *said[start : start + 150])
        store.append("a", [Record("r", number) for number in range(90)])
    assert [one.content for one in store.get_history("a", limit=limit)] == said[-limit:]
