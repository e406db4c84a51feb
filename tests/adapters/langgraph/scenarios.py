"""Graphs, and what is done with them: each scene tells what it saw, in words that are the same for every checkpointer.

They are run over LangGraph's own InMemorySaver, too: what that shows is what is expected.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

Scene = Callable[[BaseCheckpointSaver[Any]], list[Any]]
SCENES: dict[str, Scene] = {}
CONFIG: Any = {"configurable": {"thread_id": "a"}}


def scene(play: Scene) -> Scene:
    SCENES[play.__name__] = play
    return play


# --- what is seen ----------------------------------------------------------------------------------------------------


def history(graph: Any, config: Any = CONFIG) -> list[Any]:
    """Every checkpoint of the thread, latest first, with ids told as numbers."""
    snapshots = list(graph.get_state_history(config))
    numbers = {snapshot.config["configurable"]["checkpoint_id"]: -index for index, snapshot in enumerate(snapshots)}

    def number(of: Any) -> Any:
        return of and numbers.get(of["configurable"]["checkpoint_id"], "gone")

    return [
        (
            plain(snapshot.values),
            snapshot.next,
            snapshot.metadata["source"],
            snapshot.metadata["step"],
            number(snapshot.config),
            number(snapshot.parent_config),
            [
                (task.name, plain(task.result), bool(task.error), [plain(each.value) for each in task.interrupts])
                for task in snapshot.tasks
            ],
        )
        for snapshot in snapshots
    ]


def plain(value: Any) -> Any:
    """Without ids, which differ from run to run. A tuple may come back as a list from other checkpointers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "model_dump"):
        return type(value).__name__, {k: plain(v) for k, v in value.model_dump().items() if k != "id"}
    return value


# --- graphs ----------------------------------------------------------------------------------------------------------


