"""Events: everything a store tells a person on call, with level, fields and advice, in one table.

`tell` writes an event to the standard `logging` and counts it (telemetry.py). No event has the content of a message, a
key, or a credential. docs/reference/events.md is compared with the table by a test.
"""

from __future__ import annotations

import logging
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any

import msgspec

from everturn import telemetry
from everturn.core.masking import masked
from everturn.core.signal_exceptions import is_interruption

LONG_WAIT = 1.0
"""Seconds: a wait for a lock or for a connection that takes longer is told."""
LONGEST_REASON = 400  # characters of an error message in a log line
ROOT = "everturn"
SYSTEMS = ("sqlite", "redis", "postgres", "dynamodb")  # each has a logger of its own, below everturn

logging.getLogger(ROOT).addHandler(logging.NullHandler())


class StoreEvent(msgspec.Struct, frozen=True):
    """One kind of event. `metric` is the counter of telemetry.py that counts it, and `labels` the fields it has."""

    name: str
    level: int
    text: str
    fields: tuple[str, ...]
    advice: str
    metric: str | None = None
    labels: tuple[str, ...] = ()


class Source(msgspec.Struct, frozen=True):
    """The origin of events: a backend ("sqlite", "redis", "postgres", "dynamodb", another's) and a place of it."""

    system: str
    place: str = ""

    @property
    def logger(self) -> logging.Logger:
        """The logger of the backend: `everturn.sqlite`; `everturn` for a third party's."""
        return logging.getLogger(f"{ROOT}.{self.system}" if self.system in SYSTEMS else ROOT)


OPENED = StoreEvent(
    "opened",
    INFO,
    "a store was opened",
    ("place", "options"),
    "Nothing. It says which settings were in force, with passwords masked.",
)
MIGRATED = StoreEvent(
    "migrated",
    INFO,
    "the stored form was brought up to date",
    ("place", "found", "now"),
    "Nothing, if you deployed a new everturn. Older workers must be gone by then.",
)
HOSTILE_SETTING = StoreEvent(
    "hostile_setting",
    WARNING,
    "a setting of the server can lose turns",
    ("place", "reason"),
    "Change the setting: the reason says how. `everturn doctor` lists all of them.",
)
CONNECTION_LOST = StoreEvent(
    "connection_lost",
    WARNING,
    "a connection failed, or none could be made",
    ("place", "reason"),
    "Look at the server and the network. The store connects again by itself.",
    "everturn.connections.lost",
)
RECONNECTED = StoreEvent(
    "reconnected",
    INFO,
    "the server answers again",
    ("place", "seconds"),
    "Nothing. `seconds` is the time since the connection was lost.",
)
FAILED_OVER = StoreEvent(
    "failed_over",
    WARNING,
    "another server is the master now",
    ("place", "old", "new"),
    "Find out why the old one ended. With asynchronous replication, look for turns that it alone had.",
    "everturn.failovers",
)
RETRIED = StoreEvent(
    "retried",
    WARNING,
    "a request is sent again",
    ("place", "operation", "attempt", "outcome", "reason"),
    "Nothing yet. `recovered` or `failed` follows. Told once a call, and again if the reason changes.",
    "everturn.retries",
    ("operation",),
)
THROTTLED = StoreEvent(
    "throttled",
    WARNING,
    "DynamoDB had no capacity for a change, or another transaction was in its way; it is sent again",
    ("place", "session_id", "reason"),
    "Nothing, if it is rare. If not: raise the capacity of the table, or find the writers that share the session. Told "
    "once a call.",
    "everturn.throttled",
)
RECOVERED = StoreEvent(
    "recovered",
    INFO,
    "a call was answered after retries",
    ("place", "operation", "attempts", "seconds"),
    "Nothing. The change is kept, once.",
)
FAILED = StoreEvent(
    "failed",
    ERROR,
    "a call failed",
    ("place", "operation", "session_id", "outcome", "reason"),
    "`not_written`: nothing was changed. `unknown`: repeat the call with the same key, which finds or writes exactly "
    "one.",
    "everturn.failures",
    ("operation", "outcome"),
)
REPLAYED = StoreEvent(
    "replayed",
    INFO,
    "a change had been made before, and its first receipt was returned",
    ("place", "operation", "session_id", "version"),
    "Nothing. A retry arrived for a change that was kept.",
    "everturn.replays",
    ("operation",),
)
CONFLICT = StoreEvent(
    "conflict",
    INFO,
    "the session was not at the expected version, and nothing was changed",
    ("place", "operation", "session_id", "expected", "actual"),
    "Nothing, if it is rare. If not: two workers work on one session at a time.",
    "everturn.conflicts",
    ("operation",),
)
KEY_REUSED = StoreEvent(
    "key_reused",
    WARNING,
    "a key was used again with other content, and nothing was changed",
    ("place", "operation", "session_id", "version"),
    "The first answer stands. Ask `get_turn` before a model is paid, or make a new key for each new request.",
    "everturn.conflicts",
    ("operation",),
)
LOCK_WAIT = StoreEvent(
    "lock_wait",
    WARNING,
    f"a change has waited for the write lock for more than {LONG_WAIT:g} s",
    ("place", "seconds"),
    "Find the process that holds the lock: a long transaction, a backup, VACUUM. Calls fail if it outlasts `timeout`.",
    "everturn.lock_waits",
)
POOL_WAIT = StoreEvent(
    "pool_wait",
    WARNING,
    f"a call has waited for a connection for more than {LONG_WAIT:g} s",
    ("place", "seconds"),
    "Raise `pool_size` or `max_connections`, or find the calls that hold connections for long.",
)
UPKEEP_FAILED = StoreEvent(
    "upkeep_failed",
    WARNING,
    "a step of upkeep failed; no change is affected",
    ("place", "step", "reason"),
    "Once: nothing, a later change tries again. Often: the file grows. See the reason; run `everturn doctor`.",
    "everturn.upkeep.failures",
    ("step",),
)
CORRUPT_ENTRY = StoreEvent(
    "corrupt_entry",
    ERROR,
    "stored bytes are not as they were written",
    ("place", "operation", "session_id", "seq", "reason"),
    "Keep the data as it is. Run `everturn verify`; restore the session from a backup. Look at the disk.",
    "everturn.corrupt_entries",
)
PROBLEMS_FOUND = StoreEvent(
    "problems_found",
    ERROR,
    "verify found damage",
    ("place", "problems", "first"),
    "Run `everturn verify` to see all of it. Keep the data as it is, and restore a backup.",
    "everturn.corrupt_entries",
)
LEASE_LOST = StoreEvent(
    "lease_lost",
    WARNING,
    "a worker lost the lease of a session, and its change was refused",
    ("place", "operation", "session_id", "token"),
    "Nothing was written. If it is frequent: the worker is slower than its lease; renew it, or ask for more seconds.",
    "everturn.leases.lost",
    ("operation",),
)
EFFECT_IN_DOUBT = StoreEvent(
    "effect_in_doubt",
    ERROR,
    "an effect was begun and never ended, and was not begun again",
    ("place", "operation", "session_id", "attempt", "in_progress"),
    "Look in the world whether it was done (`get_effects` has its request), then end it: `finish_effect` or "
    "`fail_effect`. `in_progress=True`: its worker is still at it.",
    "everturn.effects.in_doubt",
    ("operation",),
)
ERASED = StoreEvent(
    "erased",
    INFO,
    "a session was erased",
    ("place", "session_id", "entries", "complete"),
    "Nothing, if somebody meant it. `complete=False`: erase again, a reader held old bytes.",
)
CLOSED = StoreEvent("closed", DEBUG, "a store was closed", ("place",), "Nothing.")

