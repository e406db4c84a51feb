"""A conversation that was led astray, brought back, and went on: tests of the command and of the inspector show it."""

from __future__ import annotations

from everturn import ChatMessage, MemoryStore, Record, Summary, ToolCall

CUSTOMER = "customer-42"


def have_it(store: MemoryStore) -> None:
    store.add_messages(CUSTOMER, [ChatMessage("system", "You help."), ChatMessage("user", "My order is 1234.")])
    before = store.save_snapshot(CUSTOMER, "before the new prompt")
    store.save_context(CUSTOMER, "Where is it?", "What is your order number?")
    store.rollback_to_snapshot(CUSTOMER, before)
    call = {"id": "call-1", "function": {"name": "track", "arguments": '{"order": 1234}'}}
    store.append(
        CUSTOMER,
        [
            ChatMessage("assistant", None, tool_calls=[call]),
            ChatMessage("tool", "in Bern", tool_call_id="call-1"),
            ToolCall("track", {"order": 1234}, result="in Bern", duration=0.25),
            Summary("Order 1234 is in Bern.", [0.5, 0.5], covers=(1, 2)),
            Record("langgraph.checkpoint", {"step": 3}),
        ],
    )
