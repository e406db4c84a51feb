"""Checks the arguments of a call: ids, keys, labels, counts, versions. Each check raises InvalidInput."""

from __future__ import annotations

from typing import TypeVar

from everturn.backend import At, LeaseClaim
from everturn.core.validation import shown
from everturn.errors import InvalidInput
from everturn.model import Context, Receipt, SessionState, Snapshot
from everturn.store.lease_holder import LeaseHolder

T = TypeVar("T")
LONGEST_ID = 512
LARGEST_COUNT = 2**53


def checked_id(session_id: object, path: str = "session_id") -> str:
    """Check a session id. Raises InvalidInput unless it is 1 to 512 bytes of text without NUL."""
    if type(session_id) is not str:
        if not isinstance(session_id, str):
            raise InvalidInput(f"must be a string, not {type(session_id).__name__}", path=path)
        session_id = plain(session_id)
    if session_id.isascii() and 0 < len(session_id) <= LONGEST_ID and "\0" not in session_id:
        return session_id  # as most ids
    return _checked_text(session_id, path)


def checked_key(key: object) -> bytes | None:
    """Check an idempotency key, or None. Raises InvalidInput as for a session id."""
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidInput(f"must be a string, not {type(key).__name__}", path="key")
    return _checked_text(key, "key").encode()


def checked_label(label: object, path: str = "label") -> str | None:
    """Check the label of a snapshot, or None. Raises InvalidInput as for a session id."""
    if label is None:
        return None
    if not isinstance(label, str):
        raise InvalidInput(f"must be a string, not {type(label).__name__}", path=path)
    return _checked_text(label, path)


def plain(text: str) -> str:
    """Return the text itself. A member of a string enumeration would show its name where its text was meant."""
    return str.__str__(text)


def _checked_text(text: str, path: str) -> str:
    text = plain(text)
    try:
        length = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which cannot be stored", path=path) from None
    if not 0 < length <= LONGEST_ID:
        raise InvalidInput(f"must have 1 to {LONGEST_ID} bytes, not {length}", path=path)
    if "\0" in text:
        raise InvalidInput("must not contain NUL", path=path)
    return text


def checked_count(number: object, path: str, least: int = 0) -> int:
    """Check a whole number of at least `least`, and cut it to the largest that every backend can store.

    Raises InvalidInput.
    """
    if type(number) is not int:
        raise InvalidInput(f"must be a whole number, not {type(number).__name__}", path=path)
    if number < least:
        raise InvalidInput(f"must be at least {least}, not {shown(number)}", path=path)
    return min(number, LARGEST_COUNT)


def checked_bound(number: object, path: str) -> int | None:
    """Check a whole number from 0 on, or None for no bound. Raises InvalidInput."""
    return None if number is None else checked_count(number, path)


def checked_limit(number: object, path: str) -> int | None:
    """Check a whole number from 1 on, or None for no bound. Raises InvalidInput."""
    return None if number is None else checked_count(number, path, 1)


def checked_search(text: object, path: str, longest: int) -> str:
    """Check a text to search for: any that can be stored, up to `longest` characters. Raises InvalidInput."""
    if not isinstance(text, str) or "\0" in text or len(text) > longest:
        raise InvalidInput(f"must be a string of up to {longest} characters without NUL", path=path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which cannot be stored", path=path) from None
    return plain(text)


def checked_expectation(expected: object) -> tuple[int | None, str | None]:
    """Read an expected version: a number, or that of a Receipt, SessionState or Context, with its life.

    Raises InvalidInput.
    """
    if expected is None:
        return None, None
    if isinstance(expected, Receipt | SessionState | Context):
        # One that was read from JSON has checked nothing: a backend would refuse it in words of its own.
        if expected.life != "":
            checked_id(expected.life, "expected_version.life")
        return checked_count(expected.version, "expected_version.version"), expected.life
    if type(expected) is not int or expected < 0:
        raise InvalidInput(
            "is a version (0 for a session that must not exist), a Receipt, a SessionState or a Context, "
            f"not {shown(expected) if type(expected) is int else type(expected).__name__}",
            path="expected_version",
        )
    return min(expected, LARGEST_COUNT), None


def checked_at(at: object, path: str = "at") -> At:
    """Read a past moment: a snapshot's id, a version, or None for now. Raises InvalidInput."""
    if at is None:
        return None
    if type(at) is int:
        return checked_count(at, path)
    if isinstance(at, Snapshot | str):
        return checked_snapshot(at, path)
    raise InvalidInput(f"is a snapshot (or its id) or a version, not {type(at).__name__}", path=path)


def checked_snapshot(snapshot: object, path: str = "snapshot") -> str:
    """Read the id of a Snapshot, or check an id. Raises InvalidInput."""
    if isinstance(snapshot, Snapshot):
        snapshot, path = snapshot.id, f"{path}.id"
    if isinstance(snapshot, str):
        return _checked_text(snapshot, path)
    raise InvalidInput(f"is a Snapshot or its id, not {type(snapshot).__name__}", path=path)


def checked_claim(session_id: str, lease: object) -> LeaseClaim | None:
    """Read the lease that a change names: a lease of this session, or its token. Raises InvalidInput, LeaseLost."""
    if lease is None or isinstance(lease, LeaseClaim):
        return lease
    if isinstance(lease, LeaseHolder):
        if lease.session_id != session_id:
            raise InvalidInput(f"is a lease of session {lease.session_id!r}, not of {session_id!r}", path="lease")
        return lease.claim
    if type(lease) is int and lease > 0:
        return LeaseClaim(min(lease, LARGEST_COUNT))
    raise InvalidInput(f"is a lease of the session, or its token, not {shown(lease)}", path="lease")