EVENTS: tuple[StoreEvent, ...] = (
    *(OPENED, CLOSED, MIGRATED, HOSTILE_SETTING),
    *(CONNECTION_LOST, RECONNECTED, FAILED_OVER),
    *(RETRIED, THROTTLED, RECOVERED, FAILED, REPLAYED, CONFLICT, KEY_REUSED),
    *(LOCK_WAIT, POOL_WAIT, UPKEEP_FAILED, CORRUPT_ENTRY, PROBLEMS_FOUND),
    *(LEASE_LOST, EFFECT_IN_DOUBT, ERASED),
)


def tell(event: StoreEvent, source: Source, *, log: bool = True, **fields: Any) -> None:
    """Log an event and count it. Its fields are in the message, and as attributes of the log record.

    With log=False it is only counted. Raises nothing of its own: a change that is kept must not seem to have failed.
    """
    try:
        if event.metric is not None:
            telemetry.count(event.metric, source.system, {name: fields[name] for name in event.labels})
        logger = source.logger
        if log and logger.isEnabledFor(event.level):
            fields = {"place": source.place, **fields}
            told = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
            extra = {"event": event.name, "backend": source.system, **fields}
            logger.log(event.level, "%s: %s [%s]", event.name, event.text, told, extra=extra)
    except Exception as exc:
        if is_interruption(exc):
            raise


def reason(exc: object) -> str:
    """Return the text of an error or a problem for a log line: without passwords, and not too long."""
    text = masked(" ".join(str(exc).split()))
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    # As Python writes it: a line break or a control character in a session id cannot forge a line of the log.
    return repr(value) if isinstance(value, str) else str(value)
