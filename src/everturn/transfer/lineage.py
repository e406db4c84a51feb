"""Judges copies: whether the target's session is an earlier state of the source's, and whether all rows came. Pure.

copy.py reads and writes the rows.
"""

from __future__ import annotations

from enum import Enum

from everturn.backend import REMEMBERED
from everturn.core import codec
from everturn.core.paths import Range, clip, merge, minus, reach
from everturn.errors import CorruptEntry
from everturn.transfer.session_lines import Outline, Portion


class Relation(Enum):
    """Relation of the target's session to the source's."""

    NONE = "none"  # there is none in the target
    SAME = "same"
    ANCESTOR = "ancestor"  # the source's is what became of it


class CopyConflict(Exception):
    """The target's session is not an earlier state of the source's, or that cannot be proven. It is left as it is."""


def judge(source: Outline, target: Outline | None, remembered: bytes | None) -> Relation:
    """Find the relation of the target's session to the source's. Raises CopyConflict, saying what to do, if none.

    `remembered` is the call that made the lower of the two versions, as the other session remembers it; None if it does
    not.
    """
    if target is None:
        return Relation.NONE
    if target.life != source.life:
        raise CopyConflict(
            f"the target has a session of this name with a life of its own ({target.life}, not {source.life}); erase "
            "it there, or copy into another namespace"
        )
    where = f"the target is at version {target.version}, the source at {source.version}"
    if target.version == source.version:
        if target.call != source.call:
            raise CopyConflict(f"{where}, but by another change; erase the one you do not want")
        return Relation.SAME
    if remembered is None:
        raise CopyConflict(
            f"{where}: too far apart to prove that one became the other; erase it there to import it anew"
        )
    if remembered != (target if target.version < source.version else source).call:
        raise CopyConflict(f"{where}, and they went different ways before that; erase the one you do not want")
    if target.version > source.version:
        raise CopyConflict(f"{where}: it is the same session, further on; copy the other way round")
    return Relation.ANCESTOR


class Incomplete(Exception):
    """A row is missing: it was reclaimed meanwhile, or is lost. `error` is to be raised if it is lost."""

    def __init__(self, error: CorruptEntry) -> None:
        super().__init__(str(error))
        self.error = error


class PortionChecks:
    """Checks the portions of a session as they come: is each row sound, and is none missing?"""

    def __init__(self, outline: Outline, after_seq: int = 0, after_version: int = 0) -> None:
        self._outline = outline
        self._jumps = outline.jumps[::-1]
        self._first = after_seq + 1
        self._version = after_version
        self._there: list[Range] = []
        self.entries = 0  # seen so far

    def check(self, portion: Portion) -> None:
        """Check the next portion. Raises CorruptEntry for a damaged entry, Incomplete if a row is missing."""
        name = self._outline.session_id
        for entry in portion.entries:
            codec.decode(name, entry.kind, entry.seq, entry.created_at, entry.checksum, bytes(entry.body))
        self.entries += len(portion.entries)
        self._there = merge([*self._there, *((entry.seq, entry.seq) for entry in portion.entries)])
        for change in portion.changes:
            # Before the latest ones, only changes whose keys still count are remembered, and there may be gaps.
            may_skip = not self._version or change.version <= self._outline.version - REMEMBERED + 1
            if change.version != self._version + 1 and not may_skip:
                raise self._no_change()
            self._version = change.version
        if portion.is_last and self._version != self._outline.version:
            raise self._no_change()
        if portion.is_last or portion.changes:  # then all entries have come
            states = [change.state for change in portion.changes if change.readable]
            shown = clip(reach(self._outline.roots + states, self._jumps).whole, self._first, self._outline.last_seq)
            for first, _ in minus(shown, self._there):
                raise Incomplete(codec.missing(name, first))

    def _no_change(self) -> Incomplete:
        name, version = self._outline.session_id, self._outline.version
        text = f"session {name!r}: its change log breaks off at {self._version}, and does not lead to version {version}"
        return Incomplete(CorruptEntry(f"{text}; run verify", session_id=name, seq=self._outline.state.head))
