"""Strands' session repositories, as targets: everturn check examples.peers.strands_peers:files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strands.session.file_session_manager import FileSessionManager


def files(where: Path, session_id: str) -> Any:
    """FileSessionManager: a file per message. It is made for one session, and is the repository of all."""
    return FileSessionManager(session_id, storage_dir=str(where))
