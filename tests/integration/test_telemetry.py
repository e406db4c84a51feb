"""Telemetry through the real SDK: names, labels and spans, and nothing without an SDK."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everturn import telemetry

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "observability"

# Providers can be set once in a process, so each case has one of its own.
SET_UP = """
import runpy, sys, asyncio
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import load, everturn, json
from everturn import ChatMessage
from opentelemetry import trace
load.set_up()
path = Path(sys.argv[2]) / "memory.db"
"""
COLLECT = """
data = load.METRICS.get_metrics_data()
points = [
    (metric.name, metric.unit, dict(point.attributes), getattr(point, "value", None) or getattr(point, "count", None))
    for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics
    for metric in scope.metrics for point in metric.data.data_points
]
spans = [(span.name, dict(span.attributes), span.status.status_code.name, span.parent is not None)
         for span in load.SPANS.get_finished_spans()]
print(json.dumps([points, spans]))
"""


def collected(script: str, tmp_path: Path) -> tuple[list[Any], list[Any]]:
    """Run a script in a process with the SDK set up. Returns points of metrics, and spans."""
    command = [sys.executable, "-c", SET_UP + script + COLLECT, str(EXAMPLE), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
    points, spans = json.loads(ran.stdout.splitlines()[-1])
    return points, spans


def test_the_example_emits_only_metrics_of_the_table_with_their_labels(tmp_path: Path) -> None:
    points, _ = collected("load.run(path)", tmp_path)
    table = {metric.name: metric for metric in telemetry.METRICS}
    for name, unit, labels, _ in points:
        assert unit == table[name].unit
        assert labels.keys() <= {"db.system.name", *table[name].labels}
        assert "customer" not in str(labels), "no session id is a label"
    seen = {name for name, *_ in points}
    assert seen >= {
        *("db.client.operation.duration", "everturn.commit.changes", "everturn.replays", "everturn.conflicts"),
        *("everturn.lock_waits", "everturn.heals", "everturn.folds"),
    }
    assert [value for name, _, _, value in points if name == "everturn.replays"] == [20]


def test_a_change_has_a_span_and_a_read_has_one_inside_a_trace(tmp_path: Path) -> None:
    script = """
with everturn.open(f"sqlite:///{path}") as store:
    store.save_context("customer-42", "the words", "the answer")
    store.get_history("customer-42")
    with trace.get_tracer("app").start_as_current_span("request"):
        store.get_history("customer-42")
"""
    _, spans = collected(script, tmp_path)
    (change, _, status, has_parent), (read, read_labels, _, in_trace), (request, *_) = spans
    assert (change, status, has_parent) == ("create_memory save_context", "UNSET", False)
    assert (read, in_trace, request) == ("search_memory get_history", True, "request")
    assert read_labels["gen_ai.conversation.id"] == "customer-42"
    assert read_labels["gen_ai.operation.name"] == "search_memory"
    assert read_labels["db.system.name"] == "sqlite"
    assert "the words" not in str(spans)


def test_an_error_is_the_outcome_of_the_call_and_of_its_span(tmp_path: Path) -> None:
    script = """
with everturn.open(f"sqlite:///{path}") as store:
    store.add_messages("a", [ChatMessage("user", "x")])
    for wrong in (lambda: store.clear("a", expected_version=9), lambda: store.rollback("a", "nothing")):
        try:
            wrong()
        except everturn.MemoryStoreError:
            pass
"""
    points, spans = collected(script, tmp_path)
    ended = {labels["db.operation.name"]: labels for name, _, labels, _ in points if name == telemetry.DURATION.name}
    assert (ended["clear"]["everturn.outcome"], ended["clear"]["error.type"]) == ("conflict", "VersionConflict")
    assert ended["rollback"]["everturn.outcome"] == "refused"
    assert [status for _, _, status, _ in spans] == ["UNSET", "ERROR", "ERROR"]


def test_calls_of_one_event_loop_have_spans_of_their_own_tasks(tmp_path: Path) -> None:
    script = """
async def main():
    async with await everturn.open_async(f"sqlite:///{path}") as store:
        async def turn(number):
            with trace.get_tracer("app").start_as_current_span(f"request {number}"):
                await store.add_messages(f"s{number}", [ChatMessage("user", "x")])
        await asyncio.gather(*map(turn, range(5)))
asyncio.run(main())
by_id = {span.context.span_id: span for span in load.SPANS.get_finished_spans()}
for span in by_id.values():
    if span.parent is not None:
        assert by_id[span.parent.span_id].name[-1] == span.attributes["gen_ai.conversation.id"][-1]
"""
    points, spans = collected(script, tmp_path)
    assert sum(has_parent for *_, has_parent in spans) == 5
    assert any(name == "everturn.commit.changes" for name, *_ in points)


@pytest.mark.parametrize("imported", ["", "import opentelemetry.trace, opentelemetry.metrics"])
def test_without_an_sdk_nothing_is_imported_or_made(tmp_path: Path, imported: str) -> None:
    script = f"""
{imported}
import sys, everturn
from everturn import telemetry
before = {{name for name in sys.modules if name.startswith("opentelemetry")}}
with everturn.open("sqlite:///{tmp_path}/memory.db") as store:
    for number in range(300):
        store.save_context("a", "x", "y")
assert telemetry.look() is None
assert {{name for name in sys.modules if name.startswith("opentelemetry")}} == before
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_an_sdk_that_is_set_up_after_opening_is_noticed(tmp_path: Path) -> None:
    script = f"""
import sys, everturn
sys.path.insert(0, {str(EXAMPLE)!r})
store = everturn.open("sqlite:///{tmp_path}/memory.db")
store.save_context("a", "x", "y")
import load
load.set_up()
for number in range(101):
    store.save_context("a", "x", "y")
assert load.SPANS.get_finished_spans()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr


def prometheus_name(metric: telemetry.Metric) -> str:
    """The name that the OTLP exporter and Prometheus make of a metric, without the ending of a histogram's series."""
    name = metric.name.replace(".", "_") + ("_seconds" if metric.unit == "s" else "")
    return f"{name}_total" if metric.kind == "counter" else name


def test_the_dashboard_asks_for_every_metric_and_for_no_other() -> None:
    text = (EXAMPLE / "dashboard.json").read_text("utf-8")
    asked = " ".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    found = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b((?:everturn|db_client)_\w+)\{", asked)
    }
    assert found == {prometheus_name(metric) for metric in telemetry.METRICS}
    labels = {label.replace(".", "_") for metric in telemetry.METRICS for label in metric.labels} | {"le"}
    for names in re.findall(r"by \(([^)]*)\)", asked):
        assert set(names.split(", ")) <= labels
