"""The command `everturn`: what a person meets first, and what the person on call uses.

It parses, asks and prints. What it does to a store it does through the public API; app.py lists the commands.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command. It exits with 0: done; 1: something was found wrong; 2: it could not be done, and why."""
    from everturn.cli.app import app  # not at import: typer takes a while, and `everturn.cli` may be imported for less
    from everturn.errors import MemoryStoreError

    try:
        app(prog_name="everturn")
    except (MemoryStoreError, OSError) as error:
        from everturn.cli.output import clean

        for text in (str(error), *getattr(error, "__notes__", ())):
            sys.stderr.write(f"everturn: {clean(text)}\n")
        sys.exit(2)
