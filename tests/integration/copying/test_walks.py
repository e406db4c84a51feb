"""Whatever is done to a session, and whenever it is copied: the copy shows the same, at every version remembered."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everturn
from everturn import ChatMessage, Record, Summary, ToolCall
from everturn.transfer import copy, endpoint
from everturn.transfer.protocol import PortionRequest
from tests.integration.copying.talks import facts, readable, seen
from tests.store.places import Servers
from tests.tiers import examples

words = st.sampled_from(["a", "b\0", "\N{GRINNING FACE}", "x" * 300])
entries = st.lists(
    st.one_of(
        st.builds(ChatMessage, st.sampled_from(["user", "assistant", "system"]), words),
        st.builds(ToolCall, words, words),
        st.builds(Record, st.just("mine"), st.lists(words)),
        st.builds(Summary, words, st.just([1.0, 2.0]), st.just((1, 2))),
    ),
    min_size=1,
    max_size=4,
)
number = st.integers(0, 12)
keys = st.one_of(st.none(), st.sampled_from(["k1", "k2", "k3"]))
steps = st.one_of(
    st.tuples(st.just("append"), entries, keys),
    st.tuples(st.just("append"), entries, st.none()),
    st.tuples(st.just("replace"), entries, number),
    st.tuples(st.just("drop"), number),
    st.tuples(st.just("trim"), number, st.booleans()),
    st.tuples(
        st.sampled_from(["clear", "undo", "force", "snapshot", "compact", "compact there", "copy", "copy", "fork"])
    ),
    st.tuples(st.sampled_from(["rollback", "delete"]), number),
    st.tuples(st.just("ttl"), st.sampled_from([None, 1000.5])),
)


def perform(store: Any, name: str, step: tuple[Any, ...]) -> None:
    """One step, or the refusal of it."""
    kind, *args = step
    snapshots = store.list_snapshots(name)
    doing = {
        "append": lambda: store.append(name, args[0], key=args[1]),
        "replace": lambda: store.replace(name, args[0], after=args[1]),
        "drop": lambda: store.replace(name, [], after=args[0]),
        "trim": lambda: store.trim(name, max_messages=args[0], keep_system=args[1]),
        "clear": lambda: store.clear(name),
        "undo": lambda: store.undo(name),
        "force": lambda: store.undo(name, expected_version=store.state(name).version),
        "snapshot": lambda: store.save_snapshot(name, "label"),
        "rollback": lambda: snapshots and store.rollback_to_snapshot(name, snapshots[args[0] % len(snapshots)]),
        "delete": lambda: snapshots and store.delete_snapshot(name, snapshots[args[0] % len(snapshots)]),
        "ttl": lambda: store.set_ttl(name, args[0]),
        "compact": lambda: store.compact(name),
        "fork": lambda: store.fork(name, "fork"),
    }
    seen(doing[kind])


def walk(here: Any, there: Any, way: list[tuple[Any, ...]]) -> None:
    reclaimed = False
    for step in way:
        if step[0] == "copy":
            assert everturn.copy(here, there).conflicts == ()
        elif step[0] == "compact there":
            there.compact("a")
            reclaimed = True
        else:
            perform(here, "a", step)
    report = everturn.copy(here, there)
    assert (report.conflicts, report.behind) == ((), 0)
    for session in here.sessions().sessions:
        name = session.session_id
        if reclaimed:
            assert there.state(name) == here.state(name)
            shown, wanted = readable(there, name), readable(here, name)
            assert [at for at, entries in shown.items() if isinstance(entries, tuple) and entries != wanted[at]] == []
        else:
            assert facts(there, name) == facts(here, name)
        assert (there.verify(name).problems, there.info(name).life) == ((), session.life)
    for later in way[:3]:  # and both go on alike
        if later[0] not in ("copy", "compact", "compact there"):
            for store in (here, there):
                perform(store, "a", later)
            assert there.state("a") == here.state("a")


@settings(max_examples=examples(120), deadline=None)
@given(way=st.lists(steps, max_size=25), portion=st.integers(1, 9), at_once=st.integers(0, 6))
def test_any_walk_survives_copies_in_portions_of_any_size(way: Any, portion: int, at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch, everturn.open("sqlite://") as here, everturn.open("sqlite://") as there:
        patch.setattr(endpoint, "PortionRequest", partial(PortionRequest, entries=portion, changes=portion, bytes=500))
        patch.setattr(copy, "AT_ONCE", at_once)
        walk(here, there, way)


@pytest.mark.parametrize("backend", ["valkey", "postgres"])
def test_any_walk_survives_a_copy_to_a_server_and_back(servers: Servers, backend: str) -> None:
    numbers = iter(range(10**6))

    @settings(max_examples=15, deadline=None)
    @given(way=st.lists(steps, min_size=5, max_size=25), portion=st.integers(2, 9))
    def check(way: Any, portion: int) -> None:
        url = getattr(servers, backend).url
        with (
            pytest.MonkeyPatch.context() as patch,
            everturn.open("sqlite://") as here,
            everturn.open(url, namespace=f"walk {next(numbers)}") as there,
            everturn.open("sqlite://") as back,
        ):
            patch.setattr(
                endpoint, "PortionRequest", partial(PortionRequest, entries=portion, changes=portion, bytes=500)
            )
            patch.setattr(copy, "AT_ONCE", 4)
            walk(here, there, way)
            assert everturn.copy(there, back).ok
            for session in there.sessions().sessions:
                assert facts(back, session.session_id) == facts(there, session.session_id)

    check()
