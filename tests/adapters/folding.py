"""A worker that folds a session while a test goes on: its model answers when the test says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import everturn
from tests.integration.children import Child, children

LEFT = 4  # messages that a fold leaves in view


def summarize(messages: list[Any], earlier: Any) -> str:
    """A model that names what it was given."""
    return f"{earlier.text + ' ' if earlier else ''}[{' '.join(message.text for message in messages)}]"


def fold_slowly(url: str, session_id: str) -> None:
    """Fold, say when the model is asked, and let it answer when a line is heard."""

    def ask(messages: list[Any], earlier: Any) -> str:
        print("asked", flush=True)
        sys.stdin.readline()
        return summarize(messages, earlier)

    with everturn.open(url) as store:
        receipt = store.fold(session_id, ask, max_messages=LEFT)
    print("nothing" if receipt is None else "folded", flush=True)


class Folding:
    """A fold under way in another process."""

    def __init__(self, worker: Child) -> None:
        self._worker = worker
        assert worker.line() == "asked"

    def finish(self) -> None:
        """Let the model answer, and wait until the fold is stored."""
        self._worker.stdin.write("\n")
        assert self._worker.line() == "folded"


@contextmanager
def folding_elsewhere(url: str, session_id: str) -> Iterator[Folding]:
    """Begin a fold in another process; its model waits for `finish`."""
    with children((fold_slowly, url, session_id)) as (worker,):
        yield Folding(worker)
