"""A load with faults on a store, and everything that OpenTelemetry collected of it, printed at the end.

Four threads append to ten sessions in one SQLite file, with keys. Every tenth request is sent twice, another program
holds the write lock for a while, one writer has read too long ago, and a prompt has a tool call without a result.
Nothing leaves the process: the exporters are those in memory. In an application, replace them by OTLP exporters.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import everturn
from everturn import ChatMessage

SPANS, METRICS = InMemorySpanExporter(), InMemoryMetricReader()


def set_up() -> None:
    """Set up the SDK, before a store is opened."""
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(SPANS))
    trace.set_tracer_provider(tracing)
    metrics.set_meter_provider(MeterProvider(metric_readers=[METRICS]))


def run(path: Path) -> None:
    """Do the work, with its faults."""
    with everturn.open(f"sqlite:///{path}", timeout=10) as store:

        def ask(number: int) -> None:
            turn = [ChatMessage("user", f"question {number}"), ChatMessage("assistant", f"answer {number}")]
            for _ in range(2 if number % 10 == 0 else 1):  # the client had no answer, and asks again
                store.add_messages(f"customer-{number % 10}", turn, key=f"request-{number}")

        other = apsw.Connection(str(path))  # as a backup tool that holds the write lock for too long
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(1.5, other.execute, ["ROLLBACK"])
        timer.start()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(200)))
        timer.join()
        other.close()

        seen = store.state("customer-1")
        store.save_context("customer-1", "Wait!", "Yes?")
        try:
            store.clear("customer-1", expected_version=seen)
        except everturn.VersionConflict as exc:
            print("refused:", exc)

        call = {"id": "c1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}
        store.add_messages("customer-2", [ChatMessage("assistant", "", tool_calls=[call])])
        store.get_context("customer-2", max_messages=4)
        store.fold("customer-3", lambda messages, _earlier: f"{len(messages)} messages", max_messages=10)


def report() -> None:
    """Print the metrics and the spans that were collected."""
    data = METRICS.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                print(f"\n{metric.name} [{metric.unit}]")
                for point in metric.data.data_points:
                    labels = " ".join(f"{name}={value}" for name, value in sorted((point.attributes or {}).items()))
                    value = getattr(point, "value", None)
                    shown = f"{value}" if value is not None else f"{point.count} times, sum {point.sum:.3f}"  # type: ignore[union-attr]
                    print(f"  {labels}: {shown}")
    names = [span.name for span in SPANS.get_finished_spans()]
    print("\nspans")
    for name in sorted(set(names)):
        print(f"  {name}: {names.count(name)}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    set_up()
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder) / "memory.db")
    report()
