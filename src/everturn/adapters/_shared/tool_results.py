"""Results of tool calls, each right after its call, in a history that another framework wrote. Pure.

OpenAI Agents stores two parallel calls as two messages, followed by two results. Chat models want each call answered
before the next message. Joining the calls into one message would make a message that is not in the session, which a
graph would have to store as well. So the messages stay as they are, and only their order changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn import ChatMessage


def results_after_calls(history: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Reorder messages so that each result comes right after its call, if the call's message has no content (None).

    LangChain's messages always have content, at least "". Results of such messages, and results without a call, keep
    their place.
    """
    if not [message for message in history if message.content is None]:  # as most are
        return history
    blocks: list[list[ChatMessage]] = []
    waiting: dict[object, list[ChatMessage]] = {}
    for message in history:
        block = waiting.pop(message.tool_call_id, None) if message.tool_call_id is not None else None
        if block is not None:
            block.append(message)
            continue
        block = [message]
        blocks.append(block)
        for call in _calls(message):
            waiting.pop(call, None)  # an id may come again: a result answers the latest call
            if message.content is None:
                waiting[call] = block
    return [message for block in blocks for message in block]


def _calls(message: ChatMessage) -> list[str]:
    """Return the ids of a message's tool calls."""
    ids = [call.get("id", call.get("call_id")) for call in message.tool_calls or () if isinstance(call, dict)]
    return [one for one in ids if isinstance(one, str)]
