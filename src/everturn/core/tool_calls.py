"""Finds tool calls and their results in messages, and pairs of question and answer. Pure. (healing.py mends them.)"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everturn.model import JSON, ChatMessage

SYSTEM_ROLES = frozenset({"system", "developer"})


# --- tool calls and their results ------------------------------------------------------------------------------------


def calls_in(message: ChatMessage) -> set[str]:
    """Collect the ids of the tool calls a message makes (OpenAI's `tool_calls`, or `tool_use` parts)."""
    if message.tool_calls is None and isinstance(message.content, str):
        return set()  # as in most messages
    calls = [(call, "id") for call in message.tool_calls or ()]
    calls += [(part, "id") for part in _parts(message, "tool_use")]
    return _ids(calls)


def results_in(message: ChatMessage) -> set[str]:
    """Collect the ids of tool calls whose results a message carries (`tool_call_id`, or `tool_result` parts)."""
    if message.tool_call_id is None and isinstance(message.content, str):
        return set()
    results = _ids([(part, "tool_use_id") for part in _parts(message, "tool_result")])
    return results | ({message.tool_call_id} if message.tool_call_id else set())


def _parts(message: ChatMessage, kind: str) -> list[JSON]:
    parts = message.content if isinstance(message.content, list) else ()
    return [part for part in parts if isinstance(part, dict) and part.get("type") == kind]


def _ids(calls: Iterable[tuple[JSON, str]]) -> set[str]:
    found = (call.get(name) for call, name in calls if isinstance(call, dict))
    return {call_id for call_id in found if isinstance(call_id, str)}


def without_orphans(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Drop results at the beginning whose call was cut off; no model accepts a prompt that begins with one."""
    for index, message in enumerate(messages):
        if not (message.role == "tool" or results_in(message)):
            return messages[index:]
    return []


def in_order(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Keep the messages whose seq is greater than all before: a damaged row may be out of its place."""
    last, found = 0, []
    for message in messages:
        if message.seq is not None and message.seq > last:
            last = message.seq
            found.append(message)
    return found


# --- reading ---------------------------------------------------------------------------------------------------------


def pairs(messages: Iterable[ChatMessage]) -> list[dict[str, str]]:
    """Pair each user message with the last assistant text before the next user message.

    A question without an answer yet has an empty `ai`; an answer without a question an empty `human`.
    """
    found: list[dict[str, str]] = []
    for message in messages:
        if message.role == "user":
            found.append({"human": message.text, "ai": ""})
        elif message.role == "assistant" and message.text:
            if not found:
                found.append({"human": "", "ai": ""})
            found[-1]["ai"] = message.text
    return found
