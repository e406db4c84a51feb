"""set_facts, and checks of facts that a caller names."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

import msgspec

from everturn.backend import Backend
from everturn.core.facts import LONGEST_NAME, LONGEST_VALUE, MOST_FACTS, SetFacts
from everturn.errors import InvalidInput, Unsupported
from everturn.model import Receipt
from everturn.store.arguments import plain
from everturn.store.change_sender import ChangeSender, Expected, Leased


class FactOperations(ChangeSender):
    """The method `set_facts`."""

    async def set_facts(
        self,
        session_id: str,
        facts: Mapping[str, str | None],
        *,
        key: str | None = None,
        expected_version: Expected = None,
        lease: Leased = None,
    ) -> Receipt:
        """Set facts of a session in one step, and leave its others as they are. None removes a fact.

        Begins the session if it is absent. Facts that are so already change nothing. Raises InvalidInput, naming the
        fact, for a name or value that is too long or no text, and if the session would have more than 16.
        """
        if not _knows_where(self.backend):
            raise Unsupported("this backend has no facts: its method `sessions` takes no `where`")
        checked = _checked(facts, "facts", may_remove=True)
        content = (msgspec.json.encode(checked),)
        return await self._change(session_id, SetFacts(tuple(checked)), key, expected_version, content, lease=lease)


def where_argument(backend: Backend, where: object) -> dict[str, Any]:
    """Make the argument by which a backend lists sessions with these facts alone; none if there are none. Raises
    InvalidInput, and Unsupported."""
    checked = {} if where is None else checked_where(where)
    if checked and not _knows_where(backend):
        raise Unsupported("this backend cannot list sessions by their facts: `sessions` takes no `where`")
    return {"where": checked} if checked else {}


def checked_where(where: object, path: str = "where") -> dict[str, str]:
    """Check facts to search by, or facts of a copy. Raises InvalidInput, naming the fact."""
    return {name: value for name, value in _checked(where, path, may_remove=False) if value is not None}


def _checked(facts: object, path: str, *, may_remove: bool) -> list[tuple[str, str | None]]:
    if not isinstance(facts, Mapping):
        raise InvalidInput(f"must be a dict of names and texts, not {type(facts).__name__}", path=path)
    if len(facts) > MOST_FACTS:
        raise InvalidInput(f"a session has {MOST_FACTS} facts at most, not {len(facts)}", path=path)
    checked: list[tuple[str, str | None]] = []
    for name, value in facts.items():
        known = _checked_text(name, LONGEST_NAME, f"{path} (a name)")
        if not known:
            raise InvalidInput("must not be empty", path=f"{path} (a name)")
        if value is None and may_remove:
            checked.append((known, None))
        else:
            checked.append((known, _checked_text(value, LONGEST_VALUE, f"{path}[{known!r}]")))
    return sorted(checked, key=lambda fact: fact[0])


def _checked_text(text: object, longest: int, path: str) -> str:
    """Check a name or a value: text of at most so many bytes, without NUL, which PostgreSQL cannot store."""
    if not isinstance(text, str):
        raise InvalidInput(f"must be a string, not {type(text).__name__}", path=path)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput("has a lone surrogate, which is no character", path=path) from None
    if size > longest or "\0" in text:
        raise InvalidInput(f"must be text of at most {longest} bytes without NUL, not {size}", path=path)
    return plain(text)


def _knows_where(backend: Backend) -> bool:
    return "where" in signature(backend.sessions).parameters
