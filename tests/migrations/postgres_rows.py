"""Makes the golden rows of a schema version of PostgreSQL: `python -m tests.migrations.postgres_rows`.

Like the golden files of SQLite (make.py): those of a version that was on main are kept for ever, each with the SQL that
made its schema, as the package has the functions of the present version alone. The SQL of versions 2 to 4 is what they
changed in the version before. There are two of version 1, which was changed in place while nothing was released.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import psycopg

import everturn
from everturn import MemoryStore
from everturn.backends.postgres import schema, statements
from everturn.testing.servers import postgres_server
from tests.migrations.make import entry_as_json, fill, plain, state_as_json

HERE = Path(__file__).parent
TABLES = (
    "sessions",
    "names",
    "entries",
    "jumps",
    "snapshots",
    "undo_steps",
    "changes",
    "tombstones",
    "leases",
    "effects",
    "effect_keys",
    "facts",
)


def golden(version: int | str) -> Path:
    return HERE / f"postgres-v{version}.json"


def scripts(version: int | str) -> list[Path]:
    """The SQL that makes a schema of a version, in order."""
    first = 1 if version in (2, 3, 4) else version
    numbers = range(first, version + 1) if isinstance(first, int) and isinstance(version, int) else [version]
    return [golden(number).with_suffix(".sql") for number in numbers]


def current_script() -> str:
    """The SQL that makes a schema of the present version."""
    return "\n".join(statements.migration(0, schema.CURRENT, "everturn")).replace('"everturn".', "everturn.")


def rows_of(connection: psycopg.Connection[Any], schema_name: str) -> dict[str, Any]:
    """Give every row of every table, as JSON."""
    rows = {}
    for table in TABLES:
        select = f"SELECT row_to_json(t) FROM {schema_name}.{table} t ORDER BY t::text"
        rows[table] = [row for (row,) in connection.execute(select).fetchall()]  # type: ignore[call-overload]
    return rows


def put_rows(connection: psycopg.Connection[Any], schema_name: str, rows: dict[str, Any]) -> None:
    """Write the rows into the tables of a schema that is empty."""
    for table in (table for table in TABLES if table in rows):  # an earlier version has not all of them
        connection.execute(
            f"INSERT INTO {schema_name}.{table} OVERRIDING SYSTEM VALUE "  # type: ignore[arg-type]
            f"SELECT * FROM json_populate_recordset(NULL::{schema_name}.{table}, %s) ON CONFLICT DO NOTHING",
            (json.dumps(rows[table]),),  # names: noted by a trigger of `sessions` already
        )
    numbers = (
        f"SELECT setval(pg_get_serial_sequence('{schema_name}.sessions', 'no'), max(no)) FROM {schema_name}.sessions"
    )
    connection.execute(numbers)  # type: ignore[call-overload]


def expectations(store: MemoryStore) -> dict[str, Any]:
    """Read what the store shows now, at every snapshot and version, and after undo. This changes it."""
    sessions: dict[str, Any] = {}
    for session in store.sessions().sessions:
        name = session.session_id
        sessions[name] = {
            "now": state_as_json(store.state(name)),
            "latest": [entry_as_json(message) for message in store.get_history(name, limit=3)],
            "snapshots": [
                [
                    snapshot.id,
                    snapshot.label,
                    [entry_as_json(entry) for entry in store.state(name, at=snapshot).entries],
                ]
                for snapshot in store.list_snapshots(name)
            ],
            "versions": [
                [entry.seq for entry in store.state(name, at=version).entries] for version in range(session.version + 1)
            ],
            "changes": [(change.kind, change.seqs) for change in store.changes(name)],
        }
        if effects := store.get_effects(name):
            sessions[name]["effects"] = [msgspec.to_builtins(effect) for effect in effects]
        if session.facts:
            sessions[name]["facts"] = session.facts
            found = store.sessions(where=session.facts).sessions
            assert name in {one.session_id for one in found}
    for name, facts in sessions.items():
        facts["undone"] = []
        while store.info(name).undo_steps:
            store.undo(name, expected_version=store.state(name))
            facts["undone"].append(state_as_json(store.state(name)))
    return dict(plain(sessions))


def main() -> None:
    with (
        postgres_server() as server,
        everturn.open(server.url) as store,
        psycopg.connect(server.url, autocommit=True) as beside,
    ):
        fill(store)
        made = {"schema": schema.CURRENT, "rows": rows_of(beside, "everturn"), "expected": expectations(store)}
    text = json.dumps(made, indent=1, ensure_ascii=False, sort_keys=True)
    golden(schema.CURRENT).write_text(text + "\n", encoding="utf-8")
    golden(schema.CURRENT).with_suffix(".sql").write_text(current_script(), encoding="utf-8")
    print(f"{golden(schema.CURRENT).name}: {len(made['rows']['entries'])} entries")


if __name__ == "__main__":
    main()
