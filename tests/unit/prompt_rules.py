"""The rules by which OpenAI and Anthropic refuse a prompt because of its tool calls, each with its source.

OpenAI, Chat Completions (https://platform.openai.com/docs/guides/function-calling and the errors of its API):
  O1 "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
     (https://github.com/agno-agi/agno/issues/3105). Followed means directly: no other message may stand between.
  O2 "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
     (https://github.com/miurla/morphic/issues/136): also a second answer to one call is none.
  O3 "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1"
     (https://github.com/openai/openai-python/issues/2061)

Anthropic, Messages (https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use, "Handling results
from client tools", and the errors of its API):
  A1 "`tool_use` ids were found without `tool_result` blocks immediately after: Each `tool_use` block must have a
     corresponding `tool_result` block in the next message" (https://github.com/anthropics/claude-code/issues/8612)
  A2 "unexpected `tool_use_id` found in `tool_result` blocks: Each `tool_result` block must have a corresponding
     `tool_use` block in the previous message" (https://github.com/anthropics/claude-code/issues/18947)
  A3 "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
     (https://github.com/vectorize-io/hindsight/pull/4250)
  A4 "`tool_use` ids must be unique" (https://github.com/anthropics/claude-code/issues/20901)
  A5 In the user message, the `tool_result` blocks come first; text comes after all of them (the guide above).
  Consecutive messages of one role are combined into one, system messages are no messages there, and a result in
  OpenAI's form is a `tool_result` block of a user message, as every converter makes it.

A prompt in either form is judged by both: frameworks convert between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn import ChatMessage
from tests.model.model_store import calls_of


def results_in_order(message: ChatMessage) -> list[str]:
    """Ids that the message answers, with repeats. A message of role `tool` without an id answers nothing: ""."""
    if message.tool_call_id is not None or message.role == "tool":
        return [message.tool_call_id or ""]
    parts = message.content if isinstance(message.content, list) else []
    return [part["tool_use_id"] for part in parts if part["type"] == "tool_result"]


def refused_by_openai(messages: Sequence[ChatMessage]) -> str | None:
    """Return the rule that the prompt breaks; None if there is none."""
    owed: list[str] = []
    for message in messages:
        if message.tool_calls == []:
            return f"O3: {message}"
        results = results_in_order(message)
        if not results:
            if owed:
                return f"O1: {owed} before {message}"
            owed = sorted(calls_of(message))
        for name in results:
            if name not in owed:
                return f"O2: {name!r} of {message}"
            owed.remove(name)
    return f"O1: {owed} at the end" if owed else None


def refused_by_anthropic(messages: Sequence[ChatMessage]) -> str | None:
    """Return the rule that the prompt breaks; None if there is none."""
    combined: list[tuple[str, list[tuple[str, str]]]] = []  # role, and blocks: what it is, and its id
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if not combined or combined[-1][0] != role:
            combined.append((role, []))
        combined[-1][1].extend(blocks_of(message))
    seen: set[str] = set()
    called: list[str] = []
    for role, blocks in combined:
        results = [name for what, name in blocks if what == "result"]
        if len(set(results)) != len(results):
            return f"A3: {results}"
        if set(results) - set(called):
            return f"A2: {results} after {called}"
        if set(called) - set(results):
            return f"A1: {called} before {results}"
        if any(what == "result" for what, _ in blocks[len(results) :]):
            return f"A5: {blocks}"
        called = [name for what, name in blocks if what == "call"]
        if seen & set(called) or len(set(called)) != len(called):
            return f"A4: {called}"
        if called and role != "assistant":
            return f"a call by {role}"
        seen |= set(called)
    return f"A1: {called} at the end" if called else None


def blocks_of(message: ChatMessage) -> list[tuple[str, str]]:
    if message.tool_call_id is not None or message.role == "tool":
        return [("result", message.tool_call_id or "")]
    blocks = []
    for part in message.content if isinstance(message.content, list) else [{"type": "text"}]:
        kind = {"tool_use": "call", "tool_result": "result"}.get(part["type"], "text")
        blocks.append((kind, part.get("id") or part.get("tool_use_id") or ""))
    listed = [name for what, name in blocks if what == "call"]
    return blocks + [("call", call["id"]) for call in message.tool_calls or [] if call["id"] not in listed]
