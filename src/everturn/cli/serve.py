"""The command `serve`: opens the inspector in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from everturn.cli.arguments import URL, as_url, file_of, only_looking, refuse_absent_file, warnings_on_stderr
from everturn.errors import Unsupported


def serve(
    url: URL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes a free one.")] = 0,
    changes: Annotated[
        bool | None,
        typer.Option(
            "--allow-changes/--read-only",
            help="Whether the page can change sessions; default: yes for a SQLite file, else no.",
        ),
    ] = None,
    report: Annotated[
        list[Path] | None, typer.Option(help="A report of everturn check --json to show. May be repeated.")
    ] = None,
    browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
) -> None:
    """Open the inspector, a web page on a store.

    The page is served on this machine only, behind a token. It shows sessions and their timelines, compares any two
    versions, and searches. On a local SQLite file it can also snapshot, roll back, undo, fork, trim, clear and erase.
    Ctrl-C ends it.

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
    looking = {} if allowed else only_looking(url)
    with warnings_on_stderr():
        try:
            serving.serve(url, port=port, can_change=allowed, options=looking, reports=report or (), ready=ready)
        except KeyboardInterrupt:
            sys.stdout.write("stopped\n")
            raise
