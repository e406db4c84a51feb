"""Sentences about sessions, changes and calls, for the command and the inspector alike. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from everturn.core.numbers import count, lasting, size
from everturn.model import JSON, Change, Effect, ErasureReceipt, SessionInfo, Summary
from everturn.model.held_lease import HeldLease

EFFECT_CHANGES = {"begin_effect": "begun", "finish_effect": "finished", "fail_effect": "failed"}


class CalledTool(msgspec.Struct, frozen=True):
    """One of a message's tool calls: the tool, its arguments as they were written, and the id of the call."""

    name: str
    arguments: JSON = None
    id: JSON = None


def called_tool(call: JSON) -> CalledTool:
    """A tool call in whichever of the common forms it was written: OpenAI's, LangChain's, Anthropic's, or none."""
    if not isinstance(call, dict):
        return CalledTool("call", call)
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    name = function.get("name") or call.get("type") or "call"
    arguments = function.get("arguments", function.get("args", call.get("input")))
    return CalledTool(str(name), arguments, call.get("id") or call.get("call_id"))


def embedded(summary: Summary) -> str:
    """`embedding of 3 numbers`, and whether a fold wrote the summary."""
    vector = summary.embedding
    said = "no embedding" if vector is None else f"embedding of {count(len(vector), 'number')}"
    return f"{said}; written by a fold" if (summary.extra or {}).get("fold") is True else said


def expiry(session: SessionInfo) -> str:
    """`never`, or `in 3 h`."""
    return "never" if session.expires_at is None else f"in {lasting(session.expires_at - time.time())}"


def facts_in_words(session: SessionInfo) -> str:
    """`title: Refund, user: 42`; empty if the session has no facts."""
    return ", ".join(f"{name}: {value}" for name, value in session.facts.items())


def contents(session: SessionInfo) -> str:
    """`12 messages, 2 snapshots, 3.1 KB`."""
    return f"{count(session.messages, 'message')}, {count(session.snapshots, 'snapshot')}, {size(session.bytes)}"


def erased(receipt: ErasureReceipt) -> str:
    """`14 entries, 2 snapshots, 3.1 KB`; of several sessions: `3 sessions, 14 entries, ...`."""
    sessions = "" if receipt.sessions == 1 else f"{count(receipt.sessions, 'session')}, "
    return sessions + (
        f"{count(receipt.entries, 'entry', 'entries')}, {count(receipt.snapshots, 'snapshot')}, {size(receipt.bytes)}"
    )


def not_erased(receipt: ErasureReceipt) -> list[str]:
    """A sentence for each place where bytes of an erased session may still be."""
    waiting = [] if receipt.complete else ["Not complete: a reader or a replica can still see it; erase again later."]
    return [*waiting, *(f"Bytes may remain in {place}." for place in receipt.remains)]


def effect_in_words(effect: Effect) -> str:
    """`in doubt or in progress: begun by web-7-pid-1-ab12 at 2026-11-18 12:00 with {"amount":20}`, or how it ended."""
    began = f"begun by {effect.by} at {_moment(effect.at)}"
    if effect.lease is not None:
        began += f" under lease {effect.lease}"
    if effect.attempt > 1:
        began += f", attempt {effect.attempt}"
    if effect.request is not None:
        began += f", request {_json(effect.request)}"
    note = "" if effect.note is None else f" ({effect.note})"
    match effect.status:
        case "finished":
            return f"finished with {_json(effect.result)}{note}; {began}"
        case "failed":
            return f"failed with {_json(effect.error)}{note}; {began}"
    return f"in doubt or in progress: {began}"


def lease_in_words(held: HeldLease) -> str:
    """`leased by web-7-pid-12-2a1d08ac since 2026-11-18 12:00:00 UTC, for 12 s more (token 3)`."""
    since = "" if held.since is None else f" since {_moment(held.since)}"
    return f"leased by {held.by or 'a worker'}{since}, for {lasting(held.left)} more (token {held.token})"


def effects_that_stay(effects: Sequence[Effect], version: int) -> list[Effect]:
    """Effects that were begun after a version and have not failed: a rollback to it does not take them back."""
    return [effect for effect in effects if effect.version > version and effect.status != "failed"]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _json(value: JSON) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


def change_in_words(change: Change, labels: Mapping[str, str | None]) -> str:
    """A change that wrote no entries: `rollback to 'before the new prompt'`. `labels` are those of the snapshots that
    are still there, by id."""
    kind = change.kind.replace("_", " ")
    if change.kind in EFFECT_CHANGES:
        return f"effect {EFFECT_CHANGES[change.kind]}: {change.label}"
    if change.kind == "facts":
        return f"facts set: {change.label}"
    if not change.snapshot:
        return f"{kind} to {change.label}" if change.label else kind
    label = change.label or labels.get(change.snapshot)
    name = repr(label) if label else change.snapshot
    gone = "" if change.snapshot in labels or change.kind == "delete_snapshot" else " (deleted since)"
    return f"{kind}{' to' if change.kind == 'rollback' else ''} {name}{gone}"
