"""once_per_call for tools of Google ADK. _shared/once_per_call.py does it."""

from __future__ import annotations

from collections.abc import Callable

from google.adk.tools.tool_context import ToolContext

from everturn import AsyncMemoryStore, MemoryStore
from everturn.adapters._shared.once_per_call import AsyncTool, Failures, Tool, tool_wrapper
from everturn.adapters.google_adk.session_ids import effects_of


def once_per_call(
    store: MemoryStore | AsyncMemoryStore,
    *,
    key: Callable[..., str] | None = None,
    failures: Failures = (),
    repeat_in_doubt: bool = False,
) -> Callable[[Tool], AsyncTool]:
    """Make each call of a tool an effect of the session, keyed by the id of the function call, so that it is done once.

    The tool needs a parameter `tool_context: ToolContext`. A call that was done returns the stored result; one that was
    begun and never ended raises EffectInDoubt, and does nothing. The result is a JSON value, or a Pydantic model, which
    is returned as an object. Changes that the tool makes to the state are not stored with it: a call that is not made
    again changes no state.

    Args:
        store: Has the sessions; the effects of one are in the session of its name with `#effects`.
        key: Called with the tool's arguments, returns another key than the call's id: for a model that calls again.
        failures: Errors of the tool that say that nothing was done: the call may be made again.
        repeat_in_doubt: Call the tool again if it is in doubt, because that does no harm.
    """
    return tool_wrapper(store, ToolContext, _name_call, key=key, failures=failures, repeat_in_doubt=repeat_in_doubt)


def _name_call(context: ToolContext) -> tuple[str, str | None]:
    session = context.session
    return effects_of(session.app_name, session.user_id, session.id), context.function_call_id
