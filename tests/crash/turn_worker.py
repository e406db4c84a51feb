"""A worker of the turn campaign: writes turns of all sizes, some after a snapshot, and says what it was told of each.

turn_campaign.py starts six of these, and stops, kills and replaces them. The clock of a worker steps by hours.
"""

from __future__ import annotations

import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from everturn import ChatMessage, MemoryStoreBackendError, SnapshotNotFound
from tests.crash.effect_worker import is_orphan, opened

SESSIONS = 2
SIZES = (0,) * 380 + (30_000,) * 16 + (900_000,) * 3 + (4_000_000, 16 * 2**20 - 2**12)  # bytes of a message, about
CLOCKS = (0.0, 0.0, -3600.0, 3600.0, 1e6)  # seconds that the clock of a worker is wrong by, after a step
TIMEOUTS = (0.3, 5.0)
REST = 0.02  # seconds after an error


def work(url: str, options: str, told: str, turns: str, name: str) -> None:
    """Write turns until there are enough of them: the body of a process."""
    dice, file = random.Random(name), os.open(told, os.O_WRONLY | os.O_APPEND)
    # One that waits for less than a fault lasts is told `unknown` or `not_written`, and must be told the truth.
    with opened(url, json.loads(options) | {"timeout": dice.choice(TIMEOUTS)}) as store:
        number = 0
        while os.fstat(file).st_size and not is_orphan() and acknowledged(Path(told)) < int(turns):
            number += 1
            if dice.random() < 0.05:
                _step_clock(store, dice.choice(CLOCKS))
            session_id, key = f"s{dice.randrange(SESSIONS)}", f"{name}.{number}.{dice.choice(SIZES)}"
            _note(file, "begun", session_id, key)
            try:
                if dice.random() < 0.05:
                    snapshot = store.save_snapshot(session_id, key=f"snapshot {key}")
                    with suppress(SnapshotNotFound):
                        store.delete_snapshot(session_id, snapshot)
                store.add_messages(session_id, turn(key), key=key)
            except MemoryStoreBackendError as exc:
                _note(file, exc.outcome, session_id, key)
                time.sleep(REST)
            else:
                _note(file, "kept", session_id, key)


def turn(key: str) -> list[ChatMessage]:
    """The two messages of a turn; the name of its key says how long they are."""
    text = f"{key} " + "x" * int(key.rpartition(".")[2])
    return [ChatMessage("user", text), ChatMessage("assistant", text)]


def acknowledged(told: Path) -> int:
    return told.read_bytes().count(b"\nkept ")


def _note(file: int, *words: str) -> None:
    os.write(file, (" ".join(words) + "\n").encode())


def _step_clock(store: Any, seconds: float) -> None:
    """Set the clock of this process, where it is asked."""
    backend = store._operations.backend
    if hasattr(backend, "_clock"):
        backend._clock = lambda: time.time() + seconds
