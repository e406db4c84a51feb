"""Each contender in a process of its own, driven over a pipe. Knows nothing of any particular store.

A process each, because a peer brings Python's `sqlite3` and hundreds of imported modules, which would slow the garbage
collector of everyone beside it. The pipe is outside the timed part: the contender times itself.
"""

import gc
import importlib
import multiprocessing
import signal
import traceback
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

from everturn.bench.contenders import Contender, Entrant, Place
from everturn.bench.contenders.timing import Cost

FILLED_AT_ONCE = 20_000  # messages that a contender is asked to write in one call
ANSWER_TIMEOUT = 120.0  # seconds: the slowest peer needs about ten to import and fill 1,000 messages


class ContenderError(Exception):
    """The contender cannot take part; the text says why in one line."""


class ContenderProcess:
    """A contender in another process, with the same methods."""

    def __init__(self, entrant: Entrant, place: Place) -> None:
        """Start it; it imports and opens while the caller goes on. Wait for it with `ready`."""
        self.title = entrant.title
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, entrant.target, place), daemon=True)
        self._process.start()
        theirs.close()
        self._ready = False

    def __enter__(self) -> Self:
        """Return the running contender."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End its process."""
        self.close()

    def ready(self) -> None:
        """Wait until it has opened its place. Raises ContenderError if it is not installed or cannot."""
        if not self._ready:
            self._receive()
            self._ready = True

    def append(self, session_id: str, *, turns: int, first: int = 0) -> list[float]:
        [seconds] = self._call("append", (session_id,), {"turns": turns, "first": first})
        return list(seconds)

    def load(self, session_id: str, *, times: int) -> list[tuple[float, int]]:
        """Load so many times in a row, because a process that just woke up is slower."""
        answers: list[tuple[float, int]] = self._call("load", (session_id,), {}, times=times)
        return answers

    def fill(self, session_id: str, *, first: int, count: int) -> None:
        """Make a history longer, in few appends of many messages."""
        for start in range(first, first + count, FILLED_AT_ONCE):
            some = min(FILLED_AT_ONCE, first + count - start)
            self._call("fill", (session_id,), {"first": start, "count": some})

    def edit(self, session_id: str, *, edits: int) -> None:
        """Edit a session that often. Only everturn can."""
        self._call("edit", (session_id,), {"edits": edits})

    def read_latest(self, session_id: str, *, count: int, times: int) -> list[Cost]:
        """Read the latest `count` messages so many times."""
        [taken] = self._call("read_latest", (session_id,), {"count": count, "times": times})
        return list(taken)

    def agent_turns(self, session_id: str, *, turns: int, first: int, count: int) -> list[Cost]:
        """Read the latest `count` messages and append a turn, `turns` times."""
        [taken] = self._call("agent_turns", (session_id,), {"turns": turns, "first": first, "count": count})
        return list(taken)

    def append_from_tasks(self, ids: list[str], *, turns: int) -> float:
        [seconds] = self._call("append_from_tasks", (ids,), {"turns": turns})
        return float(seconds)

    def close(self) -> None:
        """Ask it to close, then make sure that its process is gone."""
        if self._process.is_alive():
            try:
                self._call("close", (), {})
            except ContenderError:
                pass  # it is ended below in any case
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    def _call(self, verb: str, args: tuple[object, ...], kwargs: dict[str, object], *, times: int = 1) -> Any:
        self.ready()
        try:
            self._pipe.send((verb, args, kwargs, times))
        except OSError as exc:
            raise ContenderError("its process ended") from exc
        return self._receive()

    def _receive(self) -> Any:
        try:
            if not self._pipe.poll(ANSWER_TIMEOUT):
                raise ContenderError(f"no answer within {ANSWER_TIMEOUT:.0f} s")
            outcome, answer = self._pipe.recv()
        except (EOFError, OSError) as exc:
            raise ContenderError("its process ended") from exc
        if outcome == "failed":
            raise ContenderError(answer)
        return answer


def _serve(pipe: Connection, target: str, place: Place) -> None:
    """Make the contender and answer calls until `close`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one, which ends it
    module, name = target.split(":")
    try:
        contender: Contender = getattr(importlib.import_module(module), name)(place)
    except ModuleNotFoundError as exc:
        pipe.send(("failed", f"not installed (no module {exc.name})"))
        return
    except Exception as exc:  # noqa: BLE001  any peer may break in any way; the run goes on without it
        pipe.send(("failed", _one_line(exc)))
        return
    pipe.send(("ok", None))
    while True:
        verb, args, kwargs, times = pipe.recv()
        gc.collect()
        try:
            pipe.send(("ok", [getattr(contender, verb)(*args, **kwargs) for _ in range(times)]))
        except Exception as exc:  # noqa: BLE001  as above
            traceback.print_exc()
            pipe.send(("failed", _one_line(exc)))
        if verb == "close":
            return


def _one_line(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}".splitlines()[0]
