"""The walks of test_state_machine.py, over all backends side by side: they answer alike, and as the model says.

EVERTURN_DEEP=1 walks on and on, as there; EVERTURN_SHRINK=1 looks for the shortest walk that fails.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import everturn
from everturn import CorruptEntry, Lease, MemoryStore, Summary, Unsupported
from everturn.backend import drive
from everturn.backends.dynamodb import compaction as dynamodb_compaction
from everturn.backends.dynamodb import new_state
from everturn.backends.postgres import backend as postgres
from everturn.backends.redis import maintenance, reads, staged_rows
from tests.model.chorus import Chorus, Circle
from tests.model.test_state_machine import (
    DEEP,
    NAMESPACES,
    SEEDS,
    STORE_TTL,
    WALKS,
    FlakyBackend,
    Walk,
    numbers,
    places,
)
from tests.store.places import ALL, Place, Servers
from tests.store.places.sqlite import FileEditor
from tests.tiers import first

BACKENDS = ("sqlite", "valkey", "cluster", "postgres", "dynamodb")


class Flaky:
    """Lets every backend of a chorus lose a reply."""

    def __init__(self, backends: list[FlakyBackend]) -> None:
        self._backends = backends

    def _set(self, lose: bool) -> None:
        for backend in self._backends:
            backend.lose = lose

    lose = property(None, _set)


class Agreement(Walk):
    """One walk. What it looks up in a SQLite file it looks up in that of the first backend."""

    servers: Servers

    def __init__(self) -> None:
        self.circle = Circle(BACKENDS)
        self.others: list[Place] = [ALL[name](Path(), None, self.servers) for name in BACKENDS[1:]]
        super().__init__()
        # Small steps and pages, so that short walks see more than one of each.
        for module, name, size in (
            *((maintenance, "STEP", 3), (staged_rows, "STEP", 2)),
            *((reads, "BATCH", 3), (reads, "PAGE", 5), (reads, "FEW", 2)),
            *((new_state, "JUMPS_IN_HEAD", 4), (new_state, "JUMPS_IN_BLOCK", 2), (dynamodb_compaction, "BLOCKS", 2)),
            *((postgres, "STEP", 3), (postgres, "REAP_EVERY", 5), (postgres, "FOUND_AT_ONCE", 3)),
        ):
            self.patches.setattr(module, name, size)

    def open(self, namespace: str, number: int, file: Path | None = None) -> Any:
        first = super().open(namespace, number, file)
        if file is not None:
            return first
        others = [everturn.open(place.url, namespace=namespace, ttl=STORE_TTL, timeout=60) for place in self.others]
        flaky = [self.flaky[namespace, number], *(FlakyBackend(store, self.clock) for store in others)]
        self.stores[namespace, number] = chorus = Chorus(self.circle, [first, *others])  # type: ignore[assignment]
        self.flaky[namespace, number] = Flaky(flaky)  # type: ignore[assignment]
        return chorus

    def teardown(self) -> None:
        super().teardown()
        for place in self.others:
            place.close()

    def each(self, namespace: str, number: int) -> list[MemoryStore]:
        """The stores of all backends, one by one."""
        chorus: Any = self.stores[namespace, number]
        return list(chorus.stores)

    def each_lease(self, lease: Lease) -> list[Lease]:
        return [self.circle.translated(lease, backend) for backend in range(len(BACKENDS))]

    # --- where backends go their own ways ---------------------------------------------------------------------------

    @rule(place=places)
    def compact_one_step(self, place: tuple[str, str]) -> None:
        """As if the process had died after it. How long a step is, each backend says; so all go on to the end."""
        self.touched.add(place)
        namespace, name = place
        for store in self.each(namespace, 0):
            drive(store._operations.backend.compact(name, time.monotonic() + 60))
        self.agree_on_the_state(self.stores[namespace, 1], name, self.models[namespace].live(name))
        for store in self.each(namespace, 1):
            assert store.verify(name).ok
            store.compact(name)
        self.models[namespace].compact(name, self.remembered)
        self.forget_versions(place)

    @rule(namespace=st.sampled_from(NAMESPACES), limit=st.integers(1, 3), order=st.sampled_from([None, "recent"]))
    def page_through_sessions(self, namespace: str, limit: int, order: Any) -> None:
        """A session may come twice, and that is for each backend to say, too."""
        able = [True, *(place.orders_by_change or order is None for place in self.others)]
        for store, is_able in zip(self.each(namespace, 0), able, strict=True):
            if is_able:
                self.agree_on_pages(store, namespace, limit, order)
            else:
                with pytest.raises(Unsupported):
                    store.sessions(order=order)

    @rule(which=numbers, backend=st.integers(0, len(BACKENDS) - 1))
    def a_lost_entry_is_noticed(self, which: int, backend: int) -> None:
        """Promise 11, on each of them."""
        session = self.models[""].live("a")
        shown = session.state.visible if session else []
        lost = shown[which % len(shown)] if shown else None
        if lost is None or isinstance(lost.entry, Summary):
            return  # compact cannot tell a summary below a trim from other entries that went, so nor can a read
        editor = self.others[backend - 1].editor if backend else FileEditor(self.file, self.servers.beside_sqlite)
        stored = editor.entry("a", lost.seq)
        editor.drop_entry("a", lost.seq)
        store = self.each("", which % 2)[backend]
        assert not store.verify("a").ok
        for read in (store.state, store.get_history):
            with pytest.raises(CorruptEntry):
                read("a")
        editor.put_entry("a", lost.seq, stored)
        self.touched.add(("", "a"))


WALKED = WALKS if DEEP else settings(WALKS, max_examples=1, stateful_step_count=30)


@pytest.mark.parametrize("number", SEEDS if DEEP else first(1, range(3)))
def test_all_backends_and_the_model_agree_after_every_step(servers: Servers, number: int) -> None:
    run_state_machine_as_test(seed(number)(type("Agreement", (Agreement,), {"servers": servers})), settings=WALKED)
