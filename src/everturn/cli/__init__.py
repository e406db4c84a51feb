"""The command `everturn`. It parses arguments, calls the public API of a store, and prints the results.

app.py              the list of commands, and the first page of help
arguments.py        opens the store of a URL; finds a session, a snapshot or a version by the name it was given
output.py           text for people, JSON for scripts, control characters escaped
entries.py          entries as lines of a terminal; adapter_records.py puts records of adapters into words
entry_windows.py    entries of a long session, printed while they are read
inspect.py log.py serve.py                        commands that read: sessions, show, snapshots, diff, tail, log, serve
init.py             creates the table, schema or file of a store
change.py erase.py effects.py                     commands that change a session, erase sessions, resolve effects
transfer.py backup.py                             export, import, copy, backup
verify.py doctor.py check.py bench.py golden.py   commands that test a store, a machine, a file
foreign/            SQLite files of other stores, imported
docs.py             where the documentation is
demo/               `everturn demo`
"""

from __future__ import annotations

import sys

NEEDED = ("click", "rich", "typer")  # brought by the extra `cli`


def main() -> None:
    """Run the command. It exits with 0: done; 1: something was found wrong; 2: it could not be done, and why."""
    from everturn.errors import MemoryStoreError

    try:
        from everturn.cli.app import app  # not at import: typer takes a while, and a service may have none

        app(prog_name="everturn")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(f"everturn: the command needs {error.name}: pip install 'everturn[cli]'\n")
        sys.exit(2)
    except (MemoryStoreError, OSError) as error:
        from everturn.cli.output import clean

        for text in (str(error), *getattr(error, "__notes__", ())):
            sys.stderr.write(f"everturn: {clean(text)}\n")
        sys.exit(2)
