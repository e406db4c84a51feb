"""Starts the process that opens database files (inspector_main.py), and talks to it from pytest.

pytest's own process must not open a database file: two SQLite libraries in one process break each other's locks. One
process serves a whole run: it is started once, and takes a few milliseconds for each file.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from everturn.testing.golden.errors import GoldenError

if TYPE_CHECKING:
    from pathlib import Path

    from everturn.testing.golden.inspector_main import WrittenArtifact
    from everturn.testing.golden.masks import Mask

# The parent's path comes after this Python's own: what is in a test folder must not stand in for a module of ours.
_BOOT = """
import sys
sys.path += [entry for entry in sys.argv[1:] if entry not in sys.path]
from everturn.testing.golden.inspector_main import serve
serve()
"""


class InspectorProcess:
    """The jobs of inspector_main.py, run in its process. Each raises GoldenError as it does there."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def provide(self, start: Path, target: Path) -> None:
        self._ask("provide", start, target)

    def judge(self, expected: Path, actual: Path, masks: tuple[Mask, ...], *, foreign_keys: bool) -> str:
        return str(self._ask("judge", expected, actual, masks, foreign_keys=foreign_keys))

    def take(self, actual: Path, draft: Path, *, foreign_keys: bool) -> None:
        self._ask("take", actual, draft, foreign_keys=foreign_keys)

    def write_artifact(self, draft: Path, artifact: Path, masks: tuple[Mask, ...]) -> WrittenArtifact:
        written: WrittenArtifact = self._ask("write_artifact", draft, artifact, masks)
        return written

    def close(self) -> None:
        """End the process, if it was ever needed."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.communicate()

    def _ask(self, job: str, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            process = self._running()
            if process.stdin is None or process.stdout is None:
                raise AssertionError("both were asked for")
            try:
                pickle.dump((job, args, kwargs), process.stdin)
                process.stdin.flush()
                outcome, value = pickle.load(process.stdout)  # noqa: S301 - from the process that we started
            except (EOFError, OSError) as exc:
                self.close()
                raise RuntimeError(f"the process that compares database files died in {job}{args}") from exc
        if outcome == "refused":
            raise GoldenError(value)
        if outcome == "broken":
            raise RuntimeError(f"{job}{args} failed in the process that compares database files:\n{value}")
        return value

    def _running(self) -> subprocess.Popen[bytes]:
        # After os.fork (pytest-forked) the pipes belong to the parent: two processes must not write to them.
        if self._process is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._process = subprocess.Popen(  # noqa: S603 - this Python
                [sys.executable, "-P", "-c", _BOOT, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for pytest, which then ends this
            )
        return self._process
