"""The command `docs`: says where the documentation of this version is."""

from __future__ import annotations

import sys
from importlib.metadata import metadata
from typing import Annotated

import typer

TITLES = {"Documentation": "documentation", "Repository": "source", "Issues": "questions, bugs", "Changelog": "changes"}


def docs(
    page: Annotated[
        str, typer.Argument(metavar="PAGE", help="A page by its name, such as contract or how-to/troubleshooting.")
    ] = "",
    browser: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Say where the documentation is, or one page of it.

    \b
    Examples:
      everturn docs
      everturn docs contract
      everturn docs how-to/troubleshooting --open
    """
    addresses = dict(line.split(", ", 1) for line in metadata("everturn").get_all("Project-URL") or ())
    site = f"{addresses['Documentation'].rstrip('/')}/"
    address = f"{site}{page}.html" if page else site
    if page:
        sys.stdout.write(f"{address}\n")
    else:
        for name, title in TITLES.items():
            sys.stdout.write(f"{title + ':':<17}{addresses[name]}\n")
        sys.stdout.write("in Python:       help(everturn.MemoryStore)\n")
    if browser:
        import webbrowser

        webbrowser.open(address)
