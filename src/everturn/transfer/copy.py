"""Copies sessions from one store into another: judged, read in portions, made visible in one step, compared.

protocol.py has the operations of backends that it uses. Nothing is remembered between two runs: the target shows how
far a copy is. A copy that was killed is finished by running it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from everturn.backend import Status
from everturn.errors import CorruptEntry, InvalidInput, MemoryStoreBackendError
from everturn.model import CopyOutcome, CopyProgress, CopyReport
from everturn.store.maintenance import MaintenanceOperations, raise_damage
from everturn.transfer.compare import StatesDiffer, compare
from everturn.transfer.endpoint import Endpoint, rest_of
from everturn.transfer.import_checks import check_outline
from everturn.transfer.lineage import CopyConflict, Incomplete, PortionChecks, Relation, judge
from everturn.transfer.protocol import Arrival, Mark, Staging
from everturn.transfer.session_lines import Outline, Portion

AT_ONCE = 500  # entries, and changes, added to a session where it stands; with more than that it is staged anew
ATTEMPTS = 10  # at a session that changes under the copy
_COUNTED = ("imported", "extended", "skipped", "absent", "verified", "behind")


class CopyRun:
    """One run of a copy. `tell` is called with its progress; an exception that it raises ends the copy."""

    def __init__(
        self, source: MaintenanceOperations, target: MaintenanceOperations, tell: Callable[[CopyProgress], None]
    ) -> None:
        self._source = Endpoint(source, "source")
        self._target = Endpoint(target, "target")
        self._tell = tell
        self._runtime = source.runtime
        self._numbers: Counter[str] = Counter()
        self._conflicts: list[tuple[str, str]] = []
        self._done = 0
        self._total: int | None = None
        self._brought = 0  # entries of the session under way

    async def run(self, session_ids: Sequence[str] | None) -> CopyReport:
        """Copy these sessions, or all. A damaged one is left out, and its CorruptEntry raised when all others are done.

        A fault of a backend ends the copy; sessions that have arrived by then stay.
        """
        self._total = None if session_ids is None else len(session_ids)
        damaged: list[CorruptEntry] = []
        unlisted: list[CorruptEntry] = []  # damage that kept the source from listing its sessions
        named = self._source.store.every_name(unlisted) if session_ids is None else _these(session_ids)
        async for session_id in named:
            self._brought = 0
            try:
                await self._copy(session_id)
            except CopyConflict as exc:
                self._conflicts.append((session_id, str(exc)))
                self._end(session_id, "conflict", str(exc))
            except CorruptEntry as exc:
                damaged.append(exc)
                self._end(session_id, "corrupt", str(exc))
        report = CopyReport(conflicts=tuple(self._conflicts), **{name: self._numbers[name] for name in _COUNTED})
        raise_damage(damaged or unlisted, report)
        return report

    def _end(self, session_id: str, outcome: CopyOutcome, why: str | None = None) -> None:
        self._done += 1
        self._numbers[outcome] += 1
        self._tell(CopyProgress(session_id, outcome, why, self._brought, self._done, self._total))

    # --- one session -------------------------------------------------------------------------------------------------

    async def _copy(self, session_id: str) -> None:
        """Copy the rows of a session that the target lacks. Each attempt reads both anew: either may change."""
        sent: CopyOutcome = "skipped"
        missing = ""
        for _ in range(ATTEMPTS):
            outline, seen = await self._source.outline(session_id), self._runtime.clock()
            if outline is None:
                return self._end(session_id, "absent")
            there = await self._target.outline(session_id)
            if await self._relation(outline, there) is Relation.SAME:
                # It was there from the start; or our rows did arrive, and only the answer was lost.
                return await self._settle(outline, sent)
            sent = "imported" if there is None else "extended"
            try:
                if await self._bring(outline, there, seen):
                    return await self._settle(outline, sent)
            except Incomplete as exc:
                if str(exc) == missing:  # twice: it was not reclaimed under our eyes, it is lost
                    raise exc.error from None
                missing = str(exc)
        text = f"session {session_id!r} changed again and again while it was copied; copy it when it is quiet"
        raise MemoryStoreBackendError(text, outcome="not_written")

    async def _relation(self, outline: Outline, there: Outline | None) -> Relation:
        """Judge the two sessions. The one at the higher version is asked for the call that made the lower version."""
        remembered = None
        if there is not None and there.life == outline.life:
            if there.version < outline.version:
                remembered = await self._source.call_of(outline, there.version)
            elif there.version > outline.version:
                remembered = await self._target.call_of(there, outline.version)
        return judge(outline, there, remembered)

    async def _bring(self, outline: Outline, there: Outline | None, seen: float) -> bool:
        """Restore the session as it was `seen`. False: one of the two has changed meanwhile."""
        try:
            check_outline(outline)  # before anything is written
        except InvalidInput as exc:
            text = f"session {outline.session_id!r} of the source is damaged: {exc}; run verify there"
            raise CorruptEntry(text, session_id=outline.session_id, seq=outline.state.head) from exc
        onto = handle = None
        portion: Portion | None = None
        if there is not None:
            onto = Mark(there.life, there.version, there.call)
            portion = await self._addition(outline, there)
        if portion is None:
            staged = await self._staged(outline, alone=there is None)
            if staged is None:
                return False
            handle, portion = staged
        expires_in = None
        if outline.expires_at is not None:
            expires_in = outline.expires_at - outline.seen_at - (self._runtime.clock() - seen)
            if expires_in <= 0:
                return False
        status = await self._target.restore(Arrival(outline, expires_in, portion, onto, handle))
        if status is Status.SNAPSHOT_TAKEN:
            raise CopyConflict(
                "the target has one of its snapshots in another session, and can keep it only once; copy into another "
                "database"
            )
        return status is Status.APPLIED

    async def _addition(self, outline: Outline, there: Outline) -> Portion | None:
        """Read all rows that the target lacks, if they are few enough to be added to its session; else None."""
        rest = rest_of(outline, there.last_seq, there.version)
        portion = await self._source.portion(msgspec.structs.replace(rest, entries=AT_ONCE, changes=AT_ONCE))
        if portion is None or not portion.is_last:
            return None
        await self._check(PortionChecks(outline, there.last_seq, there.version), portion)
        return portion

    async def _staged(self, outline: Outline, *, alone: bool) -> tuple[str | None, Portion] | None:
        """Stage all of the session but its last portion, which is returned with the handle. None: its life is over.

        If it is `alone` (the target has none) and fits into one portion, nothing is staged. If it replaces the target's
        session, everything is staged.
        """
        checks = PortionChecks(outline)
        handle: str | None = None
        after_seq = after_version = 0
        while True:
            portion = await self._source.portion(rest_of(outline, after_seq, after_version))
            if portion is None:
                return None
            await self._check(checks, portion)
            if portion.is_last and (alone or handle is not None):
                return handle, portion
            staging = Staging(outline.session_id, outline.version, portion, handle, outline.life)
            handle = await self._target.stage(staging)
            if handle is None:
                return None
            if portion.is_last:
                return handle, Portion()
            after_seq = portion.entries[-1].seq if portion.entries else after_seq
            after_version = portion.changes[-1].version if portion.changes else after_version
            self._tell(CopyProgress(outline.session_id, None, None, self._brought, self._done, self._total))

    async def _check(self, checks: PortionChecks, portion: Portion) -> None:
        await self._runtime.offload(lambda: checks.check(portion))
        self._brought = checks.entries

    async def _settle(self, outline: Outline, outcome: CopyOutcome) -> None:
        """Compare the session in both stores, and count it. Raises CopyConflict if it is not the same in both."""
        try:
            compared = await compare(self._source, self._target, outline)
        except StatesDiffer:
            text = f"both are at version {outline.version} of one life, and do not show the same; verify both stores"
            raise CopyConflict(text) from None
        why = None
        if compared is None:
            why = "it could not be compared: the version that was copied cannot be read any more; copy again"
        elif compared.source.version != outline.version:
            self._numbers["behind"] += 1
            why = f"it is version {outline.version}, and the source has gone on meanwhile; copy again to have it all"
        self._numbers["verified"] += compared is not None
        self._end(outline.session_id, outcome, why)


async def _these(session_ids: Sequence[str]) -> AsyncIterator[str]:
    for session_id in session_ids:
        yield session_id
