"""The methods that keep house. Long ones go step by step, each step a request with a time-out of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from everturn.backend import Clear, Query, Status
from everturn.errors import CorruptEntry, InvalidInput, MemoryStoreBackendError
from everturn.model import Compaction, ErasureReceipt, Problem, SessionInfo, VerifyReport
from everturn.store.arguments import checked_id
from everturn.store.trim import Trims

PAGE = 500
# What an error advises whoever meets it while reading. To somebody who verifies, it would advise to verify.
_ADVICE = re.compile(
    r"(; run verify|\. Nothing was changed|\. Was it changed by hand|\. To see all that is damaged).*$", re.DOTALL
)


class Upkeep(Trims):
    """Nothing here changes what a session shows, but for `clear_all` and `erase`, which say so in their names."""

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

    async def erase(self, session_id: str) -> ErasureReceipt:
        """Physically remove the session and all that hangs on it. Cannot be undone. An absent one is no error.

        `complete=False` while a reader or a replica can still see it: erase again when it has gone. `remains` names
        what the backend keeps beyond that, such as its own log, and what removes it.

        On SQLite the whole file is written anew, for its pages may have copies of rows: other writers to it wait
        meanwhile, some seconds for each GB. Readers do not. It is not begun if `timeout` is too short by far.

        It is the life that is there when this is called. One that begins later is left alone, whichever attempt comes
        when.
        """
        query = Query(checked_id(session_id), limit=0)
        life: str | None = None
        is_doubtful = False  # an attempt may have removed it, or may yet: whatever else lives there began since

        async def send(_: bool, by: float) -> ErasureReceipt:  # noqa: FBT001 - see Caller.call
            nonlocal life, is_doubtful
            if not is_doubtful:
                life = await self._life(query, by)
            elif life is None and await self._life(query, by) is not None:
                life = ""  # what could not be told is gone, and this is another
            try:
                erasure = await self.backend.erase(query.session_id, life, by)
            except MemoryStoreBackendError as exc:
                is_doubtful |= exc.outcome == "unknown"
                raise
            if erasure.spared and not is_doubtful:
                # It began between the two requests; or a server that was behind told of the one before it.
                text = f"session {session_id!r} began anew while it was being erased; erase it again"
                raise MemoryStoreBackendError(text, outcome="not_written", transient=True)
            return erasure.receipt

        return await self.call(send)

    async def _life(self, query: Query, by: float) -> str | None:
        """The life of a session, empty if there is none; None if it is too damaged to tell."""
        try:
            reading = await self.backend.read(query, lambda _: None, by)
        except CorruptEntry:
            return None
        return reading.session.life if reading.session else ""

    async def compact(self, session_id: str | None = None, *, drop_undo: bool = False) -> Compaction:
        """Reclaim entries that no head, snapshot or undo step can reach, and never anything else.

        Of one session, or of all; then what is left of sessions that expired, too. One that is damaged is left as it
        is; its CorruptEntry is raised when all others are done.
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
            step = await self.call(lambda _, by: self.backend.compact(session_id, by, drop_undo=True))
            entries, size = step.entries, step.bytes
        while (step := await self.call(lambda _, by: self.backend.compact(session_id, by))).sessions:
            entries, size = entries + step.entries, size + step.bytes
        return Compaction(1 if session_id is not None and entries else 0, entries, size)

    async def verify(self, session_id: str | None = None) -> VerifyReport:
        """Look for gaps, bad checksums and dangling pointers, in one session or in everything there is."""
        if session_id is not None:
            entries, problems = await self._verified(checked_id(session_id))
            return VerifyReport(1 if entries or problems else 0, entries, tuple(map(_plainly, problems)))
        names: set[str] = set()
        unlisted: list[CorruptEntry] = []
        entries, problems = await self._verified(None)
        async for name in self.every_name(unlisted):
            names.add(name)
            more, found = await self._verified(name)
            entries += more
            problems += found
        # A damaged session that was found tells of itself.
        problems += (Problem(None, None, str(exc)) for exc in unlisted if exc.session_id not in names)
        return VerifyReport(len(names), entries, tuple(map(_plainly, problems)))

    async def _verified(self, session_id: str | None) -> tuple[int, list[Problem]]:
        return await self.call(lambda _, by: self.backend.verify(session_id, by))

    async def _at_each(self, act: Callable[[str], Awaitable[None]]) -> list[CorruptEntry]:
        """Do this to every session. Returns the errors of those that are damaged."""
        damaged: list[CorruptEntry] = []
        unlisted: list[CorruptEntry] = []
        async for name in self.every_name(unlisted):
            try:
                await act(name)
            except CorruptEntry as exc:
                damaged.append(exc)
        return damaged or unlisted

    async def every_name(self, unlisted: list[CorruptEntry]) -> AsyncIterator[str]:
        """The names of all sessions, each at least once.

        Where damage keeps the backend from listing them, its error is added to `unlisted`, and those names follow that
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
            found: list[str] = [] if find is None else await self.call(lambda _, by: find(by))
            for name in found:
                if name not in listed:
                    yield name

    async def every_session(self) -> AsyncIterator[SessionInfo]:
        """All sessions, by id, a page at a time; one that is there throughout comes at least once."""
        page: str | None = None
        while True:
            found = await self.call(lambda _, by, page=page: self.backend.sessions("", PAGE, page, None, by))  # type: ignore[misc]
            for session in found.sessions:
                yield session
            if (page := found.next) is None:
                return

    async def close(self) -> None:
        """Release what this store opened; a client it was given stays open. Calls after it fail."""
        await self.backend.close()


def raise_damage(damaged: Sequence[CorruptEntry], done: object) -> None:
    """Raise the first of these errors, if there are any, with a note: all sessions they are about, what was done."""
    if damaged:
        names = ", ".join(repr(exc.session_id) for exc in damaged)
        damaged[0].add_note(f"Damaged: {names}. What was done: {done}")
        raise damaged[0]


def _plus(a: Compaction, b: Compaction) -> Compaction:
    return Compaction(a.sessions + b.sessions, a.entries + b.entries, a.bytes + b.bytes)


def without_advice(text: str) -> str:
    """The text of an error, without what it advises whoever reads the session."""
    return _ADVICE.sub("", text)


def _plainly(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, what=without_advice(problem.what))
