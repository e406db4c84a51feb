"""The process that reads another store's SQLite file: `python -m everturn.cli.foreign.read_sqlite FORMAT FILE [TABLE]`.

Prints a line of JSON for each message, session by session, in order. It opens the file for reading only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from everturn.cli.foreign import ForeignMessage
from everturn.cli.foreign.messages import from_langchain, from_openai

TABLES = {"openai-agents": "agent_messages", "langchain": "message_store"}
COLUMNS = {"openai-agents": "message_data", "langchain": "message"}


def rows(form: str, file: Path, table: str) -> Iterator[ForeignMessage]:
    """Yield every message. Raises SystemExit, with one line, if the file is not of this form."""
    db = _opened(file)
    name = '"' + table.replace('"', '""') + '"'
    try:
        found = db.execute(
            f"SELECT session_id, id, {COLUMNS[form]} FROM {name} ORDER BY session_id, id"  # noqa: S608 - quoted above
        )
        for session_id, row, text in found:
            try:
                fields = msgspec.json.decode(text)
                message = from_openai(fields) if form == "openai-agents" else from_langchain(fields)
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError, RecursionError) as exc:
                sys.exit(f"row {row} of session {session_id!r} cannot be read ({exc}); nothing after it was imported")
            yield ForeignMessage(session_id, row, message.to_dict())
    except apsw.SQLError as exc:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        sys.exit(f"is not a file of {form} ({exc}); its tables are {', '.join(tables) or 'none'}")
    except apsw.NotADBError:
        sys.exit("is not a SQLite file")


def _opened(file: Path) -> apsw.Connection:
    if not file.is_file():
        sys.exit("is not a file")
    try:
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        db.set_busy_timeout(10_000)
        db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.NotADBError:
        sys.exit("is not a SQLite file")
    except apsw.Error as exc:
        sys.exit(f"cannot be read: {exc}")
    return db


def main(form: str, file: str, table: str = "") -> None:
    out = sys.stdout.buffer
    for row in rows(form, Path(file), table or TABLES[form]):
        out.write(msgspec.json.encode(row) + b"\n")
    out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
