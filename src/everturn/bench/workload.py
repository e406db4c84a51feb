"""The conversations that are written: plain message dicts, the same for every contender. Touches no store."""

import json
import random
from typing import TypedDict

CONTENT_BYTES = 200
_WORDS = ("order", "ticket", "please", "number", "refund", "agent", "status", "shipping", "today", "customer")


class Message(TypedDict):
    """A plain message, which a contender turns into its own kind before the clock starts."""

    role: str
    content: str


def content(index: int) -> str:
    """200 bytes of English-like ASCII, different for every index and the same in every run."""
    draw = random.Random(index)
    text = f"{index} "
    while len(text) < CONTENT_BYTES:
        text += draw.choice(_WORDS) + " "
    return text[:CONTENT_BYTES]


def messages(count: int, *, first: int = 0) -> list[Message]:
    """`count` messages, the user and the assistant in turn."""
    return [
        {"role": "assistant" if index % 2 else "user", "content": content(index)}
        for index in range(first, first + count)
    ]


def turns(count: int, *, first: int = 0) -> list[list[Message]]:
    """`count` turns of two messages each."""
    flat = messages(2 * count, first=2 * first)
    return [flat[at : at + 2] for at in range(0, len(flat), 2)]


def encode(message: Message) -> str:
    """The JSON a bare baseline stores: compact, through stdlib `json`, as written by hand with care."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False)


def json_bytes(written: list[Message]) -> int:
    """The size of these messages as JSON, in bytes."""
    return sum(len(encode(message).encode()) for message in written)
