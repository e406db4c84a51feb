"""OpenTelemetry: metrics and spans of the calls on a store. Does nothing until the application has set up an SDK.

opentelemetry-api is never imported by everturn: it is used once the application has imported it and set a provider. No
metric has a session id; no span has the content of a message. docs/reference/telemetry.md is compared with METRICS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import modules
from typing import Any

import msgspec

SCOPE = "everturn"
LOOK_EVERY = 100  # calls: asking for providers takes some microseconds, while there are none
SYSTEM_NAMES = {"postgres": "postgresql"}  # `db.system.name` by the semantic conventions, where ours differs


class Metric(msgspec.Struct, frozen=True):
    """One instrument: its name, kind, unit, meaning, and the attributes of its points."""

    name: str
    kind: str  # "counter" or "histogram"
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # of a histogram


_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
DURATION = Metric(
    "db.client.operation.duration",
    "histogram",
    "s",
    "Time that a call on a store took, retries included.",
    ("db.operation.name", "everturn.outcome", "error.type"),
    _SECONDS,
)
POOL_WAIT_TIME = Metric(
    "db.client.connection.wait_time",
    "histogram",
    "s",
    "Time that a call waited for a connection, where all were in use.",
    ("db.client.connection.pool.name",),
    _SECONDS,
)
COMMIT_SIZE = Metric(
    "everturn.commit.changes",
    "histogram",
    "{change}",
    "Changes that one commit, or one request, kept together.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
METRICS: tuple[Metric, ...] = (
    DURATION,
    POOL_WAIT_TIME,
    COMMIT_SIZE,
    Metric("everturn.throttled", "counter", "{change}", "Changes that DynamoDB had no capacity for at first."),
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
    Metric(
        "everturn.leases.lost", "counter", "{call}", "Calls refused because a lease was lost.", ("db.operation.name",)
    ),
    Metric(
        "everturn.effects.in_doubt", "counter", "{call}", "Calls that met an effect in doubt.", ("db.operation.name",)
    ),
    Metric("everturn.corrupt_entries", "counter", "{entry}", "Reads and checks that met damage."),
    Metric("everturn.connections.lost", "counter", "{connection}", "Connections that failed."),
    Metric("everturn.failovers", "counter", "{failover}", "Times that another server became the master."),
    Metric("everturn.lock_waits", "counter", "{wait}", "Waits for the write lock of more than a second."),
    Metric("everturn.upkeep.failures", "counter", "{step}", "Steps of upkeep that failed.", ("everturn.step",)),
)
_LABELS = {"operation": "db.operation.name", "outcome": "everturn.outcome", "step": "everturn.step"}


class Sdk:
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
            advice = {"explicit_bucket_boundaries_advisory": metric.buckets} if metric.buckets else {}
            instrument = create(metric.name, unit=metric.unit, description=metric.text, **advice)
            use = instrument.add if metric.kind == "counter" else instrument.record
            self._instruments[name] = use
        return use


_sdk: Sdk | None = None
_until_look = 0


def sdk() -> Sdk | None:
    """Return the application's providers; None while it has set none. Costs some ten nanoseconds then."""
    global _until_look  # noqa: PLW0603 - one for the process, as the providers are
    if _sdk is not None or "opentelemetry.trace" not in modules:
        return _sdk
    _until_look -= 1
    if _until_look > 0:
        return None
    _until_look = LOOK_EVERY
    return look()


def look() -> Sdk | None:
    """Look whether the application has set a provider by now."""
    global _sdk  # noqa: PLW0603 - as above
    trace = modules.get("opentelemetry.trace")
    if _sdk is None and trace is not None:
        from opentelemetry import metrics

        providers = trace.get_tracer_provider(), metrics.get_meter_provider()
        if not all(type(provider).__name__.lstrip("_").startswith(("Proxy", "NoOp")) for provider in providers):
            _sdk = Sdk(trace, metrics)
    return _sdk


def count(name: str, system: str, labels: Mapping[str, Any]) -> None:
    """Add one to a counter. `labels` are fields of an event."""
    if _sdk is not None:
        _sdk.use(name)(1, attributes(system, {_LABELS[label]: value for label, value in labels.items()}))


def record(metric: Metric, system: str, value: float, labels: Mapping[str, Any] | None = None) -> None:
    """Add a value to a histogram."""
    if _sdk is not None:
        _sdk.use(metric.name)(value, attributes(system, labels or {}))


def attributes(system: str, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Make the attributes of a point: the backend, and these labels."""
    return {"db.system.name": SYSTEM_NAMES.get(system, system), **labels}
