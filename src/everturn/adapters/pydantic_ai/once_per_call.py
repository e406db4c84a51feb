"""once_per_call for tools of Pydantic AI. _shared/once_per_call.py does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import RunContext

from everturn import AsyncMemoryStore, InvalidInput, MemoryStore
from everturn.adapters._shared.once_per_call import AsyncTool, Failures, Tool, tool_wrapper

EFFECTS = "#effects"  # suffix of the session that has the effects of a conversation


def effects_of(conversation_id: str) -> str:
    """Return the id of the session with the effects of a conversation. Saves expect nobody else in the other one."""
    return f"{conversation_id}{EFFECTS}"


def once_per_call(
    store: MemoryStore | AsyncMemoryStore,
    *,
    key: Callable[..., str] | None = None,
    failures: Failures = (),
    repeat_in_doubt: bool = False,
) -> Callable[[Tool], AsyncTool]:
    """Make each call of a tool an effect of the conversation, keyed by the id of the tool call: it is done once.

    Write it below `@agent.tool`. A call that was done returns the stored result; one that was begun and never ended
    raises EffectInDoubt, and does nothing. The result is a JSON value, or a Pydantic model, which is returned as an
    object.

    Args:
        store: Has the conversation; its effects are in the session `{conversation_id}#effects`.
        key: Called with the tool's arguments, returns another key than the call's id: for a model that calls again.
        failures: Errors of the tool that say that nothing was done: the call may be made again.
        repeat_in_doubt: Call the tool again if it is in doubt, because that does no harm.
    """
    return tool_wrapper(store, RunContext, _name_call, key=key, failures=failures, repeat_in_doubt=repeat_in_doubt)


def _name_call(context: RunContext[Any]) -> tuple[str, str | None]:
    if context.conversation_id is None:
        raise InvalidInput("this run has no conversation; pass conversation_id= to it", path="conversation_id")
    return effects_of(context.conversation_id), context.tool_call_id
