"""A LangGraph agent whose process may be killed at any moment: no step is lost, and the refund goes out once.

    python agent.py customer-42 'Please refund order 1234.'

Run it again with the same thread after a crash, and it goes on where it was. A fake model asks for one tool call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import everturn
from everturn import KeyReused, Record
from everturn.adapters.langgraph import EverturnSaver

URL = os.environ.get("AGENT_STORE", "sqlite:///agent.db")


def model(state: MessagesState) -> dict[str, Any]:
    """Stand in for a model: ask for a refund, and report it when it is done. Put yours here."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"Done: {last.text}")]}
    call = {"name": "refund", "args": {"order": "1234"}, "id": f"call-{last.id}", "type": "tool_call"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tools(state: MessagesState) -> dict[str, Any]:
    """Run the tool that the model asked for, under the id of its call."""
    last = state["messages"][-1]
    if not isinstance(last, AIMessage):
        raise TypeError("a tool runs after a message of the model")
    (call,) = last.tool_calls
    return {"messages": [ToolMessage(refund(call["args"]["order"], call["id"]), tool_call_id=call["id"])]}


def refund(order: str, key: str) -> str:
    """Refund an order, once for each key: a node that was running when its process died runs again.

    The claim is stored before the money moves. If the claim is there already, somebody began this refund before: they
    may have paid, or died just before it. So it is not paid again; a person looks. The claim is in a session of its
    own, not in the thread: time travel or a rollback there would take it back, and free its key.
    """
    with everturn.open(URL) as store:
        try:
            claim = store.append(f"refunds/{order}", [Record("refund", {"order": order})], key=key)
        except KeyReused:
            return f"refund of order {order} was begun before with other details; a person will look"
        if claim.replayed:
            return f"refund of order {order} was begun before; a person will look whether it was paid"
    pay(order)
    return f"refunded order {order}"


def pay(order: str) -> None:
    """Stand in for the payment provider: a line in a file is money that has left."""
    with Path(os.environ.get("AGENT_PAYMENTS", "payments.txt")).open("a", encoding="utf-8") as payments:
        payments.write(f"{order}\n")


def graph(store: everturn.MemoryStore) -> Any:
    """Build the agent: the model, then its tool, then the model again."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=EverturnSaver(store))


def run(thread: str, text: str) -> str:
    """Answer a message, or go on with a run that was cut off."""
    with everturn.open(URL) as store:
        agent = graph(store)
        config: Any = {"configurable": {"thread_id": thread}}
        is_cut_off = bool(agent.get_state(config).next)
        # "sync": a step is stored before the next one begins.
        result = agent.invoke(None if is_cut_off else {"messages": [("user", text)]}, config, durability="sync")
    return str(result["messages"][-1].text)


if __name__ == "__main__":
    print(run(*sys.argv[1:3]))
