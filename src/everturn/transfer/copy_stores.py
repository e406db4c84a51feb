"""everturn.copy and everturn.copy_async: copies between stores of any two backends. copy.py does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack

from everturn import connect
from everturn.backend import drive
from everturn.errors import InvalidInput
from everturn.model import CopyProgress, CopyReport
from everturn.store import aio, sync
from everturn.store.aio import AsyncMemoryStore
from everturn.store.arguments import checked_id
from everturn.store.operations import Operations
from everturn.store.sync import MemoryStore
from everturn.transfer.copy import CopyRun

Tell = Callable[[CopyProgress], None]


def copy(
    source: MemoryStore | str,
    target: MemoryStore | str,
    sessions: Iterable[str] | None = None,
    progress: Tell | None = None,
) -> CopyReport:
    """Copy sessions from one store into another, of any two backends: all of them, or those named.

    A session arrives whole and in one step: its history, its snapshots and undo steps, tool calls, summaries,
    records, the rest of its TTL, its keys, and the versions for `at=`. If the target lacks it, it is imported;
    if the target has it, skipped; an earlier version of it, extended. Anything else is a conflict: it is reported, and
    left as it is. Each session is compared in both stores when it is done. Both may be in use all the while.

    Killed, or ended by an error, run it again, and it finishes; run twice, it changes nothing.

    ```python
    report = everturn.copy("sqlite:///memory.db", "redis://localhost")
    assert report.ok, report.conflicts
    ```

    Args:
        source: The store to copy from, or its URL.
        target: The store to copy into, or its URL. A store that is given stays open.
        sessions: The ids of the sessions to copy. None: all of them.
        progress: Called with a CopyProgress for every session that is done, and for a long one in between. What it
            raises ends the copy.

    Returns:
        A report with the number of sessions by outcome, and the conflicts.

    Raises:
        CorruptEntry: A session is damaged, in the source or in the target. All others have been copied.
        Unsupported: A backend cannot copy.
        MemoryStoreBackendError: A backend failed. Run the copy again, and it finishes.
    """
    named = _checked_ids(sessions)
    with ExitStack() as opened:
        ends = _blocking_end("source", source, opened), _blocking_end("target", target, opened)
        return drive(CopyRun(*ends, progress or _tell_nobody).run(named))


async def copy_async(
    source: AsyncMemoryStore | str,
    target: AsyncMemoryStore | str,
    sessions: Iterable[str] | None = None,
    progress: Tell | None = None,
) -> CopyReport:
    """Copy sessions as `copy` does, between asynchronous stores, while the event loop goes on with other work.

    ```python
    report = await everturn.copy_async("sqlite:///memory.db", "redis://localhost")
    assert report.ok, report.conflicts
    ```

    Args:
        source: The store to copy from, or its URL.
        target: The store to copy into, or its URL. A store that is given stays open.
        sessions: The ids of the sessions to copy. None: all of them.
        progress: Called with a CopyProgress for every session that is done, and for a long one in between. What it
            raises ends the copy.

    Returns:
        A report with the number of sessions by outcome, and the conflicts.

    Raises:
        CorruptEntry: A session is damaged, in the source or in the target. All others have been copied.
        Unsupported: A backend cannot copy.
        MemoryStoreBackendError: A backend failed. Run the copy again, and it finishes.
    """
    named = _checked_ids(sessions)
    async with AsyncExitStack() as opened:
        ends = await _awaited_end("source", source, opened), await _awaited_end("target", target, opened)
        return await CopyRun(*ends, progress or _tell_nobody).run(named)


def _blocking_end(path: str, end: object, opened: ExitStack) -> Operations:
    if isinstance(end, str):
        end = opened.enter_context(connect.open(end))
    if isinstance(end, MemoryStore):
        return sync.operations_of(end)
    if isinstance(end, AsyncMemoryStore):
        raise InvalidInput("is an asynchronous store; await everturn.copy_async", path=path)
    raise _no_store(path, end)


async def _awaited_end(path: str, end: object, opened: AsyncExitStack) -> Operations:
    if isinstance(end, str):
        end = await opened.enter_async_context(await connect.open_async(end))
    if isinstance(end, AsyncMemoryStore):
        return aio.operations_of(end)
    if isinstance(end, MemoryStore):
        raise InvalidInput("is a blocking store, which would hold up the event loop; use everturn.copy", path=path)
    raise _no_store(path, end)


def _no_store(path: str, end: object) -> InvalidInput:
    return InvalidInput(f"is a store or the URL of one, not {type(end).__name__}", path=path)


def _checked_ids(sessions: object) -> list[str] | None:
    if sessions is None:
        return None
    if isinstance(sessions, str) or not isinstance(sessions, Iterable):
        raise InvalidInput(f"is a list of session ids, not {type(sessions).__name__}", path="sessions")
    return list(dict.fromkeys(checked_id(name, f"sessions[{index}]") for index, name in enumerate(sessions)))


def _tell_nobody(_progress: CopyProgress) -> None:
    pass
