"""What is wrong with a server, as values: one shape for all backends, for the warnings of a store that opens and for
`doctor`. What is looked at is up to each backend's checks.py.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence

import msgspec

from everturn.errors import HostileSetting


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, what it is, what may happen, and what to do about it."""

    where: str
    what: str
    risk: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.risk}. To mend it: {self.fix}"


def together(found: Iterable[Finding]) -> list[Finding]:
    """The findings in the order they came, each said once: what several servers share names them all."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for finding in found:
        places.setdefault((finding.what, finding.risk, finding.fix), []).append(finding.where)
    return [Finding(", ".join(where), *rest) for rest, where in places.items()]


def say(found: Sequence[Finding]) -> None:
    """Warn of each. The warning points to the line outside everturn that led here."""
    for finding in found:
        warnings.warn(str(finding), HostileSetting, stacklevel=_frames_of_ours() + 1)


def _frames_of_ours() -> int:
    """How many of the innermost frames, from `say` on, belong to everturn."""
    count, frame = 0, sys._getframe(1)  # noqa: SLF001 - warnings looks there too
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "everturn":
        count, frame = count + 1, frame.f_back
    return count


class Examination(msgspec.Struct, frozen=True):
    """What `doctor` was told: facts worth knowing, each a name and a value, and what is wrong."""

    facts: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
