"""The state machine of tests/unit, walked over Valkey: after every step the store shows what the model shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import seed
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import everturn
from everturn.backends.redis import reads, staging, upkeep
from everturn.testing.servers import ValkeyServer, valkey_server
from tests.unit.test_state_machine import STORE_TTL, WALKS, FlakyBackend, Walk, places

SEEDS = range(int(os.environ.get("EVERTURN_REDIS_WALKS", "3")))


class ValkeyWalk(Walk):
    """What looks into a SQLite file is left out, and what Redis cannot do: search and order over all sessions."""

    server: ValkeyServer

    def __init__(self) -> None:
        self.server.command("FLUSHALL")
        super().__init__()
        # Small steps and pages, so that short walks see more than one of each.
        for module, name, size in (
            (upkeep, "STEP", 3),
            (reads, "BATCH", 3),
            (reads, "PAGE", 5),
            (reads, "MORE_THAN_LIMIT", 1),
            (staging, "STEP", 2),
        ):
            self.patches.setattr(module, name, size)

    def open(self, namespace: str, number: int, file: Path | None = None) -> everturn.MemoryStore:
        store = everturn.open(self.server.url, namespace=namespace, ttl=STORE_TTL)
        self.stores[namespace, number], self.flaky[namespace, number] = store, FlakyBackend(store, self.clock)
        return store

    def agree_on_sql(self, *_: Any) -> None:
        pass

    @rule(place=places, text=st.sampled_from(["W", "wört", "sum 1"]))
    def find(self, place: tuple[str, str], text: str) -> None:
        namespace, name = place
        self.stores[namespace, 0].find(text, session_id=name)

    @rule(place=places)
    def page_through_sessions(self, place: tuple[str, str]) -> None:
        model = self.models[place[0]]
        live = sorted((name for name in model.sessions if model.live(name)), key=str.encode)
        assert [session.session_id for session in self.stores[place[0], 0].sessions().sessions] == live

    @rule(place=places)
    def erase(self, place: tuple[str, str], store: int = 0) -> None:
        self.touched.add(place)
        self.models[place[0]].erase(place[1])
        self.stores[place[0], store].erase(place[1])

    @rule(place=places)
    def a_lost_row_is_noticed(self, place: tuple[str, str]) -> None:
        pass

    @rule(place=places)
    def compact_everything(self, place: tuple[str, str]) -> None:
        pass


@pytest.fixture(scope="module")
def own() -> Iterator[ValkeyServer]:
    with valkey_server(appendonly=True) as server:
        yield server


@pytest.mark.parametrize("number", SEEDS)
def test_valkey_and_the_model_agree_after_every_step(own: ValkeyServer, number: int) -> None:
    run_state_machine_as_test(seed(number)(type("ValkeyWalk", (ValkeyWalk,), {"server": own})), settings=WALKS)
