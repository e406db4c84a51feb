"""Short ways to say things in tests: messages, their words, a process of one's own, made-up examples."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import given, settings

from everturn import ChatMessage
from tests.store.places import Place
from tests.tiers import examples


def user(text: str, **fields: Any) -> ChatMessage:
    return ChatMessage("user", text, **fields)


def assistant(text: str | None, **fields: Any) -> ChatMessage:
    return ChatMessage("assistant", text, **fields)


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def calling(*call_ids: str) -> ChatMessage:
    """An assistant's message that makes tool calls."""
    calls = [{"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call_id in call_ids]
    return ChatMessage("assistant", None, tool_calls=calls)


def result(call_id: str, text: str = "done") -> ChatMessage:
    return ChatMessage("tool", text, tool_call_id=call_id)


def say(store: Any, session_id: str, *texts: str, **options: Any) -> Any:
    """One turn of user messages."""
    return store.add_messages(session_id, [user(text) for text in texts], **options)


def say_each(store: Any, session_id: str, *texts: str) -> list[Any]:
    """A turn for each text."""
    return [say(store, session_id, text) for text in texts]


def words(store: Any, session_id: str, **options: Any) -> list[Any]:
    """The contents of the history."""
    return [message.content for message in store.get_history(session_id, **options)]


@contextmanager
def gives_up_after(seconds: float, store: Any) -> Iterator[None]:
    """Bound the calls in this block, which are to fail. Those before and after have the store's own time-out: on a
    busy machine, they may need it."""
    operations = store._operations
    patient = operations.settings
    operations.settings = msgspec.structs.replace(patient, timeout=seconds)
    try:
        yield
    finally:
        operations.settings = patient


def in_another_process(script: str, *args: object) -> str:
    """Run a script in a Python of its own; its arguments are in `argv`. Returns what it printed.

    `make coverage` does not measure it: that imports modules, and what is imported is what such scripts tell.
    """
    prelude = "import sys\nargv = sys.argv[1:]\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(script), *map(str, args)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def made_up(place: Place, **strategies: Any) -> Callable[[Callable[..., None]], None]:
    """Run what is decorated, at once, with as many made-up examples as the place has patience for."""

    def run(check: Callable[..., None]) -> None:
        settings(max_examples=examples(place.examples), deadline=None)(given(**strategies)(check))()

    return run
