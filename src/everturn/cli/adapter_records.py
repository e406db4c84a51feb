"""Records of adapters in words, where their bodies say nothing to people. Pure; what it does not know, it leaves."""

from __future__ import annotations

from everturn.errors import InvalidInput
from everturn.model import ChatMessage, Record


def in_words(record: Record) -> str | None:
    """What a record is; None if only its body tells. Anybody may write a record of any kind, so that a body of another
    shape is no error."""
    try:
        return _of_langgraph(record) if isinstance(record.body, dict) else None
    except (InvalidInput, TypeError, ValueError, OverflowError):  # no message, no id, no time
        return None


def _of_langgraph(record: Record) -> str | None:
    match record.kind, record.body:
        case "lg.put", {"id": str(checkpoint)}:
            return f"LangGraph checkpoint {checkpoint}"
        case "lg.writes", {"writes": list(writes)}:
            channels = [write[0] for write in writes if isinstance(write, list) and write and isinstance(write[0], str)]
            return f"LangGraph task wrote {', '.join(dict.fromkeys(channels)) or 'nothing'}"
        case "lg.message", dict(message):
            left = ChatMessage.from_dict(message)
            return f"LangGraph branch that was left, {left.role}: {left.text}"
    return None
