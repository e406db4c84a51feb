"""The method `erase_all`: erases the sessions of a user, or those that have not changed for long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any

import msgspec

from everturn import events
from everturn.backend import Erasure, Query, Where, has_facts
from everturn.core.validation import shown
from everturn.errors import InvalidInput
from everturn.model import ErasureReceipt, SessionInfo
from everturn.store.arguments import LONGEST_ID, checked_search
from everturn.store.facts import where_argument
from everturn.store.maintenance import MaintenanceOperations

LATEST = 10**11  # seconds since 1970: in three thousand years. A greater whole number may be no float
PAGE = 100  # sessions that are listed at a time
BESIDE = "#"  # adapters keep `user#state` beside `user/...`, and `thread#namespace` beside `thread`


class EraseManyOperations(MaintenanceOperations):
    """The method `erase_all`."""

    async def erase_all(
        self,
        *,
        prefix: str = "",
        where: Where | None = None,
        changed_before: float | datetime | None = None,
        progress: Callable[[ErasureReceipt], object] | None = None,
    ) -> ErasureReceipt:
        """Erase the sessions whose id begins with `prefix`, that have these facts, and whose latest change was before a
        moment.

        Each session is one request; a call that is interrupted is repeated, and goes on. The request that erases
        compares the version. A session that is changed while this runs is left alone if `changed_before` is given; by
        facts alone, it is looked at again, and left alone if it has them no more. Raises InvalidInput if nothing is
        given: that would erase everything.
        """
        if progress is not None and (not callable(progress) or iscoroutinefunction(progress)):
            raise InvalidInput(f"is a plain function of a receipt, not {type(progress).__name__}", path="progress")
        prefix = checked_search(prefix, "prefix", LONGEST_ID)
        wanted = _SessionsToErase(where_argument(self.backend, where), _moment(changed_before))
        if not prefix and not wanted.facts and wanted.before is None:
            raise InvalidInput(
                "name a prefix, facts or changed_before; else it would erase everything",
                path="prefix" if where is None else "where",
            )
        self._erase_guard(0 if wanted.is_conditional else None)
        total = ErasureReceipt(prefix, 0, 0, 0, complete=True, sessions=0)
        async for session in self._sessions_of(prefix, wanted.facts):
            one = await self._erased(session, wanted)
            if one is None:
                continue
            entries, complete = one.entries, one.complete
            events.tell(events.ERASED, self.source, session_id=session.session_id, entries=entries, complete=complete)
            total = _plus(total, one)
            if progress is not None:
                progress(total)
        return await self._scrubbed(total)

    async def _erased(self, session: SessionInfo | None, wanted: _SessionsToErase) -> ErasureReceipt | None:
        """Erase a session if it still belongs to the selection. None: it does not any more."""
        remove: Any = getattr(self.backend, "remove_session", self.backend.erase)
        while session is not None and wanted.includes(session):
            guard = self._erase_guard(session.version if wanted.is_conditional else None)
            erasure: Erasure = await self.send_with_retries(
                lambda _, by, session=session, guard=guard: remove(session.session_id, session.life, by, **guard)  # type: ignore[misc]
            )
            if not erasure.spared:
                return erasure.receipt
            if not wanted.facts or wanted.before is not None:
                return None  # it has ended, and another life begun; or somebody came back to it
            query = Query(session.session_id, limit=0)
            reading = await self.send_with_retries(
                lambda _, by, query=query: self.backend.read(query, lambda _: None, by)  # type: ignore[misc]
            )
            session = reading.session
        return None

    async def _sessions_of(self, prefix: str, facts: dict[str, Any]) -> AsyncIterator[SessionInfo]:
        """Yield the sessions of a prefix with these facts, and those that adapters keep beside them."""
        for each in with_sessions_beside(prefix):
            page: str | None = None
            while True:
                found = await self.send_with_retries(
                    lambda _, by, each=each, page=page: self.backend.sessions(each, PAGE, page, None, by, **facts)  # type: ignore[misc]
                )
                for session in found.sessions:
                    yield session
                if (page := found.next) is None:
                    break

    async def _scrubbed(self, total: ErasureReceipt) -> ErasureReceipt:
        """Remove the last copies of erased bytes, where the backend does that once for all sessions."""
        scrub = getattr(self.backend, "scrub", None)
        if scrub is None or not total.sessions:
            return total
        is_clean = await self.send_with_retries(lambda _, by: scrub(by))
        fields = {name: getattr(total, name) for name in total.__struct_fields__}
        return ErasureReceipt(**fields | {"complete": total.complete and is_clean})


class _SessionsToErase(msgspec.Struct, frozen=True):
    """Facts (as the argument of a listing) and age of the sessions to erase."""

    facts: dict[str, Any]
    before: float | None

    @property
    def is_conditional(self) -> bool:
        """Whether a change can take a session out of the selection."""
        return bool(self.facts) or self.before is not None

    def includes(self, session: SessionInfo) -> bool:
        is_old = self.before is None or session.changed_at < self.before
        return is_old and has_facts(session.facts, self.facts.get("where", {}))


def with_sessions_beside(prefix: str) -> tuple[str, ...]:
    """Return the prefix; with that of a user (`user/`), also that of the sessions that adapters keep beside it."""
    return (prefix, f"{prefix[:-1]}{BESIDE}") if len(prefix) > 1 and prefix.endswith("/") else (prefix,)


def _moment(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        try:
            return value.timestamp()
        except (OverflowError, ValueError, OSError):  # in the year 1 or 9999, by the zone of this machine
            raise InvalidInput(f"is {value}, which has no time since 1970", path="changed_before") from None
    if type(value) not in (int, float) or not -LATEST <= value <= LATEST:  # type: ignore[operator]  # a number
        told = f"is a datetime, or seconds since 1970 as time.time(), not {shown(value)}"
        raise InvalidInput(told, path="changed_before")
    return float(value)  # type: ignore[arg-type]  # a number


def _plus(total: ErasureReceipt, one: ErasureReceipt) -> ErasureReceipt:
    return ErasureReceipt(
        total.session_id,
        total.entries + one.entries,
        total.snapshots + one.snapshots,
        total.bytes + one.bytes,
        total.complete and one.complete,
        tuple(dict.fromkeys((*total.remains, *one.remains))),
        total.sessions + 1,
    )
