"""The command that opens the inspector in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from everturn.cli.arguments import URL, as_url, file_of, refuse_absent_file, warnings_told
from everturn.errors import Unsupported


def serve(
    url: URL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on loopback; 0 takes a free one.")] = 0,
    changes: Annotated[
        bool | None,
        typer.Option("--allow-changes/--read-only", help="Whether it may change anything; a local file may be."),
    ] = None,
    report: Annotated[list[Path] | None, typer.Option(help="A report of everturn check (JSON) to show, too.")] = None,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Open the inspector: see a memory, and take it back.

    A page on this machine only, behind a token. It shows sessions, conversations and their timelines, compares any two
    points, searches, and on a local SQLite file can snapshot, roll back, undo, fork, trim, clear and erase. Ctrl-C ends
    it.

    \b
    Examples:
      everturn serve sqlite:///memory.db
      everturn serve redis://localhost --no-open
      everturn serve postgresql://host/db --allow-changes
    """
    url = as_url(url)
    refuse_absent_file(url)
    try:
        from everturn.web import serving
    except ImportError as exc:
        raise Unsupported(f"the inspector needs {exc.name}: pip install 'everturn[web]'") from exc

    def ready(address: str) -> None:
        sys.stdout.write(f"the inspector is at {address}\nCtrl-C ends it\n")
        sys.stdout.flush()
        if browser:
            import webbrowser

            webbrowser.open(address)

    allowed = file_of(url) is not None if changes is None else changes
    with warnings_told():
        serving.serve(url, port=port, can_change=allowed, reports=report or (), ready=ready)