def chat(saver: Any, **options: Any) -> Any:
    def bot(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"answer to {state['messages'][-1].text}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    builder.add_edge("bot", END)
    return builder.compile(checkpointer=saver, **options)


def say(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


@scene
def a_conversation(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    seen = [plain(graph.invoke(say(f"question {number}"), CONFIG)) for number in range(3)]
    return [*seen, history(graph)]


@scene
def durabilities(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    seen = []
    for durability in ("sync", "async", "exit"):
        config = {"configurable": {"thread_id": durability}}
        seen += [plain(graph.invoke(say(text), config, durability=durability)) for text in ("one", "two")]
        seen.append(history(graph, config))
    return seen


@scene
def an_interrupt_is_resumed(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    def ask(state: MessagesState) -> Any:
        answer = interrupt({"question": "sure?", "of": ("tuple", 1)})
        again = interrupt("really?")
        return {"messages": [AIMessage(f"{answer} {again}")]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=saver)
    seen = [plain(graph.invoke(say("hi"), CONFIG)["messages"]), history(graph)]
    seen += [plain(graph.invoke(Command(resume="yes"), CONFIG)["messages"]), history(graph)]
    return [*seen, plain(graph.invoke(Command(resume="yes"), CONFIG)), history(graph)]


@scene
def a_breakpoint_is_passed(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver, interrupt_before=["bot"])
    seen = [plain(graph.invoke(say("hi"), CONFIG)), graph.get_state(CONFIG).next]
    graph.update_state(CONFIG, {"messages": [HumanMessage("edited")]})
    return [*seen, plain(graph.invoke(None, CONFIG)), history(graph)]


@scene
def time_travel(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    for text in ("one", "two", "three"):
        graph.invoke(say(text), CONFIG)
    earlier = [each for each in graph.get_state_history(CONFIG) if each.next == ("bot",)][1]
    seen = [plain(graph.invoke(None, earlier.config)), history(graph)]
    seen += [plain(graph.invoke(say("from then on"), earlier.config)), history(graph)]
    seen += [plain(graph.invoke(say("and on"), CONFIG)), plain(graph.get_state(earlier.config).values)]
    forked = graph.update_state(earlier.config, {"messages": [AIMessage("by hand")]}, as_node="bot")
    seen += [plain(graph.get_state(forked).values), plain(graph.invoke(say("on the fork"), forked))]
    oldest = list(graph.get_state_history(CONFIG))[-1]
    return [*seen, plain(graph.invoke(None, oldest.config)), history(graph)]


@scene
def back_to_a_branch_that_was_left(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    graph.invoke(say("trunk"), CONFIG)
    trunk = graph.get_state(CONFIG).config
    graph.invoke(say("left"), CONFIG)
    left = graph.get_state(CONFIG).config
    graph.invoke(say("right"), trunk)
    right = graph.get_state(CONFIG).config
    graph.invoke(say("more left"), left)
    graph.invoke(say("more right"), right)
    return [history(graph), plain(graph.get_state(left).values)]


@scene
def copies_and_bulk_updates(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    graph.invoke(say("one"), CONFIG)
    copied = graph.update_state(CONFIG, None, as_node="__copy__")
    seen = [plain(graph.get_state(copied).values), history(graph)]
    graph.bulk_update_state(
        CONFIG, [[(say("bulk"), "__input__", None)], [({"messages": [AIMessage("done")]}, "bot", None)]]
    )
    graph.update_state(CONFIG, None, as_node=END)
    return [*seen, history(graph)]


class Steps(TypedDict):
    steps: Annotated[list[Any], operator.add]
    last: Any


def _subgraph(**options: Any) -> Any:
    def inner(state: Steps) -> Any:
        answer = interrupt("inner?") if state["last"] == "stop" else "went on"
        return {"steps": [("inner", answer)], "last": answer}

    builder = StateGraph(Steps)
    builder.add_node("inner", inner)
    builder.add_node("after", lambda _state: {"steps": ["after"]})
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "after")
    return builder.compile(**options)


def _with_subgraph(saver: Any, **options: Any) -> Any:
    builder = StateGraph(Steps)
    builder.add_node("before", lambda _state: {"steps": ["before"]})
    builder.add_node("sub", _subgraph(**options))
    builder.add_edge(START, "before")
    builder.add_edge("before", "sub")
    return builder.compile(checkpointer=saver)


@scene
def a_subgraph_is_interrupted(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = _with_subgraph(saver)
    seen = [plain(graph.invoke({"steps": [], "last": "stop"}, CONFIG)["steps"])]
    inner = graph.get_state(CONFIG, subgraphs=True).tasks[0].state
    seen += [plain(inner.values), inner.next, history(graph, inner.config)]
    return [*seen, plain(graph.invoke(Command(resume="go"), CONFIG)), history(graph)]


@scene
def a_subgraph_with_a_memory_goes_back(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = _with_subgraph(saver, checkpointer=True)
    for number in range(3):
        graph.invoke({"steps": [], "last": number}, CONFIG)
    seen = [plain(graph.get_state(CONFIG).values)]
    states = list(graph.get_state_history(CONFIG))
    before_sub = [each for each in states if each.next == ("sub",)]
    seen.append(plain(graph.invoke(None, before_sub[1].config)))
    seen.append(plain(graph.invoke(None, before_sub[-1].config)))  # to before the subgraph's first
    return [*seen, plain(graph.invoke({"steps": [], "last": "again"}, CONFIG)), history(graph)]


@scene
def tasks_in_parallel(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    builder = StateGraph(Steps)
    builder.add_node("plan", lambda _state: {"last": {"some", "set"}})
    builder.add_node("work", lambda state: {"steps": [state["last"] * 2]})
    builder.add_node("join", lambda state: {"last": len(state["steps"])})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges(
        "plan", lambda _state: [Send("work", {"last": number, "steps": []}) for number in range(5)], ["work"]
    )
    builder.add_edge("work", "join")
    graph = builder.compile(checkpointer=saver)
    return [
        plain(graph.invoke({"steps": []}, CONFIG)),
        plain(graph.invoke({"steps": ["more"]}, CONFIG)),
        history(graph),
    ]


def agent(saver: Any, **options: Any) -> Any:
    """A graph that sends the whole state with each tool call, as `create_react_agent` does, and ends with a node that
    tells all that was said once more."""

    def model(state: MessagesState) -> Any:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage("done", id=f"done {len(state['messages'])}")]}
        calls = [{"name": "tool", "args": {"n": n}, "id": f"{len(state['messages'])}-{n}"} for n in (1, 2)]
        return {"messages": [AIMessage("", tool_calls=calls, id=f"calls {len(state['messages'])}")]}

    def route(state: MessagesState) -> Any:
        calls = state["messages"][-1].tool_calls  # type: ignore[union-attr]  # it is the model's
        return [Send("tools", {"call": call, "state": state}) for call in calls] or "all"

    def tools(sent: Any) -> Any:
        known = len(sent["state"]["messages"])
        return {"messages": [ToolMessage(f"{known} known", tool_call_id=sent["call"]["id"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", tools)
    builder.add_node("all", lambda state: {"messages": list(state["messages"])})
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", route, ["tools", "all"])
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver, **options)


@scene
def the_state_is_sent_with_tasks(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = agent(saver)
    seen = [plain(graph.invoke(say(text), CONFIG, durability="sync")) for text in ("one", "two", "three")]
    waiting = [each for each in graph.get_state_history(CONFIG) if "tools" in each.next]
    seen += [len(waiting), plain(graph.invoke(None, waiting[1].config, durability="sync")), history(graph)]
    stopping = agent(saver, interrupt_before=["tools"])
    seen += [plain(stopping.invoke(say("stop"), CONFIG, durability="sync")), history(graph)]
    edited = graph.get_state(CONFIG).values["messages"][0]
    graph.update_state(CONFIG, {"messages": [HumanMessage("edited", id=edited.id)]}, as_node="model")
    return [*seen, history(graph), plain(stopping.invoke(None, CONFIG, durability="sync")), history(graph)]


@scene
def a_failed_step_is_taken_up_again(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    broken = [True]

    def flaky(_state: Steps) -> Any:
        if broken:
            broken.clear()
            raise RuntimeError("not yet")
        return {"steps": ["flaky"]}

    builder = StateGraph(Steps)
    builder.add_node("flaky", flaky)
    builder.add_edge(START, "flaky")
    graph = builder.compile(checkpointer=saver)
    seen: list[Any] = []
    try:
        graph.invoke({"steps": []}, CONFIG, durability="sync")
    except RuntimeError as exc:
        seen.append(str(exc))
    seen.append([(each.name, str(each.error)) for each in graph.get_state(CONFIG).tasks])
    return [*seen, plain(graph.invoke(None, CONFIG)), history(graph)]


@scene
def a_finished_task_does_not_run_again(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    runs: list[str] = []

    def finished(_state: Steps) -> Any:
        runs.append("finished")
        return {"steps": ["finished"]}

    def waiting(_state: Steps) -> Any:
        runs.append("waiting")
        return {"steps": [interrupt("go on?")]}

    builder = StateGraph(Steps)
    builder.add_node("finished", finished)
    builder.add_node("waiting", waiting)
    builder.add_edge(START, "finished")
    builder.add_edge(START, "waiting")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"steps": []}, CONFIG)
    seen = [history(graph), plain(graph.invoke(Command(resume="went on"), CONFIG))]
    return [*seen, sorted(runs), history(graph)]


@scene
def messages_are_edited_and_removed(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    graph = chat(saver)
    for text in ("one", "two", "three"):
        graph.invoke(say(text), CONFIG)
    messages = graph.get_state(CONFIG).values["messages"]
    graph.update_state(CONFIG, {"messages": [RemoveMessage(id=messages[0].id), RemoveMessage(id=messages[-1].id)]})
    graph.invoke(say("four"), CONFIG)
    graph.update_state(CONFIG, {"messages": [HumanMessage("two, edited", id=messages[2].id)]}, as_node="bot")
    graph.invoke(say("five"), CONFIG)
    graph.update_state(
        CONFIG, {"messages": [RemoveMessage(id="__remove_all__"), AIMessage("a summary")]}, as_node="bot"
    )
    return [plain(graph.invoke(say("six"), CONFIG)), history(graph)]


@scene
def messages_change_in_place(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    def bot(state: MessagesState) -> Any:
        state["messages"][0].additional_kwargs.setdefault("seen", []).append(len(state["messages"]))
        call = {"name": "f", "args": {"n": 1}, "id": "c1"}
        return {
            "messages": [AIMessage("", tool_calls=[call]), ToolMessage("1", tool_call_id="c1", artifact={"a": (1,)})]
        }

    builder = StateGraph(MessagesState)
    builder.add_node("bot", bot)
    builder.add_edge(START, "bot")
    graph = builder.compile(checkpointer=saver)
    for text in ("one", "two", "three"):
        graph.invoke(say(text), CONFIG, durability="sync")
    return [plain(graph.get_state(CONFIG).values)]


@scene
def functions_with_a_memory(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    @task
    def add(a: int, b: int) -> int:
        return a + b

    @entrypoint(checkpointer=saver)
    def total(number: int, *, previous: int | None = None) -> entrypoint.final[int, int]:
        result = add(previous or 0, number).result()
        return entrypoint.final(value=result, save=result)

    return [total.invoke(number, CONFIG) for number in (1, 10, 100)]


def _appended(state: Any, writes: Any) -> Any:
    return [*state, *(item for write in writes for item in write)]


@scene
def delta_channels(saver: BaseCheckpointSaver[Any]) -> list[Any]:
    class State(TypedDict):
        items: Annotated[list[Any], DeltaChannel(_appended, snapshot_frequency=4)]

    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"items": [f"one of {len(state['items'])}"]})
    builder.add_node("two", lambda _state: {"items": ["two"]})
    builder.add_edge(START, "one")
    builder.add_edge(START, "two")
    graph = builder.compile(checkpointer=saver)
    seen = [graph.invoke({"items": [f"in {number}"]}, CONFIG) for number in range(5)]
    seen.append(graph.invoke({"items": ["at exit"]}, CONFIG, durability="exit"))
    states = list(graph.get_state_history(CONFIG))
    seen.append(graph.invoke({"items": ["forked"]}, states[len(states) // 2].config))
    return [*seen, history(graph)]
