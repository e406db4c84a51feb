"""Shapes of memory stores: how the objects of a target are called. Recognised by callable attributes alone.

base.py        Shape: the operations that every shape has
plain.py       lists of messages (everturn's own), pairs of strings, one message at a time
frameworks.py  LangChain, OpenAI Agents, LlamaIndex, Google ADK
read_then_put.py  base of shapes whose caller reads, extends and stores
langgraph.py   LangGraph's checkpoints; langgraph_store.py its items
agent_framework.py  Microsoft Agent Framework: histories, and checkpoints of workflows
strands.py     Strands' numbered messages
native_messages.py messages as only their frameworks make them

For a new shape, write a class and add it to SHAPES.
"""

from __future__ import annotations

import inspect
from typing import Any

from everturn.testing.shapes.agent_framework import CheckpointStorageShape, HistoryProviderShape
from everturn.testing.shapes.base import DictMessage, ReadMessage, SentMessage, Shape
from everturn.testing.shapes.frameworks import AdkShape, AgentsShape, LangChainShape, LlamaIndexShape
from everturn.testing.shapes.langgraph import LangGraphShape
from everturn.testing.shapes.langgraph_store import LangGraphStoreShape
from everturn.testing.shapes.plain import ListShape, PairShape, SingleShape
from everturn.testing.shapes.strands import StrandsShape

# The first that fits. An everturn store fits two; lists of messages say more than pairs of strings.
SHAPES: tuple[type[Shape], ...] = (
    LangGraphShape,
    AdkShape,
    LlamaIndexShape,
    AgentsShape,
    ListShape,
    PairShape,
    SingleShape,
    LangChainShape,
    HistoryProviderShape,
    CheckpointStorageShape,
    StrandsShape,
    LangGraphStoreShape,
)


def shape_of(example: Any) -> type[Shape] | None:
    """Find the shape of an object; None if it has none of them."""
    return next((shape for shape in SHAPES if shape.fits(example)), None)


def is_awaited(example: Any, shape: type[Shape]) -> bool:
    """Whether the store is used by awaiting it: its append is a coroutine, or has only an awaited twin."""
    for name in shape.appends_to:
        method = getattr(example, name, None)
        if callable(method):
            return inspect.iscoroutinefunction(method)
    return True


__all__ = ["SHAPES", "DictMessage", "ReadMessage", "SentMessage", "Shape", "is_awaited", "shape_of"]
