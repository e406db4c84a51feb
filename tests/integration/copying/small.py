"""Small steps, so that a session of a few turns takes many; and a copy that takes them in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import everturn
from everturn.transfer import compare, copy, endpoint
from everturn.transfer.protocol import PortionRequest


def take_small_steps(put: Callable[[Any, str, Any], None]) -> None:
    """Let a few turns be many portions, and a portion many scripts. `put` is setattr, or one that takes it back."""
    from everturn.backends.redis import staged_rows, transfer

    put(endpoint, "PortionRequest", partial(PortionRequest, entries=5, changes=7, bytes=700))
    put(copy, "AT_ONCE", 3)
    put(compare, "WINDOW", 4)
    put(transfer, "MOST", 4)
    put(transfer, "STEP", 3)
    put(staged_rows, "STEP", 2)


def copy_aloud(source: str, target: str) -> None:
    """Copy, and say at each step that one was made."""
    take_small_steps(setattr)
    print("begun", flush=True)
    everturn.copy(source, target, progress=lambda _: print("step", flush=True))
