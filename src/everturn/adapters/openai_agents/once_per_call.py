"""once_per_call for tools of the OpenAI Agents SDK. _shared/once_per_call.py does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.tool_context import ToolContext

from everturn import AsyncMemoryStore, MemoryStore
from everturn.adapters._shared.once_per_call import AsyncTool, Failures, Tool, tool_wrapper


def once_per_call(
    store: MemoryStore | AsyncMemoryStore,
    session_id: str | Callable[[ToolContext[Any]], str],
    *,
    key: Callable[..., str] | None = None,
    failures: Failures = (),
    repeat_in_doubt: bool = False,
) -> Callable[[Tool], AsyncTool]:
    """Make each call of a tool an effect of the session, keyed by the id of the tool call, so that it is done once.

    Write it below `@function_tool`. The tool needs a parameter of type `ToolContext`, its first. A call that was done
    returns the stored result; one that was begun and never ended raises EffectInDoubt, and does nothing. The result
    is a JSON value, or a Pydantic model, which is returned as an object.

    Args:
        store: Has the session.
        session_id: Names the conversation, or a function that does so from the context of the call.
        key: Called with the tool's arguments, returns another key than the call's id: for a model that calls again.
        failures: Errors of the tool that say that nothing was done: the call may be made again.
        repeat_in_doubt: Call the tool again if it is in doubt, because that does no harm.
    """

    def name_call(context: ToolContext[Any]) -> tuple[str, str | None]:
        named = session_id if isinstance(session_id, str) else session_id(context)
        return named, context.tool_call_id

    return tool_wrapper(store, ToolContext, name_call, key=key, failures=failures, repeat_in_doubt=repeat_in_doubt)
