"""Finds the turn that was written with a key: `get_turn`, which a caller asks before it pays a model."""

from __future__ import annotations

import msgspec

from everturn.backend import Append, ChangeRequest, Query, Status
from everturn.core import codec
from everturn.errors import InvalidInput
from everturn.model import Entry, Receipt, Turn
from everturn.store.arguments import checked_id, checked_key
from everturn.store.change_sender import new_call
from everturn.store.changes import ChangeOperations
from everturn.store.entry_reader import EntryReader
from everturn.store.outcomes import receipt_of

_NOTHING = Append((), 0)  # a turn of no entries: it changes nothing, whatever the session is


class KeyLookup(ChangeOperations):
    """The method `get_turn`."""

    async def get_turn(self, session_id: str, key: str) -> Turn | None:
        """Return the receipt and the entries of the turn written with this key, if it is on the path; else None.

        A backend looks for the key of a change before anything else, so the question is an empty turn with that key: it
        writes nothing. The entries never change, and are read at the version that wrote them.
        """
        receipt = await self._first_use(session_id, key)
        if receipt is None or not receipt.seqs:
            return None if receipt is None else Turn(receipt, ())
        entries = await self._written_by(receipt, receipt.version)
        if entries is None:  # that version is no longer known; the present one may show the turn
            entries = await self._written_by(receipt, None)
        return Turn(receipt, tuple(entries or ()))

    async def _first_use(self, session_id: str, key: str) -> Receipt | None:
        """Return the receipt of the change that used the key, while its turn is on the path. Its content may be any."""
        checked = checked_key(key)
        if checked is None:
            raise InvalidInput("must be a string, not None", path="key")
        digests = codec.digest(checked), codec.digest(b"get_turn")
        request = ChangeRequest(checked_id(session_id), _NOTHING, new_call(), self.settings.ttl, *digests)
        # Never marked as a retry: there is nothing that an earlier attempt can have written.
        outcome = await self.send_with_retries(lambda _, by: self.backend.change(request, by))
        if outcome.status not in (Status.KEY_REUSED, Status.REPLAYED):
            return None
        return msgspec.structs.replace(receipt_of(session_id, outcome), replayed=True)

    async def _written_by(self, receipt: Receipt, at: int | None) -> list[Entry] | None:
        """Read the entries of a receipt, in the state at a version or now; None if there is no such state."""
        first, last = receipt.seqs[0], receipt.seqs[-1]
        query = Query(receipt.session_id, at=at, after=first - 1, before=last + 1)

        async def send(_retry: object, by: float) -> tuple[Status, str, list[Entry]]:
            reader = EntryReader(receipt.session_id)
            reading = await self.backend.read(query, reader.take, by)
            if reading.first_missing:
                raise codec.missing(receipt.session_id, reading.first_missing)
            return reading.status, reading.session.life if reading.session else "", reader.entries

        status, life, entries = await self.send_with_retries(send)
        return entries if status is Status.FOUND and life == receipt.life else None
