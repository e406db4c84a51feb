"""The methods of maintenance: clear_all, erase, compact, verify. Each step is a request with a time-out of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import signature
from typing import Any

import msgspec

from everturn import events
from everturn.backend import ChangeOutcome, Clear, Erasure, Query, Status
from everturn.errors import CorruptEntry, InvalidInput, MemoryStoreBackendError, Unsupported
from everturn.model import Compaction, ErasureReceipt, Problem, SessionInfo, VerifyReport
from everturn.store.arguments import checked_expectation, checked_id
from everturn.store.change_sender import Expected
from everturn.store.outcomes import conflict
from everturn.store.trim import TrimOperations

PAGE = 500
# The advice at the end of an error message of a read. `verify` shows the message without it: it says to run verify.
_ADVICE = re.compile(
    r"(; run verify|\. Nothing was changed|\. Was it changed by hand|\. To see all that is damaged).*$", re.DOTALL
)


class MaintenanceOperations(TrimOperations):
    """The methods of maintenance. Only `clear_all` and `erase` change the history of a session."""

    async def clear_all(self) -> int:
        """Clear every session, one after the other (each atomically, and undoable). Returns how many had something.

        One that is too damaged to be cleared is left as it is; its CorruptEntry is raised when all others are done.
        """
        cleared = 0

        async def clear(name: str) -> None:
            nonlocal cleared
            outcome = await self._outcome(name, Clear(), None, None, ())
            cleared += outcome.status is Status.APPLIED

        raise_damage(await self._at_each(clear), f"{cleared} cleared")
        return cleared

    async def erase(self, session_id: str, *, expected_version: Expected = None) -> ErasureReceipt:
        """Physically remove the session, its snapshots and its changes. Cannot be undone. An absent one is no error.

        `complete=False` while a reader or a replica can still see it: erase again when it has gone. `remains` names
        files of the backend that may hold bytes of it, such as a log, and how to remove them.

        On SQLite the whole file is rewritten, because its pages may have copies of rows. Other writers wait meanwhile,
        some seconds for each GB; readers do not. It is not begun if `timeout` is far too short.

        The life that is there when this is called is erased, or the one that `expected_version` names. A life that
        begins later is left alone, even if a late retry arrives then. Raises VersionConflict, and removes nothing, if
        the session is not at `expected_version`; Unsupported if the backend cannot compare it.
        """
        query = Query(checked_id(session_id), limit=0)
        expected, named = checked_expectation(expected_version)
        guard = self._erase_guard(expected)
        erase: Any = self.backend.erase
        life = named
        is_doubtful = False  # an attempt may have removed it, or may yet: another life that is there began later

        async def send(_: bool, by: float) -> ErasureReceipt:  # noqa: FBT001 - see RetryingSender.send_with_retries
            nonlocal life, is_doubtful
            if named is None and not is_doubtful:
                life = await self._life(query, by)
            elif life is None and await self._life(query, by) is not None:
                life = ""  # the damaged life has gone, and this is another
            try:
                erasure: Erasure = await erase(query.session_id, life, by, **guard)
            except MemoryStoreBackendError as exc:
                is_doubtful |= exc.outcome == "unknown"
                raise
            if erasure.spared and not is_doubtful:
                if expected is not None:
                    session = (await self.backend.read(query, lambda _: None, by)).session
                    seen = ChangeOutcome(Status.CONFLICT, *((session.life, session.version) if session else ()))
                    raise conflict(session_id, expected, seen)
                # It began between the two requests; or a replica that lagged behind showed the life before it.
                text = f"session {session_id!r} began anew while it was being erased; erase it again"
                raise MemoryStoreBackendError(text, outcome="not_written", transient=True)
            return erasure.receipt

        receipt = await self.send_with_retries(send)
        entries, complete = receipt.entries, receipt.complete
        events.tell(events.ERASED, self.source, session_id=session_id, entries=entries, complete=complete)
        return receipt

    def _erase_guard(self, version: int | None) -> dict[str, int]:
        """Make the argument by which a backend compares the version while it erases. Raises Unsupported."""
        if version is None:
            return {}
        if "version" not in signature(self.backend.erase).parameters:
            raise Unsupported("this backend cannot erase on the condition that a session has not changed since")
        return {"version": version}

    async def _life(self, query: Query, by: float) -> str | None:
        """Read the life of a session: "" if there is none, None if it is too damaged to tell."""
        try:
            reading = await self.backend.read(query, lambda _: None, by)
        except CorruptEntry:
            return None
        return reading.session.life if reading.session else ""

    async def compact(self, session_id: str | None = None, *, drop_undo: bool = False) -> Compaction:
        """Reclaim entries that no head, snapshot or undo step can reach, and never anything else.

        Compacts one session, or all of them and the remains of those that expired. A damaged session is left as it is;
        its CorruptEntry is raised when all others are done. With `drop_undo`, the session's undo steps go first.
        """
        if session_id is not None:
            return await self._compacted(checked_id(session_id), drop_undo=drop_undo)
        if drop_undo:
            raise InvalidInput("needs a session_id: undo steps are dropped of one session at a time", path="drop_undo")
        total = Compaction(0, 0, 0)

        async def compact(name: str | None) -> None:
            nonlocal total
            total = _plus(total, await self._compacted(name))

        damaged = await self._at_each(compact)
        await compact(None)
        raise_damage(damaged, total)
        return total

    async def _compacted(self, session_id: str | None, *, drop_undo: bool = False) -> Compaction:
        """Compact one session (None: the remains of those that ended), a request for each step until none is left."""
        entries = size = 0
        if drop_undo:  # in the first request only: undo steps that others make later stay
            step = await self.send_with_retries(lambda _, by: self.backend.compact(session_id, by, drop_undo=True))
            entries, size = step.entries, step.bytes
        while (step := await self.send_with_retries(lambda _, by: self.backend.compact(session_id, by))).sessions:
            entries, size = entries + step.entries, size + step.bytes
        return Compaction(1 if session_id is not None and entries else 0, entries, size)

    async def verify(self, session_id: str | None = None) -> VerifyReport:
        """Look for gaps, bad checksums and dangling pointers, in one session or in the whole store."""
        if session_id is not None:
            entries, problems = await self._verified(checked_id(session_id))
            return self._told(VerifyReport(1 if entries or problems else 0, entries, tuple(map(_plainly, problems))))
        names: set[str] = set()
        unlisted: list[CorruptEntry] = []
        entries, problems = await self._verified(None)
        async for name in self.every_name(unlisted):
            names.add(name)
            more, found = await self._verified(name)
            entries += more
            problems += found
        # A damaged session that was found has reported its problems already.
        problems += (Problem(None, None, str(exc)) for exc in unlisted if exc.session_id not in names)
        return self._told(VerifyReport(len(names), entries, tuple(map(_plainly, problems))))

    def _told(self, report: VerifyReport) -> VerifyReport:
        if report.problems:
            first = events.reason(report.problems[0].what)
            events.tell(events.PROBLEMS_FOUND, self.source, problems=len(report.problems), first=first)
        return report

    async def _verified(self, session_id: str | None) -> tuple[int, list[Problem]]:
        return await self.send_with_retries(lambda _, by: self.backend.verify(session_id, by))

    async def _at_each(self, act: Callable[[str], Awaitable[None]]) -> list[CorruptEntry]:
        """Do this with every session. Returns the errors of the damaged ones."""
        damaged: list[CorruptEntry] = []
        unlisted: list[CorruptEntry] = []
        async for name in self.every_name(unlisted):
            try:
                await act(name)
            except CorruptEntry as exc:
                damaged.append(exc)
        return damaged or unlisted

    async def every_name(self, unlisted: list[CorruptEntry]) -> AsyncIterator[str]:
        """Yield the names of all sessions, each at least once.

        If damage keeps the backend from listing them, its error is added to `unlisted`. Then it yields the names that
        the backend can find in another way.
        """
        listed: set[str] = set()
        try:
            async for session in self.every_session():
                listed.add(session.session_id)
                yield session.session_id
        except CorruptEntry as exc:
            unlisted.append(exc)
            find = getattr(self.backend, "surviving_sessions", None)
            found: list[str] = [] if find is None else await self.send_with_retries(lambda _, by: find(by))
            for name in found:
                if name not in listed:
                    yield name

    async def every_session(self) -> AsyncIterator[SessionInfo]:
        """Yield all sessions, by id, a page at a time. A session that is there throughout comes at least once."""
        page: str | None = None
        while True:
            found = await self.send_with_retries(
                lambda _, by, page=page: self.backend.sessions("", PAGE, page, None, by)  # type: ignore[misc]
            )
            for session in found.sessions:
                yield session
            if (page := found.next) is None:
                return

    async def close(self) -> None:
        """Release the connections and files that this store opened. A client that was passed in stays open."""
        await self.backend.close()
        events.tell(events.CLOSED, self.source)


def raise_damage(damaged: Sequence[CorruptEntry], done: object) -> None:
    """Raise the first of these errors, if any, with a note: all damaged sessions, and the work that was done."""
    if damaged:
        names = ", ".join(repr(exc.session_id) for exc in damaged)
        damaged[0].add_note(f"Damaged: {names}. What was done: {done}")
        raise damaged[0]


def _plus(a: Compaction, b: Compaction) -> Compaction:
    return Compaction(a.sessions + b.sessions, a.entries + b.entries, a.bytes + b.bytes)


def without_advice(text: str) -> str:
    """Remove the advice at the end of an error message of a read."""
    return _ADVICE.sub("", text)


def _plainly(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, what=without_advice(problem.what))
