"""Requests that the network keeps, and that reach the server when they should not any more: none of them is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import everturn
from everturn import MemoryStoreBackendError, Record, Summary, ToolCall
from everturn.backends._shared.server_clock import REQUEST_LIFE
from everturn.backends.redis import errors, scripts
from everturn.testing.faults.proxy import FaultProxy
from everturn.testing.servers import ValkeyServer
from tests.integration.children import children, eventually
from tests.integration.writers import FACES
from tests.store.places.place import Awaited, LoopThread
from tests.store.speech import say, user, words


@pytest.fixture
def proxy(server: ValkeyServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as proxy:
        yield proxy


def released(proxy: FaultProxy, server: ValkeyServer) -> None:
    """Let the kept request reach the server, and wait until that has answered it."""
    before = server.command("INFO", "commandstats")
    proxy.release_requests()
    eventually(lambda: answered(server.command("INFO", "commandstats")) > answered(before), "the request arrives")


def answered(stats: Any) -> int:
    text = stats.decode() if isinstance(stats, bytes) else str(stats)
    lines = [line for line in text.splitlines() if line.startswith(("cmdstat_eval:", "cmdstat_evalsha:"))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


def seen(store: Any) -> Any:
    return [(info.session_id, store.state(info.session_id), store.changes(info.session_id)) for info in everyone(store)]


def everyone(store: Any) -> Any:
    return store.sessions().sessions


# --- callers that gave up --------------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[bytes, Callable[[Any, Any], Any]]] = {
    "add_messages": (scripts.APPEND.sha, lambda store, _: store.add_messages("a", [user("LATE")])),
    "with a key": (scripts.APPEND.sha, lambda store, _: store.add_messages("a", [user("LATE")], key="k")),
    "append": (
        scripts.APPEND.sha,
        lambda store, _: store.append("a", [ToolCall("f", {}), Record("r", 1), Summary("s", [1.0], (1, 1))]),
    ),
    "begin": (scripts.APPEND.sha, lambda store, _: store.add_messages("new", [user("LATE")])),
    "replace": (scripts.APPEND.sha, lambda store, _: store.replace("a", [user("LATE")], after=1)),
    "clear": (scripts.CLEAR.sha, lambda store, _: store.clear("a")),
    "trim": (scripts.TRIM.sha, lambda store, _: store.trim("a", max_messages=1)),
    "undo": (scripts.UNDO.sha, lambda store, _: store.undo("a")),
    "rollback": (scripts.ROLLBACK.sha, lambda store, snapshot: store.rollback_to_snapshot("a", snapshot)),
    "snapshot": (scripts.SNAPSHOT.sha, lambda store, _: store.save_snapshot("a", "LATE")),
    "delete_snapshot": (scripts.DELETE_SNAPSHOT.sha, lambda store, snapshot: store.delete_snapshot("a", snapshot)),
    "set_ttl": (scripts.TTL.sha, lambda store, _: store.set_ttl("a", 1000)),
    "stage": (scripts.STAGE.sha, lambda store, _: store.fork("a", "b")),
    "fork": (b"$1\r\na\r\n$1\r\n2\r\n", lambda store, _: store.fork("a", "b")),
    "erase": (scripts.ERASE.sha, lambda store, _: store.erase("a")),
}
"""Each with bytes of its request: the script that changes something. Of a fork: its source, and how many entries."""


@contextmanager
def opened(proxy: FaultProxy, face: str) -> Iterator[Any]:
    """A store behind the proxy that soon gives up, called like a blocking one."""
    if face == "threads":
        with everturn.open(proxy.url, timeout=0.4, warnings=False) as store:
            yield store
        return
    loop = LoopThread()
    try:
        store = loop.run(everturn.open_async(proxy.url, timeout=0.4, warnings=False))
        yield Awaited(store, loop)
        loop.run(store.close())
    finally:
        loop.stop()


def load_scripts(client: Any) -> None:
    """Let the server know all scripts: of one that it does not know, a late request could do nothing anyway."""
    for script in vars(scripts).values():
        if isinstance(script, scripts.Script):
            client.script_load(script.text)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", CHANGES)
def test_a_request_that_arrives_after_its_callers_time_is_not_applied(
    server: ValkeyServer, proxy: FaultProxy, store: Any, client: Any, kind: str, face: str
) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    say(store, "a", "2", "3")
    store.trim("a", max_messages=2)
    load_scripts(client)
    matching, change = CHANGES[kind]
    before = seen(store)
    with opened(proxy, face) as late:
        late.add_messages("warm", [user("x")])
        proxy.keep_next_request(matching=matching)
        proxy.refuse()  # so that nothing but the first attempt gets there
        with pytest.raises(MemoryStoreBackendError) as caught:
            change(late, snapshot)
        assert caught.value.outcome == "unknown"
    assert proxy.kept == 1
    store.erase("warm")
    released(proxy, server)
    assert seen(store) == before
    assert client.keys("*staged*") == [] or kind == "fork"
    assert store.verify().ok


# --- callers that were killed ----------------------------------------------------------------------------------------


def write(url: str, face: str, key: str) -> None:
    """Append one turn, which is kept on its way."""
    options = {"key": key} if key else {}
    if face == "tasks":

        async def awaited() -> None:
            async with await everturn.open_async(url, timeout=50, warnings=False) as store:
                await store.add_messages("a", [user("SECRET")], **options)

        asyncio.run(awaited())
    else:
        with everturn.open(url, timeout=50, warnings=False) as store:
            store.add_messages("a", [user("SECRET")], **options)


def kept_of_one_killed(proxy: FaultProxy, face: str, key: str) -> None:
    """Have a writer killed while its append is under way."""
    proxy.keep_next_request(matching=b"SECRET")
    with children((write, proxy.url, face, key)):
        eventually(lambda: proxy.kept == 1, "its request is sent")


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("edit", ["rollback", "replace", "undo"])
def test_a_late_request_does_not_write_again_what_an_edit_dropped(
    server: ValkeyServer, proxy: FaultProxy, store: Any, face: str, edit: str
) -> None:
    say(store, "a", "1")
    snapshot = store.save_snapshot("a")
    kept_of_one_killed(proxy, face, "k")
    if edit == "undo":
        store.replace("a", [user("SECRET")], after=1)
    else:
        say(store, "a", "SECRET", key="k")
    assert words(store, "a") == ["1", "SECRET"]
    if edit == "rollback":
        store.rollback_to_snapshot("a", snapshot)
    elif edit == "replace":
        store.replace("a", [], after=1)
    else:
        store.undo("a")
    before = seen(store)
    released(proxy, server)
    assert words(store, "a") == ["1"]
    assert seen(store) == before


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("key", ["", "k"])
def test_a_late_request_does_not_bring_back_what_was_erased(
    server: ValkeyServer, proxy: FaultProxy, store: Any, client: Any, face: str, key: str
) -> None:
    say(store, "a", "1")
    kept_of_one_killed(proxy, face, key)
    say(store, "a", "SECRET", key=key or None)
    assert store.erase("a").complete
    released(proxy, server)
    assert store.get_history("a") == []
    assert everyone(store) == ()
    assert store.verify().ok
    (left,) = client.keys("*")
    assert client.hkeys(left) == [b"fence", b"calls"]
    assert b"SECRET" not in client.hget(left, "calls")
    assert 0 < client.pttl(left) <= REQUEST_LIFE * 1000
    assert say(store, "a", "another life").version == 1
    assert client.ttl(left) == -1


# --- what is left of it ----------------------------------------------------------------------------------------------


def test_a_tombstone_has_the_calls_of_a_thousand_and_twenty_four_changes_and_a_new_life_forgets_them(
    store: Any, client: Any
) -> None:
    meta = "everturn:{:a}:meta"
    for _ in range(1100):
        say(store, "a", "x")
    store.erase("a")
    calls = client.hget(meta, "calls")
    assert calls.count(b" append ") == 1024
    for _ in range(64):
        say(store, "a", "y")
    assert client.hget(meta, "calls") == calls, "a retry may still come"
    client.hset(meta, "fence", str(int(client.hget(meta, "fence")) - 61 * 10**6))
    for _ in range(64):
        say(store, "a", "y")
    assert client.hget(meta, "calls") is None


def test_a_tombstone_is_no_session(store: Any, client: Any) -> None:
    store.erase("a")
    assert client.hkeys("everturn:{:a}:meta") == [b"fence"]
    assert everyone(store) == ()
    assert store.get_history("a") == []
    assert store.changes("a") == []
    assert store.verify().ok
    assert store.verify("a").ok
    assert store.compact() == store.compact("a")
    say(store, "b", "1")
    assert store.fork("b", "a").version == 1
    assert client.ttl("everturn:{:a}:meta") == -1
    assert store.erase("a").entries == 1


def test_a_clock_that_was_set_back_holds_nobody_up(store: Any, client: Any) -> None:
    """A fence that lies ahead is one of a clock that showed more. Requests are late once, not until it is reached."""
    say(store, "a", "1")
    client.hset("everturn:{:a}:meta", "fence", str(2 * 10**15))
    assert say(store, "a", "2").version == 2


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("erased", [False, True])
def test_a_fence_of_a_clock_that_showed_more_is_not_passed_over(
    server: ValkeyServer, proxy: FaultProxy, store: Any, client: Any, face: str, erased: bool
) -> None:
    """Another server set it, whose clock is ahead: whether a request is behind it cannot be told, so it is late."""
    say(store, "a", "1")
    kept_of_one_killed(proxy, face, "")
    if erased:
        assert store.erase("a").complete
    client.hset("everturn:{:a}:meta", "fence", str(2 * 10**15))
    before = seen(store)
    released(proxy, server)
    assert seen(store) == before
    seconds, _ = client.time()
    assert int(client.hget("everturn:{:a}:meta", "fence")) < (seconds + 1) * 10**6  # the next request is late no more
    assert say(store, "a", "2").version == (1 if erased else 2)


def test_a_clock_that_was_set_forward_holds_nobody_up(store: Any, client: Any) -> None:
    """The store takes the server's time from its last reply; a server an hour ahead of that answers `late`, once."""
    say(store, "a", "1")
    (clock,) = store._operations.backend.sender._clocks.values()
    offset, since = clock._best
    clock._best = offset - 3600, since
    assert say(store, "a", "2").version == 2
    assert [len(words(store, "a")), clock._best[0] > offset - 1] == [2, True]


def test_a_request_from_before_the_clock_was_set_back_is_not_applied(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was issued later than now. How old it is cannot be told, nor whether its retry was applied: `late`, once."""
    heard: list[str] = []
    late = errors.late

    def listen(where: str) -> MemoryStoreBackendError:
        heard.append(where)
        return late(where)

    monkeypatch.setattr(errors, "late", listen)
    say(store, "a", "1")
    (clock,) = store._operations.backend.sender._clocks.values()
    offset, since = clock._best
    clock._best = offset + 3600, since
    assert say(store, "a", "2").version == 2
    assert (len(heard), clock._best[0] < offset + 1, words(store, "a")) == (1, True, ["1", "2"])


def test_a_change_is_stamped_by_the_servers_clock(store: Any, client: Any) -> None:
    say(store, "a", "1")
    seconds, micros = client.time()
    (change,) = store.changes("a")
    assert 0 <= seconds + micros / 1e6 - change.created_at < 60
    (message,) = store.get_history("a")
    assert message.created_at == change.created_at == store.info("a").changed_at


def test_scripts_keep_a_tombstone_as_long_as_a_request_lives() -> None:
    assert f"' late - 0 0 0', {round(REQUEST_LIFE * 1000)}".encode() in scripts.ERASE.text
