"""Copies a SQLite file while others write to it. It knows nothing of what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

PAGES = 2000  # copied at a time: whoever watches is told, and an interrupt is heard


def copy_pages(source: Path, target: Path, tell: Callable[[int, int], None]) -> None:
    """Copy every page as of one moment, whatever is written meanwhile; nobody waits for it. Replaces the target."""
    there = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READWRITE)
    there.set_busy_timeout(30_000)
    # A read transaction, held: the pages copied are those of this moment, so that writers cannot make it start anew.
    there.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
    target.unlink(missing_ok=True)
    here = apsw.Connection(str(target))
    try:
        with here.backup("main", there, "main") as pages:
            while not pages.done:
                pages.step(PAGES)
                tell(pages.page_count - pages.remaining, pages.page_count)
    finally:
        here.close()
        there.close()
