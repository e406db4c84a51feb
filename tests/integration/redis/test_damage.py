"""Damage behind the store's back: every edit is loud or harmless, wherever it is, and verify and copies tell of it.

Harmless is an edit after which every read gives what it gave before. Beyond that, what no read gives may differ: keys
that callers used, the fence of late requests, entries that nothing shows. Somebody who writes a part anew together with
its check is a forger; that is no accident, and not tried here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import everturn
from everturn import CorruptEntry, MemoryStoreBackendError, MemoryStoreError, Record, Summary, ToolCall
from everturn.testing.servers import ValkeyServer, wait_until
from tests.store.speech import say, system, user
from tests.tiers import first

NAMES = ("a", "b", "c")  # a and b are twins: a part of the one fits the other
PARTS = ("meta", "log", "others", "changes", "snapshots", "jumps")
EDITS, BATCH = 300, 10
LOUD = (CorruptEntry, MemoryStoreBackendError)
NOT_READ = (b"k", b"t", b"fence")  # beginnings of fields of meta that no read gives


def a_long_story(store: Any, name: str) -> None:
    """A session that has every part, several ranges, hidden entries, and versions that compact made unreadable."""
    say(store, name, "start", key="first")
    store.append(
        name, [system("rules"), ToolCall("f", {"x": name}), Summary(name, [1.0, 2.0], (1, 1)), Record("r", name)]
    )
    for number in range(14):
        store.replace(name, [user(f"{name}{number}"), ToolCall("g", {"n": number})], after=5)
    store.save_snapshot(name, "label")
    store.compact(name)
    for number in range(4):
        last = store.add_messages(name, [user(f"{name} more {number}"), user("and more")]).seqs[0]
        store.replace(name, [user(f"{name} instead {number}"), Record("r", number)], after=last)
    store.trim(name, max_messages=7)
    store.save_snapshot(name)
    store.set_facts(name, {"user": name, "title": "Refund"})
    for number in range(4):
        store.begin_effect(name, f"pay {number}", {"of": name})
    store.finish_effect(name, "pay 0", {"receipt": name})
    store.fail_effect(name, "pay 1", "no funds")
    store.lease(name, seconds=86_400)
    store.append(name, [Summary("late", [3.0, 4.0], (1, 2)), user("end")])


def outcomes(store: Any, name: str) -> dict[str, Any]:
    """Every read of a session: what it gave, or the error it raised."""
    reads: dict[str, Callable[[], Any]] = {
        "history": lambda: store.get_history(name),
        "the latest": lambda: store.get_history(name, limit=3),
        "a window": lambda: store.get_history(name, after=6, before=40),
        "state": lambda: store.state(name),
        "records": lambda: store.state(name, kind="r"),
        "tool calls": lambda: store.get_tool_calls(name),
        "summaries": lambda: store.get_summaries(name),
        "search": lambda: store.search_summaries(name, [1.0, 1.0]),
        "find": lambda: list(store.find("e", session_id=name)),
        "snapshots": lambda: store.list_snapshots(name),
        "info": lambda: store.info(name),
        "changes": lambda: store.changes(name, limit=100),
        "effects": lambda: store.get_effects(name),
        "an effect that is done": lambda: store.begin_effect(name, "pay 0"),
        "an effect in doubt": lambda: store.begin_effect(name, "pay 2"),
        "the first snapshot": lambda: store.state(name, at=store.list_snapshots(name)[0]),
        "the last snapshot": lambda: store.get_history(name, at=store.list_snapshots(name)[-1]),
    }
    version = 16
    while version < 30:
        reads[f"version {version}"] = lambda version=version: store.get_history(name, at=version)
        version += 4
    found: dict[str, Any] = {}
    for called, read in reads.items():
        try:
            found[called] = timeless(read())
        except MemoryStoreError as exc:
            found[called] = exc if isinstance(exc, LOUD) else type(exc)
    return found


def timeless(value: Any) -> str:
    """A value as text, without the times of entries and changes."""
    parts = repr(value).replace(", ", ",\n").splitlines()
    return "\n".join(part for part in parts if "created_at=" not in part and "duration=" not in part)


@pytest.fixture(scope="module")
def dumps(running: ValkeyServer) -> dict[bytes, tuple[bytes, int]]:
    """Every key of the sessions, as the server dumps it, and when it expires."""
    running.command("FLUSHALL")
    with everturn.open(running.url) as store, redis.Redis.from_url(running.url) as client:
        for name in NAMES:
            a_long_story(store, name)
        store.set_ttl("c", 100_000)
        assert store.verify().ok
        assert len(client.keys("*")) == len(NAMES) * len(PARTS)
        return {key: (client.dump(key), max(0, client.pexpiretime(key))) for key in client.keys("*")}


@pytest.fixture
def fresh(dumps: dict[bytes, tuple[bytes, int]], client: Any) -> Callable[[], None]:
    def restore() -> None:
        client.flushall()
        for key, (dump, expiry) in dumps.items():
            client.restore(key, expiry, dump, absttl=bool(expiry))

    return restore


# --- edits -----------------------------------------------------------------------------------------------------------


def key_of(name: str, part: str) -> str:
    return f"everturn:{{:{name}}}:{part}"


def flipped(chance: random.Random, text: bytes) -> bytes:
    place = chance.randrange(len(text))
    other = chance.choice([byte for byte in b"0123456789 abc-,;" if byte != text[place]])
    return text[:place] + bytes([other]) + text[place + 1 :]


def spoilt(chance: random.Random, text: bytes) -> bytes:
    """A text with a character changed, or without its end."""
    return flipped(chance, text) if text and chance.random() < 0.7 else text[: chance.randrange(len(text) + 1)]


def edit_hash(client: Any, key: str, chance: random.Random) -> str:
    fields = sorted(field for field in client.hkeys(key) if not field.startswith(NOT_READ))
    field, other = chance.sample(fields, 2)
    kind = chance.choice(["spoil", "spoil", "delete", "swap"])
    if kind == "spoil":
        client.hset(key, field, spoilt(chance, client.hget(key, field)))
    elif kind == "delete":
        client.hdel(key, field)
    else:
        values = client.hmget(key, field, other)
        client.hset(key, mapping={field: values[1], other: values[0]})
    return f"{kind} {field!r} {other!r}"


def edit_sorted_set(client: Any, key: str, chance: random.Random) -> str:
    (member, score), (other, far) = chance.sample(client.zrange(key, 0, -1, withscores=True), 2)
    kind = chance.choice(["spoil", "delete", "swap", "replace"])
    if kind == "delete":
        client.zrem(key, member)
    elif kind == "swap":
        client.zadd(key, {member: far, other: score})
    else:
        client.zrem(key, member)
        client.zadd(key, {spoilt(chance, member) if kind == "spoil" else b"s99": score})
    return f"{kind} {member!r} {other!r}"


def edit_stream(client: Any, key: str, chance: random.Random) -> str:
    rows = client.xrange(key)
    place = chance.randrange(len(rows))
    kind = chance.choice(["delete", "spoil", "trim", "foreign", "add", "double"])
    if kind == "delete":
        client.xdel(key, rows[place][0])
    elif kind == "trim":
        client.xtrim(key, maxlen=place, approximate=False)
    elif kind == "add":
        client.xadd(key, {b"message": b"1 1 1 {}"}, f"{rows[-1][0].decode().partition('-')[0]}-7")
    else:  # entries cannot be changed: all are written anew
        with client.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            for number, (entry_id, fields) in enumerate(rows):
                ((field, value), *others) = fields.items()
                if number == place and kind == "spoil":
                    value = spoilt(chance, value)
                elif number == place and kind == "double":
                    ((field, value), *others) = rows[place - 1][1].items()
                elif number == place:
                    field = field.replace(field[-16:], b"0" * 16)
                pipe.xadd(key, dict([(field, value), *others]), entry_id)
            pipe.execute()
    return f"{kind} {rows[place][0]!r}"


BY_TYPE = {b"hash": edit_hash, b"zset": edit_sorted_set, b"stream": edit_stream}


def edit(client: Any, chance: random.Random, name: str) -> str:
    """Damage a part of this session; returns what was done."""
    part = chance.choice(PARTS)
    key = key_of(name, part)
    kind = chance.choice(["within"] * 6 + ["delete", "foreign", "type", "expire", "soon"])
    told = ""
    if kind == "within":
        told = BY_TYPE[client.type(key)](client, key, chance)
    elif kind == "delete":
        client.delete(key)
    elif kind == "foreign":
        other = chance.choice([one for one in NAMES if one != name])
        client.copy(key_of(other, part), key, replace=True)
    elif kind == "type":
        client.delete(key)
        chance.choice(
            [lambda: client.set(key, "x"), lambda: client.rpush(key, "x"), lambda: client.zadd(key, {"x": 1})]
        )()
    elif kind == "soon":
        client.pexpire(key, 1)
        wait_until(lambda: not client.exists(key), "the part expires")
    else:
        client.pexpire(key, 50_000)
    return f"{kind} {key} {told}"


# --- the verdict -----------------------------------------------------------------------------------------------------


@pytest.fixture
def told(fresh: Callable[[], None], store: Any) -> dict[str, dict[str, Any]]:
    """What the reads of undamaged sessions give."""
    fresh()
    return {name: outcomes(store, name) for name in NAMES}


def test_reads_of_what_is_not_damaged_are_not_loud(told: dict[str, dict[str, Any]]) -> None:
    for found in told.values():
        assert [called for called, value in found.items() if isinstance(value, Exception)] == []
        assert len(set(map(str, found.values()))) > len(found) / 2


@pytest.mark.parametrize("batch", first(3, range(EDITS // BATCH)))
def test_every_edit_is_loud_or_harmless(
    batch: int, told: dict[str, dict[str, Any]], fresh: Callable[[], None], store: Any, client: Any
) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        chance = random.Random(seed)
        victim = chance.choice(NAMES)
        fresh()
        done = f"seed {seed}: {edit(client, chance, victim)}"
        found = {name: outcomes(store, name) for name in NAMES}
        for name in NAMES:
            wrong = [called for called, value in found[name].items() if not is_fine(value, told[name][called])]
            assert wrong == [], f"{done}: {name}: {wrong[0]}: {found[name][wrong[0]]}"
        assert [name for name in NAMES if name != victim and found[name] != told[name]] == [], done
        is_loud = found[victim] != told[victim]
        report = store.verify()
        if is_loud:
            assert victim in {problem.session_id for problem in report.problems}, done
            assert report.entries >= 2 * 20, done  # it went on with the others
        assert {problem.session_id for problem in report.problems} <= {victim, None}, done
        assert is_copied(store, told, victim) or not report.ok, done
        assert not is_loud or not report.ok


def is_fine(value: Any, before: Any) -> bool:
    return isinstance(value, LOUD) or value == before


def is_copied(store: Any, told: dict[str, dict[str, Any]], victim: str) -> bool:
    """Whether a copy says that all went well; then it must have. The sessions that are sound are copied in any case."""
    with everturn.open("sqlite://") as target:
        try:
            report = everturn.copy(store, target)
            why = ""
        except MemoryStoreError as exc:
            report, why = None, f"{exc} {exc.__notes__}"
        for name in NAMES:
            if name != victim or (report is not None and not report.conflicts):
                assert timeless(target.get_history(name)) == told[name]["history"], why
        return report is not None and not report.conflicts


@pytest.mark.parametrize("part", [part for part in PARTS if part != "log"])
def test_a_part_that_is_gone_is_named(fresh: Callable[[], None], store: Any, client: Any, part: str) -> None:
    fresh()
    client.delete(key_of("a", part))
    for read in (store.get_history, store.state, store.info, store.list_snapshots, store.get_summaries, store.changes):
        with pytest.raises(CorruptEntry, match=part) as caught:
            read("a")
        assert caught.value.session_id == "a"
    assert any(problem.session_id == "a" and part in problem.what for problem in store.verify().problems)


@pytest.mark.parametrize("away", [1, 2, 1000])
def test_a_jump_at_another_seq_is_loud(fresh: Callable[[], None], store: Any, client: Any, away: int) -> None:
    """Past the head it would not be found on the way, and what it leads past would show again."""
    fresh()
    jumps = client.zrange(key_of("a", "jumps"), 0, -1, withscores=True)
    client.zadd(key_of("a", "jumps"), {jumps[-1][0]: jumps[-1][1] + away})
    for read in (store.get_history, store.get_tool_calls, lambda name: store.get_history(name, limit=3)):
        with pytest.raises(CorruptEntry, match="jumps"):
            read("a")


def test_a_listing_with_a_damaged_session_is_loud(fresh: Callable[[], None], store: Any, client: Any) -> None:
    fresh()
    client.hset(key_of("b", "meta"), "expires_at", "1")
    with pytest.raises(CorruptEntry) as caught:
        store.sessions()
    assert caught.value.session_id == "b"


def test_a_lease_of_a_damaged_session_is_refused_and_removes_nothing(
    fresh: Callable[[], None], store: Any, client: Any
) -> None:
    """A life that is over ends when its lease is taken. Whether it is over must not be told by damage."""
    fresh()
    client.hset(key_of("b", "meta"), "expires_at", "1")
    with pytest.raises(CorruptEntry):
        store.lease("b")
    assert client.exists(*(key_of("b", part) for part in PARTS)) == len(PARTS)
    client.delete(key_of("a", "meta"))
    for ask in (store.lease, store.get_lease):
        with pytest.raises(CorruptEntry):
            ask("a")
    assert client.exists(key_of("a", "meta")) == 0


@pytest.mark.parametrize("field", ["effect:pay 0", "effect:pay 2"])
def test_an_effect_that_is_lost_does_not_begin_again(
    fresh: Callable[[], None], store: Any, client: Any, field: str
) -> None:
    fresh()
    client.hdel(key_of("a", "meta"), field)
    for call in (store.get_effects, lambda name: store.begin_effect(name, field.removeprefix("effect:"))):
        with pytest.raises(CorruptEntry, match="effects"):
            call("a")
    assert not store.verify("a").ok
    assert store.begin_effect("b", "pay 9").status == "new"


@pytest.fixture(autouse=True)
def emptied(client: Any) -> Iterator[None]:
    yield
    client.flushall()
