"""OpenTelemetry: metrics and spans of the calls on a store. Does nothing until the application has set up an SDK.

opentelemetry-api is never imported by everturn: it is used once the application has imported it and set a provider. No
metric has a session id; no span has the content of a message. docs/reference/telemetry.md is compared with METRICS.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

SCOPE = "everturn"
LOOK_EVERY = 32  # calls: asking for a provider takes a microsecond, while there is none
SYSTEM_NAMES = {"postgres": "postgresql"}  # `db.system.name` by the semantic conventions, where ours differs


class Metric(msgspec.Struct, frozen=True):
    """One instrument: its name, kind, unit, meaning, and the attributes of its points."""

    name: str
    kind: str  # "counter" or "histogram"
    unit: str
    text: str
    labels: tuple[str, ...] = ()


DURATION = Metric(
    "db.client.operation.duration",
    "histogram",
    "s",
    "Time that a call on a store took, retries included.",
    ("db.operation.name", "everturn.outcome", "error.type"),
)
POOL_WAIT_TIME = Metric(
    "db.client.connection.wait_time",
    "histogram",
    "s",
    "Time that a call waited for a connection, where all were in use.",
    ("db.client.connection.pool.name",),
)
COMMIT_SIZE = Metric(
    "everturn.commit.changes", "histogram", "{change}", "Changes that one commit, or one request, kept together."
)
METRICS: tuple[Metric, ...] = (
    DURATION,
    POOL_WAIT_TIME,
    COMMIT_SIZE,
    Metric("everturn.retries", "counter", "{retry}", "Requests that were sent again.", ("db.operation.name",)),
    Metric("everturn.replays", "counter", "{call}", "Changes that had been made before.", ("db.operation.name",)),
    Metric(
        "everturn.conflicts", "counter", "{call}", "Changes that met another version or key.", ("db.operation.name",)
    ),
    Metric(
        "everturn.failures",
        "counter",
        "{call}",
        "Calls that failed. The outcome `unknown` is the one to alert on.",
        ("db.operation.name", "everturn.outcome"),
    ),
    Metric("everturn.heals", "counter", "{prompt}", "Prompts that were healed, and differ from the history."),
    Metric("everturn.folds", "counter", "{fold}", "Folds that hid turns behind a summary."),
    Metric("everturn.corrupt_entries", "counter", "{entry}", "Reads and checks that met damage."),
    Metric("everturn.connections.lost", "counter", "{connection}", "Connections that failed."),
    Metric("everturn.failovers", "counter", "{failover}", "Times that another server became the master."),
    Metric("everturn.lock_waits", "counter", "{wait}", "Waits for the write lock of more than a second."),
    Metric("everturn.upkeep.failures", "counter", "{step}", "Steps of upkeep that failed.", ("everturn.step",)),
)
_LABELS = {"operation": "db.operation.name", "outcome": "everturn.outcome", "step": "everturn.step"}


class _Sdk:
    """The application's providers: a tracer, and our instruments, made when they are first used."""

    def __init__(self, trace: Any, metrics: Any) -> None:
        self.trace = trace
        self.tracer = trace.get_tracer(SCOPE)
        self._meter = metrics.get_meter(SCOPE)
        self._instruments: dict[str, Callable[..., None]] = {}

    def use(self, name: str) -> Callable[..., None]:
        """Return the function that adds to the instrument of this name."""
        use = self._instruments.get(name)
        if use is None:
            metric = next(metric for metric in METRICS if metric.name == name)
            create = getattr(self._meter, f"create_{metric.kind}")
            instrument = create(metric.name, unit=metric.unit, description=metric.text)
            use = instrument.add if metric.kind == "counter" else instrument.record
            self._instruments[name] = use
        return use


_sdk: _Sdk | None = None
_until_look = 0


def sdk() -> _Sdk | None:
    """Return the application's providers; None while it has set none. Costs some ten nanoseconds then."""
    global _until_look  # noqa: PLW0603 - one for the process, as the providers are
    if _sdk is not None or "opentelemetry.trace" not in sys.modules:
        return _sdk
    _until_look -= 1
    if _until_look > 0:
        return None
    _until_look = LOOK_EVERY
    return look()


def look() -> _Sdk | None:
    """Look whether the application has set a provider by now."""
    global _sdk  # noqa: PLW0603 - as above
    trace = sys.modules.get("opentelemetry.trace")
    if _sdk is None and trace is not None:
        from opentelemetry import metrics

        providers = trace.get_tracer_provider(), metrics.get_meter_provider()
        if not all(type(provider).__name__.lstrip("_").startswith(("Proxy", "NoOp")) for provider in providers):
            _sdk = _Sdk(trace, metrics)
    return _sdk


def count(name: str, system: str, labels: Mapping[str, Any]) -> None:
    """Add one to a counter. `labels` are fields of an event."""
    found = sdk()
    if found is not None:
        found.use(name)(1, attributes(system, {_LABELS[label]: value for label, value in labels.items()}))


def record(metric: Metric, system: str, value: float, labels: Mapping[str, Any] | None = None) -> None:
    """Add a value to a histogram."""
    found = sdk()
    if found is not None:
        found.use(metric.name)(value, attributes(system, labels or {}))


def attributes(system: str, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Make the attributes of a point: the backend, and these labels."""
    return {"db.system.name": SYSTEM_NAMES.get(system, system), **labels}
