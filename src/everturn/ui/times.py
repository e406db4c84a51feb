"""Dates and times for people."""

from __future__ import annotations

import time


def at_time(moment: float | None) -> str:
    """The local date and time, to the second; nothing for None."""
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
