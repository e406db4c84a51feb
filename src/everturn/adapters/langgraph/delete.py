"""Deletions and copies of LangGraph threads: whole threads, or checkpoints with the entries that only they need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from everturn import AsyncMemoryStore, InvalidInput, Receipt, Record, SessionNotFound, Unsupported, VersionConflict
from everturn.adapters.langgraph.cache import ThreadCache
from everturn.adapters.langgraph.checkpoint_log import CheckpointLog, StoredCheckpoint
from everturn.adapters.langgraph.config import SEPARATOR, session_of, thread_of
from everturn.adapters.langgraph.rewrite import entries_to_keep
from everturn.adapters.langgraph.session_reader import SessionReader

_MARK = Record("lg.mark", None)
UNFINISHED = "|unfinished"  # namespace of a marker: the thread is being deleted or copied


class ThreadDeletions:
    """The deletions and copies of an EverturnSaver, as coroutines for a CallRunner."""

    def __init__(self, store: AsyncMemoryStore, reader: SessionReader, cache: ThreadCache) -> None:
        self._store = store
        self._reader = reader
        self._cache = cache

    async def delete_thread(self, thread_id: str) -> None:
        """Erase a thread, then its subgraphs. An absent thread is no error.

        If it is interrupted in between, the next call, or the next run of a thread of this name, finishes it.
        """
        subgraphs = await self._subgraphs(thread_id)
        if subgraphs:
            await self._mark(thread_id)
        await self._erase([session_of(thread_id, "")])
        await self._erase_subgraphs(thread_id)

    async def finish(self, thread_id: str) -> None:
        """Erase the subgraphs of a thread that does not exist, if a deletion or a copy of it was interrupted."""
        try:
            await self._store.info(session_of(thread_id, UNFINISHED))
        except SessionNotFound:
            return
        await self._erase_subgraphs(thread_id)

    async def _mark(self, thread_id: str) -> None:
        """Write the marker that says: subgraphs without their thread are leftovers."""
        await self._store.append(session_of(thread_id, UNFINISHED), [_MARK])

    async def _erase_subgraphs(self, thread_id: str) -> None:
        """Erase all sessions of subgraphs, and the marker last: until then they are known as leftovers."""
        mark = session_of(thread_id, UNFINISHED)
        found = await self._subgraphs(thread_id)
        await self._erase([*(name for name in found if name != mark), *(name for name in found if name == mark)])

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, in one step for each session."""
        unwanted = frozenset(_ids(run_ids, "run_ids"))
        if not unwanted:
            return
        for session_id in await self._mentioning(sorted(unwanted)):
            thread, _ = thread_of(session_id)
            await self._keep_only(session_id, lambda log, thread=thread: _of_other_runs(log, unwanted, thread))  # type: ignore[misc]  # mypy cannot infer the default

    async def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread: its subgraphs, then itself, each in one step. Raises InvalidInput if the new one exists.

        If it is interrupted in between, there is no new thread, and the next call or run of this name starts afresh.
        """
        target_session = session_of(target, "")
        try:
            await self._store.info(target_session)
        except SessionNotFound:
            await self._erase_subgraphs(target)  # leftovers of an interrupted copy
        else:
            raise InvalidInput(f"thread {target!r} exists already; copy into a new one", path="target_thread_id")
        subgraphs = [name for name in await self._subgraphs(source) if name != session_of(source, UNFINISHED)]
        if subgraphs:
            await self._mark(target)
        for session_id in [*subgraphs, session_of(source, "")]:
            await self._copy(session_id, target)
        if subgraphs:
            # A reader that found no thread yet may have erased the copied subgraphs as leftovers: copy these again.
            there = await self._subgraphs(target)
            for session_id in subgraphs:
                if session_of(target, thread_of(session_id)[1]) not in there:
                    await self._copy(session_id, target)
            await self._erase([session_of(target, UNFINISHED)])

    async def _copy(self, session_id: str, target: str) -> None:
        """Copy one session of a thread, unless it is gone."""
        try:
            await self._store.fork(session_id, session_of(target, thread_of(session_id)[1]))
        except SessionNotFound:
            pass

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """Remove all checkpoints but the latest of each namespace (and those it is rebuilt from), or "delete" all."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"is 'keep_latest' or 'delete', not {strategy!r}", path="strategy")
        for thread_id in _ids(thread_ids, "thread_ids"):
            if strategy == "delete":
                await self.delete_thread(thread_id)
                continue
            await self._keep_only(session_of(thread_id, ""), _latest)
            root = (await self._reader.log(session_of(thread_id, ""))).latest
            for session_id in await self._subgraphs(thread_id):
                if session_id == session_of(thread_id, UNFINISHED):
                    continue
                if await self._is_finished(session_id, root):
                    await self._erase([session_id])
                else:
                    await self._keep_only(session_id, _latest)

    async def _is_finished(self, session_id: str, root: StoredCheckpoint | None) -> bool:
        """Whether a session is of a subgraph's call (`node:task`) at an earlier checkpoint of its thread."""
        last = thread_of(session_id)[1].rpartition("|")[2]
        if ":" not in last or root is None:
            return False
        latest = (await self._reader.log(session_id)).latest
        return latest is not None and latest.state["meta"].get("parents", {}).get("", root.id) != root.id

    async def _keep_only(self, session_id: str, choose: Callable[[CheckpointLog], frozenset[str] | None]) -> None:
        """Remove checkpoints and the entries that only they need, in one step, then reclaim the bytes.

        `choose` returns the ids of the checkpoints that stay; None: all stay.
        """
        while True:
            log = await self._reader.log(session_id)
            keep = choose(log)
            if keep is None:
                return
            self._cache.forget(session_id)
            entries = entries_to_keep(log, keep)
            if not entries:
                await self._store.erase(session_id)
                return
            expected = Receipt(session_id, log.life, log.version)
            try:
                await self._store.replace(session_id, entries, after=0, expected_version=expected)
            except VersionConflict:
                continue
            await self._store.compact(session_id, drop_undo=True)
            return

    async def _erase(self, session_ids: Collection[str]) -> None:
        """Erase sessions physically, in this order."""
        for session_id in session_ids:
            self._cache.forget(session_id)
            await self._store.erase(session_id)

    # --- which sessions ----------------------------------------------------------------------------------------------

    async def _subgraphs(self, thread_id: str) -> Sequence[str]:
        prefix = session_of(thread_id, "") + SEPARATOR
        return [session.session_id async for session in self._reader.sessions(prefix)]

    async def _mentioning(self, texts: Sequence[str]) -> list[str]:
        """Return the sessions that may contain one of the texts: found by search, or all if the backend has none."""
        try:
            found = [match for text in texts for match in await self._store.find(text, limit=2**31)]
        except (Unsupported, InvalidInput):
            return [session.session_id async for session in self._reader.sessions("")]
        return list(dict.fromkeys(match.session_id for match in found))


