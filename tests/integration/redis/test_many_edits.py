"""Sessions that were edited often: the same history as elsewhere, scripts that work no longer, nothing kept in vain."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

import everturn
from everturn import InvalidInput, MemoryStoreBackendError, Record, Summary, ToolCall
from everturn.backends.redis import fork_session, maintenance, session_state, staged_rows
from everturn.backends.redis.client import Sender
from everturn.testing.servers import ValkeyServer
from tests.integration.redis.test_scripts import monitored
from tests.store.speech import say, user, words
from tests.tiers import first

JUMPS = "everturn:{:a}:jumps"


def edited(store: Any, chance: random.Random) -> None:
    """One random edit of session "a", the same on every store that is given the same chance."""
    seqs = [0, *(entry.seq for entry in store.state("a").entries)]
    name = f"{chance.random():.4f}"
    turn = [user(name), ToolCall(name, {}), Summary(name, [1.0], (1, 1)), Record("r", name), user("x")]
    act = chance.randrange(10)
    if act < 5:
        near = seqs[-6:] if chance.random() < 0.9 else seqs
        store.replace("a", chance.sample(turn, chance.randint(1, 3)), after=chance.choice(near))
    elif act < 7:
        store.append("a", chance.sample(turn, 2))
    elif act == 7:
        store.save_snapshot("a")
    elif act == 8 and store.list_snapshots("a"):
        store.rollback_to_snapshot("a", chance.choice(store.list_snapshots("a")))
    elif act == 9 and chance.random() < 0.2:
        store.trim("a", max_messages=30)


def seen(store: Any, chance: random.Random) -> list[Any]:
    """Reads of which each takes another way along the path."""
    last = store.info("a").last_seq
    low, high = sorted((chance.randrange(last + 2), chance.randrange(1, last + 2)))
    return [
        store.get_history("a", limit=chance.randrange(1, 30)),
        store.get_history("a", after=low, before=high + 1),
        store.get_history("a", before=high, limit=3),
        store.state("a", after=low, before=high + 1).entries,
        store.state("a", kind="r", before=high).entries,
        store.get_tool_calls("a"),
        store.get_summaries("a"),
        store.state("a"),
    ]


def took(store: Any, after: int) -> bool:
    """Whether this seq is on the path to the head."""
    try:
        store.replace("a", [user("y")], after=after)
    except InvalidInput:
        return False
    store.undo("a")
    return True


@pytest.mark.parametrize("seed", first(2, range(6)))
def test_a_path_of_many_jumps_is_the_same_as_on_another_backend(
    store: Any, client: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(session_state, "PAGE", 7)
    monkeypatch.setattr(maintenance, "STEP", 13)
    with everturn.open("sqlite://") as other:
        for one in (store, other):
            say(one, "a", "start")
        chances = random.Random(seed), random.Random(seed)
        for step in range(150):
            for one, chance in zip((store, other), chances, strict=True):
                edited(one, chance)
            if step % 5 == 0:
                ours, theirs = (seen(one, chance) for one, chance in zip((store, other), chances, strict=True))
                assert timeless(ours) == timeless(theirs)
                afters = [chance.randrange(store.info("a").last_seq + 1) for chance in chances]
                assert took(store, afters[0]) == took(other, afters[1])
            if step % 40 == 39:
                store.compact("a")
                assert store.verify("a").ok
        assert client.zcard(JUMPS) > 20
        store.fork("a", "b")
        assert timeless(store.get_history("b")) == timeless(other.get_history("a"))
        assert store.verify().ok


def timeless(value: Any) -> str:
    """As text, without times."""
    parts = repr(value).replace(", ", ",\n").splitlines()
    return "\n".join(part for part in parts if "created_at=" not in part and "life=" not in part)


ACTS: dict[str, Callable[[Any, Any], Any]] = {
    "append": lambda store, _: say(store, "a", "x"),
    "the latest 20": lambda store, _: store.get_history("a", limit=20),
    "replace far back": lambda store, _: store.replace("a", [user("y")], after=3),
    "undo": lambda store, _: store.undo("a"),
    "replace near": lambda store, _: store.replace("a", [user("y")], after=store.get_history("a", limit=3)[0].seq),
    "snapshot": lambda store, _: store.save_snapshot("a"),
    "rollback": lambda store, snapshot: store.rollback_to_snapshot("a", snapshot),
    "info": lambda store, _: store.info("a"),
}


def test_scripts_work_hardly_more_at_a_thousand_edits_than_at_ten(server: ValkeyServer) -> None:
    """The path has as many ranges as there were edits; a way past all of them takes log n steps."""
    work: list[dict[str, int]] = []
    with everturn.open(server.url, timeout=60) as store, monitored(server) as told:
        for edits in (10, 1000):
            store.erase("a")
            after = say(store, "a", "1", "2", "3", "4").seqs[-1]
            for _ in range(edits):
                after = store.replace("a", [user("x"), user("dropped")], after=after).seqs[0]
            snapshot = store.save_snapshot("a")
            say(store, "a", "x")
            done: dict[str, int] = {}
            for name, act in ACTS.items():
                told()
                act(store, snapshot)
                done[name] = len(told())
            work.append(done)
    few, many = work
    assert {name: many[name] for name in many if many[name] > few[name] + 40} == {}


def test_compact_reclaims_jumps_that_nothing_needs(store: Any, client: Any) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    for number in range(600):
        store.rollback_to_snapshot("a", snapshot)
        say(store, "a", str(number))
    assert client.zcard(JUMPS) == 599
    before = store.state("a")
    assert store.compact("a").entries > 500
    assert client.zcard(JUMPS) < 20
    assert store.state("a") == before
    assert store.verify("a").ok


def test_a_fork_that_will_take_too_long_says_so_and_leaves_nothing(
    store: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(store, "a", *map(str, range(400)))
    monkeypatch.setattr(fork_session, "STEP", 100)
    start = fork_session.time.monotonic()
    seconds = count(start, 3.0)
    monkeypatch.setattr(fork_session, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with pytest.raises(MemoryStoreBackendError, match=r"copies 400 entries.*larger timeout") as caught:
        store.fork("a", "b")
    assert caught.value.outcome == "not_written"
    assert client.keys("everturn:{:b}*") == []


def test_a_fork_in_many_steps_is_whole(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_session, "STEP", 10)
    monkeypatch.setattr(staged_rows, "STEP", 3)
    for number in range(30):
        store.append("a", [user(str(number)), ToolCall("f", {"n": number})])
        store.replace("a", [user("instead")], after=store.info("a").last_seq - 1)
    store.fork("a", "b")
    assert words(store, "b") == words(store, "a")
    assert len(store.get_tool_calls("b")) == len(store.get_tool_calls("a"))
    assert store.verify().ok
    store.replace("b", [user("y")], after=store.get_history("b")[2].seq)
    assert words(store, "b") == [*words(store, "a")[:3], "y"]


# --- many snapshots --------------------------------------------------------------------------------------------------


def with_snapshots(store: Any, number: int) -> list[Any]:
    say(store, "a", "x")
    return [store.save_snapshot("a", str(index)) for index in range(number)]


def test_many_snapshots_are_fetched_in_bounded_steps(server: ValkeyServer) -> None:
    """One HGETALL of thousands would hold the server for all of them."""
    with everturn.open(server.url, timeout=60) as store, monitored(server) as told:
        taken = with_snapshots(store, session_state.PAGE + 200)
        told()
        assert store.list_snapshots("a") == taken
        assert store.state("a").snapshots == tuple((one.label, one.version) for one in taken)
        commands = [words[0].upper() for _, words in told()]
    assert "HGETALL" not in commands
    assert commands.count("HSCAN") >= 4


@pytest.mark.parametrize("meanwhile", ["one is deleted", "one is taken", "all are erased", "another life begins"])
def test_snapshots_are_those_of_one_moment(
    store: Any, server: ValkeyServer, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    taken = with_snapshots(store, session_state.PAGE + 200)
    wanted = list(taken)
    with everturn.open(server.url) as other:

        def act() -> None:
            if meanwhile == "one is deleted":
                other.delete_snapshot("a", wanted.pop(300))
            elif meanwhile == "one is taken":
                other.save_snapshot("a")
            else:
                other.erase("a")
                wanted.clear()
                if meanwhile == "another life begins":
                    say(other, "a", "y")
                    wanted.append(other.save_snapshot("a"))

        pending = [act]
        page = session_state.scripts.PAGE
        send = Sender.read

        async def read(self: Sender, script: Any, *args: Any) -> Any:
            answer = await send(self, script, *args)
            if script is page and pending:
                pending.pop()()
            return answer

        monkeypatch.setattr(Sender, "read", read)
        found = store.list_snapshots("a")
        assert not pending
        # One that is deleted behind the step that found it was there when the session was seen.
        assert found == wanted or (meanwhile == "one is deleted" and found == taken)
