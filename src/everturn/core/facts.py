"""Facts: names with texts that a session is found by, and the request that sets some of them. Values, no IO.

They belong to the life, not to the path: no rollback, undo, trim, fold or clear touches them. plan_change.py has the
rules; docs/decisions/049-facts.md says why a value is a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeAlias

import msgspec

MOST_FACTS = 16  # of one session
LONGEST_NAME = 64  # bytes
LONGEST_VALUE = 512  # bytes

Where: TypeAlias = Mapping[str, str]  # facts that a session must have to be listed: all of them

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


class SetFacts(msgspec.Struct, frozen=True, gc=False):
    """Set these facts of a session, and leave its others as they are. A value of None removes the fact."""

    kind: ClassVar[str] = "facts"

    facts: tuple[tuple[str, str | None], ...]  # by name, in order

    @property
    def label(self) -> str:
        """Names of the facts, for the record of the change."""
        return ", ".join(name for name, _ in self.facts)


def merged(before: Mapping[str, str], action: SetFacts) -> dict[str, str]:
    """Return the facts of a session after the request."""
    after = dict(before) | dict(action.facts)
    return {name: value for name, value in sorted(after.items()) if value is not None}


def encode_facts(facts: Mapping[str, str]) -> str | None:
    """Write facts as a JSON object, names in order; None if there are none."""
    return _encode(facts).decode() if facts else None


def decode_facts(text: str | bytes | None) -> dict[str, str]:
    """Read what `encode_facts` wrote, names in order. Raises msgspec.MsgspecError."""
    return dict(sorted(_decode(text).items())) if text else {}


def has_facts(facts: Mapping[str, str], where: Where) -> bool:
    """Whether a session with these facts is one that is asked for."""
    return all(facts.get(name) == value for name, value in where.items())
