"""`to_langchain`: a session's messages, of any framework, as LangChain's, to begin a LangGraph thread with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langchain_core.messages import BaseMessage

from everturn import ChatMessage, Unsupported
from everturn.adapters._shared.tool_results import results_after_calls
from everturn.adapters._shared.values import RoundTripError
from everturn.adapters.langgraph.values import Allow, ChannelCodec


def to_langchain(history: Iterable[ChatMessage], *, allow: Allow = ()) -> Sequence[BaseMessage]:
    """Return messages of a session as LangChain's, to begin a thread with a conversation that began elsewhere.

    A message without an id gets one that names its seq. In the thread of the same name such a message is recognized,
    and not stored again. Where another framework stored several tool calls and then their results, each result comes
    right after its call. `allow`: classes of yours that may be restored, as for `EverturnSaver`. Raises Unsupported,
    naming the message, if it holds a class that is missing or not allowed.
    """
    codec = ChannelCodec(None, allow)
    found: list[BaseMessage] = []
    for message in results_after_calls(list(history)):
        try:
            found.append(codec.decode_message(message))
        except RoundTripError as exc:
            text = f"message {message.seq} cannot be read: {exc}"
            raise Unsupported(f"{text} (to_langchain takes the same `allow` as EverturnSaver)") from exc
    return found
