"""Brings a database's schema to the current version, or refuses it untouched. It does not know what the tables are for.

A migration brings tables and types up to date, version by version (schema/tables), creates every function as it is now
(schema/functions), and then does what needs functions (schema/after_functions). All of it and its records are one
transaction, under a lock that lasts as long as it.
"""

from __future__ import annotations

import msgspec

from everturn import events
from everturn.backends.postgres import statements
from everturn.backends.postgres.executor import Executor, SqlCall
from everturn.errors import InvalidInput, MemoryStoreBackendError, SchemaTooNew

CURRENT = 5
_LOCK = 0x65767274  # "evrt"


async def migrate(executor: Executor, schema: str, deadline: float) -> None:
    """Bring the schema to the current version. Ten workers may do this at once: a lock makes them one after the other.

    Raises SchemaTooNew for a schema of a newer everturn and InvalidInput for another program's; both stay as they are.
    """
    found = await _found(executor, schema, deadline)
    while found.version < CURRENT:
        await _check_known(executor, schema, found, deadline)
        try:
            await executor.run_script(_scripts(schema, found), deadline)
        except MemoryStoreBackendError:
            before, found = found, await _found(executor, schema, deadline)
            if found == before:
                raise
        else:
            if found.version:
                source = events.Source("postgres", executor.name)
                events.tell(events.MIGRATED, source, found=found.version, now=CURRENT)
            return  # else another worker was faster
    _refuse_newer(executor, schema, found)


async def refuse_pending(executor: Executor, schema: str, deadline: float) -> None:
    """Raise InvalidInput for a schema that would have to be created or migrated before it can be read."""
    found = await _found(executor, schema, deadline)
    _refuse_newer(executor, schema, found)
    if found.version == 0:
        told = f"{schema!r} has no tables: nothing has been stored in it yet; everturn init makes them"
        raise InvalidInput(told, path="schema")
    if found.version < CURRENT:
        raise InvalidInput(
            f"{schema!r} is of an earlier everturn (schema {found.version}, now {CURRENT}), and a look changes "
            "nothing. Any change brings it up to date: everturn compact, for one",
            path="schema",
        )


def _refuse_newer(executor: Executor, schema: str, found: _Found) -> None:
    if found.version > CURRENT:
        raise SchemaTooNew(
            f"schema {schema!r} of {executor.name} has version {found.version}, this everturn knows up to {CURRENT}; "
            "it was left untouched. Upgrade everturn to open it",
            found=found.version,
            supported=CURRENT,
        )


class _Found(msgspec.Struct, frozen=True):
    """The state of a schema: whether it exists, and its version."""

    exists: bool
    version: int  # 0: nothing of ours


async def _found(executor: Executor, schema: str, deadline: float) -> _Found:
    calls = statements.load("schema.sql", schema)
    look = SqlCall(calls["look"], (schema, schema))
    ((exists, is_ours),) = await executor.run(look, deadline)
    if not is_ours:
        ((has_tables,),) = await executor.run(SqlCall(calls["any_table"], (schema,)), deadline)
        if not has_tables:
            return _Found(exists, 0)
        # Another worker may have made them between the two looks. With the first of ours the record is there, too.
        ((exists, is_ours),) = await executor.run(look, deadline)
    if not is_ours:
        raise InvalidInput(f"{schema!r} has tables that are not everturn's; choose another schema", path="schema")
    ((version,),) = await executor.run(SqlCall(calls["version"]), deadline)
    if version is None:
        raise InvalidInput(
            f"{schema!r} has an empty table schema_versions, so that nobody can tell which version its tables are of; "
            "it was left untouched. Restore the rows of that table from a backup",
            path="schema",
        )
    return _Found(exists, version)


async def _check_known(executor: Executor, schema: str, found: _Found, deadline: float) -> None:
    """Refuse a schema of the days in which version 1 was not fixed: no migration knows its tables."""
    if not found.version:
        return
    ((is_known,),) = await executor.run(SqlCall(statements.load("schema.sql", schema)["is_known"], (schema,)), deadline)
    if not is_known:
        raise InvalidInput(
            f"{schema!r} was made by an everturn from before 0.1.0, whose tables this one cannot migrate; it was left "
            "untouched. Run `everturn export` of that everturn, and `everturn import` of this one into another schema",
            path="schema",
        )


def _scripts(schema: str, found: _Found) -> list[SqlCall]:
    from importlib.metadata import version as package_version  # 30 ms, for what a schema needs once

    calls = statements.load("schema.sql", schema)
    scripts = [SqlCall(calls["search_path"]), SqlCall(calls["unchecked"]), SqlCall(calls["lock"], (_LOCK, schema))]
    if not found.exists:
        scripts.append(SqlCall(calls["create_schema"]))
    if found.version == 0:
        scripts.append(SqlCall(calls["create_record"]))
    # First the records: if another worker was faster, this fails, and all of it with it.
    records = (package_version("everturn"), found.version + 1, CURRENT)
    scripts.append(SqlCall(calls["insert_records"], records))
    scripts += (SqlCall(script) for script in statements.migration(found.version, CURRENT, schema))
    return scripts