def _ids(given: Sequence[str], path: str) -> list[str]:
    """Return the ids. Raises InvalidInput for a str: its characters would be taken for ids of threads to delete."""
    if isinstance(given, str | bytes):
        raise InvalidInput(f"is a list of ids, not {given!r}; write [{given!r}]", path=path)
    return [str(one) for one in given]


# --- which checkpoints -----------------------------------------------------------------------------------------------


def _latest(log: CheckpointLog) -> frozenset[str] | None:
    if log.latest is None:
        return None
    keep = {log.latest.id, *(stored.id for stored in _rebuilt_from(log, log.latest))}
    return None if keep == log.seqs.keys() else frozenset(keep)


def _of_other_runs(log: CheckpointLog, unwanted: frozenset[str], thread: str) -> frozenset[str] | None:
    points = [log.checkpoint_at(seq) for seq in log.seqs.values()]
    gone = {stored.id for stored in points if stored.state["meta"].get("run_id") in unwanted}
    if not gone:
        return None
    for stored in points:
        if stored.id not in gone and (needed := gone & {each.id for each in _rebuilt_from(log, stored)}):
            raise InvalidInput(
                f"checkpoint {stored.id!r} of thread {thread!r} is rebuilt (it has a DeltaChannel) from checkpoint "
                f"{min(needed)!r} of such a run; delete the thread instead",
                path="run_ids",
            )
    return frozenset(log.seqs.keys() - gone)


def _rebuilt_from(log: CheckpointLog, stored: StoredCheckpoint) -> list[StoredCheckpoint]:
    """Return the ancestors from whose writes a checkpoint's delta channels are rebuilt."""
    channels = {*stored.state["meta"].get("counters_since_delta_snapshot", {})} - stored.refs.keys()
    needed = []
    for ancestor in log.ancestors(stored) if channels else ():
        needed.append(ancestor)
        channels -= ancestor.refs.keys()
        if not channels:
            break
    return needed
