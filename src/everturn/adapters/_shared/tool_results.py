"""Where the results of tool calls stand in a history that another framework wrote. Pure; knows no framework.

Under OpenAI Agents a model that calls two tools at once leaves two calls, and then two results. Chat models want each
message that calls answered before anyone goes on. One message of both calls would be none that is in the session, and
a graph would have to store it beside them; so the messages stay as they are, and a result stands behind its call.
"""

from __future__ import annotations

from collections.abc import Sequence

from everturn import ChatMessage


def results_after_calls(history: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The same messages, each result right behind the message that called for it, if that is a call and nothing else.

    Such a message has no content, not even an empty one, which LangChain's always have: what these made is answered
    where it was answered, and so is what no message here called for.
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
            waiting.pop(call, None)  # an id may come again: the latest call is the one that is answered
            if message.content is None:
                waiting[call] = block
    return [message for block in blocks for message in block]


def _calls(message: ChatMessage) -> list[str]:
    """The ids of the calls that a message makes."""
    ids = [call.get("id", call.get("call_id")) for call in message.tool_calls or () if isinstance(call, dict)]
    return [one for one in ids if isinstance(one, str)]
