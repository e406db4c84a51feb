"""Sends one change: makes its request, with a call id that its retries carry along, and reads the answer.

changes.py, trim.py, fold.py and effects.py say which changes there are.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from os import urandom
from typing import Any, TypeAlias

import msgspec

from everturn.backend import Action, ChangeOutcome, ChangeRequest, LeaseClaim, Status
from everturn.core import codec
from everturn.errors import Unsupported
from everturn.model import Context, Receipt, SessionState
from everturn.store.arguments import checked_claim, checked_expectation, checked_id, checked_key
from everturn.store.lease_holder import LeaseHolder
from everturn.store.outcomes import receipt_of, refuse
from everturn.store.retries import RetryingSender

Expected: TypeAlias = int | Receipt | SessionState | Context | None
"""The version a session must be at: a number (0: it must not exist), or a receipt, state or context, with its life."""

Leased: TypeAlias = LeaseHolder | int | None
"""The lease that a change names: a lease of the session, or its token."""

DONE = (Status.APPLIED, Status.REPLAYED, Status.UNCHANGED)


def new_call() -> bytes:
    """Make the id of one call. Its retries carry it, and a life that it begins is named after it."""
    return urandom(16)


class ChangeSender(RetryingSender):
    """Sends changes to a backend, each until it is answered."""

    async def _change(
        self,
        session_id: str,
        action: Action,
        key: str | None,
        expected: Expected,
        content: tuple[bytes, ...] = (),
        *,
        named: Any = None,
        lease: Leased = None,
    ) -> Receipt:
        """Send one change until it is answered. `content` is compared when the key is used again.

        Raises the error for a refusal.
        """
        outcome = await self._outcome(session_id, action, key, expected, content, named=named, lease=lease)
        return receipt_of(session_id, outcome)

    async def _outcome(
        self,
        session_id: str,
        action: Action,
        key: str | None,
        expected: Expected,
        content: tuple[bytes, ...],
        *,
        named: Any = None,
        call: bytes | None = None,
        also: Status | None = None,
        deadline: float | None = None,
        lease: Leased | LeaseClaim = None,
    ) -> ChangeOutcome:
        """Send one change as `_change` does. Returns the backend's answer, also for the refusal `also`."""
        request = self._request(session_id, action, key, expected, content, call, lease=lease)
        outcome = await self.send_with_retries(partial(self._attempt, request), deadline)
        if outcome.status is not Status.APPLIED and outcome.status is not also:
            self._raise_refusal(outcome, request, named)
        return outcome

    def _raise_refusal(self, outcome: ChangeOutcome, request: ChangeRequest, named: Any) -> None:
        """Report a change that had been made before. Raises the error for a refusal."""
        if outcome.status is Status.REPLAYED:
            self.tell_replay(outcome, request.session_id)
        elif outcome.status not in DONE:
            refuse(outcome, request, named=named)

    def _request(
        self,
        session_id: str,
        action: Action,
        key: str | None,
        expected: Expected,
        content: tuple[bytes, ...],
        call: bytes | None = None,
        *,
        lease: Leased | LeaseClaim = None,
    ) -> ChangeRequest:
        session_id, call, ttl = checked_id(session_id), call or urandom(16), self.settings.ttl
        if key is None and expected is None and lease is None:
            return ChangeRequest(session_id, action, call, ttl)  # as in most calls
        version, life = checked_expectation(expected)
        digests = (None, None) if key is None else digests_of(key, action.kind, content)
        claim = None if lease is None else self._lease_claim(session_id, lease)
        return ChangeRequest(session_id, action, call, ttl, *digests, version, life, lease=claim)

    def _lease_claim(self, session_id: str, lease: Leased | LeaseClaim) -> LeaseClaim | None:
        """Read the lease that a change names. Raises Unsupported where a backend would not look at it."""
        if lease is not None and not hasattr(self.backend, "lease"):
            raise Unsupported("this backend has no leases: it implements everturn.backend.Backend without `lease`")
        return checked_claim(session_id, lease)

    def _attempt(self, request: ChangeRequest, retry: bool, by: float) -> Coroutine[Any, Any, ChangeOutcome]:  # noqa: FBT001 - as `send_with_retries` has it
        return self.backend.change(msgspec.structs.replace(request, retry=True) if retry else request, by)


def digests_of(key: str | None, kind: str, content: tuple[bytes, ...]) -> tuple[bytes | None, bytes | None]:
    """Compute the digests of a key and of the content it is used with. The backend stores these."""
    checked = checked_key(key)
    if checked is None:
        return None, None
    return codec.digest(checked), codec.digest(kind.encode(), *content)
