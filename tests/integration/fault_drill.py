"""The fault drill: a server and a worker are killed, a disk is full, a lease expires, an entry is damaged.

Prints what was counted. Run as `python -m tests.integration.fault_drill FOLDER` by test_fault_drill.py: an SDK can be
set up once in a process.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import everturn
from everturn import ChatMessage, CorruptEntry, EffectInDoubt, LeaseLost, MemoryStoreBackendError
from everturn.testing.servers import valkey_server

READER = InMemoryMetricReader()
acknowledged: dict[str, list[str]] = {}


def say(store: Any, session_id: str, text: str) -> None:
    """Append a turn, and note it once it is acknowledged."""
    store.add_messages(session_id, [ChatMessage("user", text)], key=text[:100])
    acknowledged.setdefault(session_id, []).append(text)


def kill_the_server() -> None:
    """Kill a Redis server under a writer: once it comes back in time, once it does not."""
    with valkey_server(appendonly=True, appendfsync="always") as server:
        with everturn.open(server.url, timeout=20) as store:
            say(store, "customer-1", "before")
            server.kill()
            threading.Timer(0.3, server.restart).start()
            say(store, "customer-1", "across the restart")
        with everturn.open(server.url, timeout=1) as store:
            server.kill()
            try:
                say(store, "customer-1", "nobody answers")
            except MemoryStoreBackendError:
                pass
            server.restart()
            say(store, "customer-1", "nobody answers")  # the same key: found, or written once
            check(store, "customer-1")


def fill_the_disk(path: Path) -> None:
    """Let a SQLite file meet a full disk, and make room again."""
    with everturn.open(f"sqlite:///{path}", page_checksums=False) as store:
        say(store, "customer-2", "before")
        backend: Any = store._operations.backend
        writer = backend._database._writer
        writer.pragma("max_page_count", writer.pragma("page_count") + 2)
        number = 0
        try:
            while True:
                say(store, "customer-2", f"turn {number} {'x' * 2000}")
                number += 1
        except MemoryStoreBackendError:
            writer.pragma("max_page_count", 1_000_000)
        say(store, "customer-2", f"turn {number} {'x' * 2000}")
        check(store, "customer-2")


def expire_a_lease(path: Path) -> None:
    """Let a worker sleep past its lease while another takes it: the late change is refused."""
    with everturn.open(f"sqlite:///{path}") as store:
        late = store.lease("customer-2", seconds=0.05)
        with store.lease("customer-2", seconds=30, wait=10):  # it waits until the first one has expired
            try:
                store.add_messages("customer-2", [ChatMessage("user", "too late")], lease=late)
            except LeaseLost:
                pass
        check(store, "customer-2")


def crash_in_an_effect(path: Path) -> None:
    """Let a worker die between a payment and its record: the next one is told so, and a person looks."""
    with everturn.open(f"sqlite:///{path}") as store:
        store.begin_effect("customer-2", "refund", {"amount": 20})  # and then the worker died
        try:
            store.once("customer-2", "refund", lambda: "paid twice")
        except EffectInDoubt:
            pass
        assert store.health().effects_in_doubt == 1
        store.finish_effect("customer-2", "refund", "paid once", note="the bank has it")
        assert store.health().effects_in_doubt == 0
        check(store, "customer-2")


def damage_an_entry(path: Path) -> None:
    """Change a stored byte, read, and put it back as from a backup."""
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"before"', b'"BEFORE"', 1))
    with everturn.open(f"sqlite:///{path}") as store:
        try:
            store.get_history("customer-2")
        except CorruptEntry:
            pass
    path.write_bytes(whole)
    with everturn.open(f"sqlite:///{path}") as store:
        check(store, "customer-2")


def check(store: Any, session_id: str) -> None:
    assert [message.text for message in store.get_history(session_id)] == acknowledged[session_id]


def points() -> list[tuple[str, dict[str, Any], float]]:
    data: Any = READER.get_metrics_data()
    return [
        (metric.name, dict(point.attributes), getattr(point, "value", None) or getattr(point, "count", 0))
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    ]


def main(folder: Path) -> None:
    logging.basicConfig(filename=folder / "store.log", level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    metrics.set_meter_provider(MeterProvider(metric_readers=[READER]))
    kill_the_server()
    fill_the_disk(folder / "memory.db")
    expire_a_lease(folder / "memory.db")
    crash_in_an_effect(folder / "memory.db")
    damage_an_entry(folder / "memory.db")
    print(json.dumps({"points": points(), "acknowledged": sum(map(len, acknowledged.values()))}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
