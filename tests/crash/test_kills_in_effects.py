"""SIGKILL at every driver call of begin_effect and finish_effect, on servers: the effect is never done twice.

The contract's clause `killed-in-effect` does so on SQLite files, through the kit; here is the store itself.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import everturn
from everturn import EffectInDoubt
from everturn.testing.races.breakpoints import Breakpoint
from tests.integration.children import children
from tests.tiers import deep

MOST = 120  # driver calls; nothing makes half as many


def do_it(world: str, who: str) -> str:
    """Do the effect in the world: a line in a file."""
    with Path(world).open("a") as file:
        file.write(f"{who}\n")
    return who


def act(url: str, session_id: str, world: str, call: str, n: str) -> None:
    """Begin the effect, do it and finish it. Killed before the n-th driver call of one of the two calls."""
    point = Breakpoint()

    def watched(name: str, *args: Any) -> Any:
        if name == call:
            point.arm(int(n), lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        try:
            return getattr(store, f"{name}_effect")(session_id, "pay", *args)
        finally:
            point.disarm()

    point.watch_threads()  # before the store starts threads: DynamoDB's driver is called in one
    with everturn.open(url) as store:
        store.get_effects(session_id)  # so that there is a connection
        assert watched("begin").status == "new"
        do_it(world, "worker")
        watched("finish", "worker")


@pytest.mark.parametrize("call", ["begin", "finish"])
@pytest.mark.parametrize("kind", ["valkey", "postgres", deep("dynamodb")])
def test_a_kill_at_any_driver_call_leaves_the_effect_absent_in_doubt_or_finished(
    kind: str, call: str, servers: Any, tmp_path: Path
) -> None:
    server, seen = getattr(servers, kind), list[str]()
    url = server.url_of(f"everturn-{uuid4().hex}") if kind == "dynamodb" else f"{server.url}?warnings=off"
    with everturn.open(url) as store:
        for n in range(1, MOST):
            session_id, world = f"{call} {n}", tmp_path / str(n)
            world.touch()
            with children((act, url, session_id, world, call, n)) as (child,):
                code = child.wait()
                complaint = child.stderr.read() if code > 0 else ""
            assert code in (0, -signal.SIGKILL), complaint
            try:
                seen.append(store.once(session_id, "pay", do_it_here(world)))
            except EffectInDoubt:
                seen.append("in doubt")
            lines = world.read_text().splitlines()
            assert lines == {"here": ["here"], "worker": ["worker"]}.get(seen[-1], lines)
            assert len(lines) == (1 if call == "finish" or seen[-1] != "in doubt" else 0)
            assert store.verify(session_id).ok
            if code == 0:
                break
    assert seen[-1] == "worker"  # one that was not killed
    expected = {"begin": {"here", "in doubt"}, "finish": {"in doubt", "worker"}}[call]
    assert set(seen[:-1]) <= expected
    assert len(seen) > 2


def do_it_here(world: Path) -> Any:
    return lambda: do_it(str(world), "here")
