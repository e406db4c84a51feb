"""Findings about a server or file, as values: one shape for all backends, for warnings at opening and for `doctor`.

Each backend's open_checks.py and doctor.py make them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Sequence

import msgspec

from everturn import events
from everturn.errors import HostileSetting


class Finding(msgspec.Struct, frozen=True):
    """One problem: where it is, what it is, the risk, and the fix."""

    where: str
    what: str
    risk: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.risk}. To mend it: {self.fix}"


def together(found: Iterable[Finding]) -> list[Finding]:
    """Merge findings that several servers share into one that names them all. Keeps their order."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for finding in found:
        places.setdefault((finding.what, finding.risk, finding.fix), []).append(finding.where)
    return [Finding(", ".join(where), *rest) for rest, where in places.items()]


def say(found: Sequence[Finding], system: str) -> None:
    """Warn of each finding (HostileSetting). The warning points to the line outside everturn that led here."""
    for finding in found:
        events.tell(events.HOSTILE_SETTING, events.Source(system, finding.where), reason=events.reason(finding))
        warnings.warn(str(finding), HostileSetting, stacklevel=_frames_of_ours() + 1)


def _frames_of_ours() -> int:
    """Count the innermost frames, from `say` on, that belong to everturn."""
    count, frame = 0, sys._getframe(1)  # noqa: SLF001 - the module warnings does so too
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "everturn":
        count, frame = count + 1, frame.f_back
    return count


class Examination(msgspec.Struct, frozen=True):
    """Result of `doctor`: facts, each a name and a value, and findings."""

    facts: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]
