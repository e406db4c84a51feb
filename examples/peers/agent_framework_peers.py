"""Microsoft Agent Framework's histories and checkpoint storages, as targets: everturn check
examples.peers.agent_framework_peers:file_history."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the file history is announced as experimental
    from agent_framework import (
        FileCheckpointStorage,
        FileHistoryProvider,
        InMemoryCheckpointStorage,
        InMemoryHistoryProvider,
    )


def file_history(where: Path) -> Any:
    """FileHistoryProvider: a file of JSON lines per session."""
    return FileHistoryProvider(where)


def memory_history(_where: Path) -> Any:
    """InMemoryHistoryProvider: in the state of the AgentSession, which the kit keeps as an application would."""
    return InMemoryHistoryProvider()


def file_checkpoints(where: Path) -> Any:
    """FileCheckpointStorage: a file per checkpoint."""
    return FileCheckpointStorage(where)


def memory_checkpoints(_where: Path) -> Any:
    """InMemoryCheckpointStorage."""
    return InMemoryCheckpointStorage()


memory_history.processes = False  # type: ignore[attr-defined]  # in memory by nature
memory_checkpoints.processes = False  # type: ignore[attr-defined]
