"""Edits behind the store's back: after each, a read is as before or raises, and `verify` and `copy` tell of it.

Seeded: a case that fails can be run again by its number. Rows are put back after each edit.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, Self

import psycopg
import pytest

import everturn
from everturn import ChatMessage, MemoryStoreError, Record, Summary, ToolCall
from everturn.testing.servers import PostgresServer
from tests.tiers import first

TABLES = (
    "sessions",
    "names",
    "entries",
    "jumps",
    "snapshots",
    "undo_steps",
    "changes",
    "effects",
    "effect_keys",
    "facts",
)
SESSIONS = ("alpha", "beta", "gamma")
EDITS = 300
CASES = 10
# `fence`: of requests that are under way; no read depends on it. `lease`: a turn that finds another there looks at the
# lease itself (test_leased_turns.py edits it).
NOT_COVERED = {"fence", "lease"}
MADE_ANEW = {"changed_in", "expires_in"}  # by every change, of the time that it is made at: an edit of these is undone
TTL = 3600.0


@pytest.fixture(scope="module")
def damaged(server: PostgresServer) -> Iterator[Damaged]:
    with Damaged(server) as damaged:
        yield damaged


def converse(store: Any, name: str) -> None:
    """A session with all that can be damaged: branches, snapshots, a trim, a clear, summaries, keys."""

    def say(text: str) -> list[ChatMessage]:
        return [ChatMessage("user", f"{name} {text}"), ChatMessage("assistant", f"{name} answers {text}")]

    for number in range(4):
        store.add_messages(name, say(str(number)), key=f"k{number}")
    store.append(name, [ToolCall("f", {"of": name}), Summary(f"{name} summary", [1.0, 0.0], (1, 2)), Record("r", name)])
    first = store.save_snapshot(name, "first")
    store.replace(name, say("edited"), after=4)
    store.add_messages(name, [ChatMessage("system", f"{name} be kind"), *say("5")])
    store.save_snapshot(name, "second")
    store.rollback_to_snapshot(name, first)
    store.append(name, [*say("6"), ToolCall("g", {"of": name})])
    store.trim(name, max_messages=4)
    store.add_messages(name, say("7"))
    store.set_facts(name, {"user": name, "title": "Refund"})
    for number in range(3):
        store.begin_effect(name, f"pay {number}", {"of": name})
    store.finish_effect(name, "pay 0", {"receipt": name})
    store.fail_effect(name, "pay 1", "no funds")
    store.set_ttl(name, TTL)


class Damaged:
    """A store whose tables are edited, and put back."""

    def __init__(self, server: PostgresServer) -> None:
        self.url = server.url
        self.connection = psycopg.connect(server.url, autocommit=True)
        self.store: Any = everturn.open(server.url, timeout=20)
        for name in SESSIONS:
            converse(self.store, name)
        self.rows = {table: self._read(table) for table in TABLES}
        self.columns = {table: self._columns(table) for table in TABLES}
        self.numbers = dict(self.connection.execute("SELECT session_id, no FROM everturn.sessions").fetchall())
        for table in TABLES:
            self.connection.execute(f"CREATE TABLE public.kept_{table} AS TABLE everturn.{table}")
        self.connection.execute("SET session_replication_role = replica")  # rows are put back as they were
        self.snapshots = {name: [one.id for one in self.store.list_snapshots(name)] for name in SESSIONS}
        self.before = {name: self.reads(name) for name in SESSIONS}
        assert not [told for one in self.before.values() for told in one.values() if isinstance(told, MemoryStoreError)]
        assert self.store.verify().ok

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.connection.close()

    def _read(self, table: str) -> list[Any]:
        return self.connection.execute(f"SELECT ctid::text, * FROM everturn.{table}").fetchall()

    def _columns(self, table: str) -> list[tuple[str, str, bool]]:
        return self.connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            (f"everturn.{table}",),
        ).fetchall()

    def put_back(self) -> None:
        with self.connection.transaction():
            for table in TABLES:
                self.connection.execute(f"DELETE FROM everturn.{table}")
                self.connection.execute(
                    f"INSERT INTO everturn.{table} OVERRIDING SYSTEM VALUE TABLE public.kept_{table}"
                )

    def reads(self, name: str) -> dict[str, Any]:
        """What every read says of a session: a value, or the error that it raises."""
        store = self.store
        calls: dict[str, Callable[[], Any]] = {
            "history": lambda: store.get_history(name),
            "latest": lambda: store.get_history(name, limit=3),
            "window": lambda: store.get_history(name, after=4, before=12),
            "state": lambda: store.state(name),
            "info": lambda: store.info(name),
            "snapshots": lambda: store.list_snapshots(name),
            "changes": lambda: store.changes(name),
            "tool calls": lambda: store.get_tool_calls(name),
            "summaries": lambda: store.get_summaries(name),
            "found": lambda: store.find(name, session_id=name),
            "effects": lambda: store.get_effects(name),
            "an effect that is done": lambda: store.begin_effect(name, "pay 0"),
            "an effect in doubt": lambda: store.begin_effect(name, "pay 2"),
            "by fact": lambda: [one.session_id for one in store.sessions(where={"user": name}).sessions],
        }
        for snapshot in self.snapshots[name]:
            calls[f"at {snapshot}"] = lambda snapshot=snapshot: store.get_history(name, at=snapshot)  # type: ignore[misc]
        for version in (1, 5, 7, 10):
            calls[f"at version {version}"] = lambda version=version: store.state(name, at=version).entries  # type: ignore[misc]
        return {title: attempt(call) for title, call in calls.items()}

    def edit(self, dice: random.Random) -> tuple[str, str, set[int]] | None:
        """Make one edit. Returns the table, the statement and the sessions it concerns; None if it was refused."""
        table = dice.choice(TABLES)
        names = [column for column, *_ in self.columns[table]]
        row = dice.choice(self._read(table))
        number = "no" if table in ("sessions", "names") else "session"
        concerned = {row[1 + names.index(number)]}
        where = f"WHERE ctid = '{row[0]}'"
        kind = dice.choices(["update", "delete", "swap", "move", "empty"], [12, 4, 2, 2, 1])[0]
        if kind == "update":
            column, of_type, nullable = dice.choice(self.columns[table])
            others = [other[1 + names.index(column)] for other in self._read(table)]
            value = changed(dice, of_type, row[1 + names.index(column)], others, nullable=nullable)
            if value == row[1 + names.index(column)] or column in NOT_COVERED or (column == "seal" and value is None):
                return None
            concerned |= {value} if column == number else set()
            return self._run(table, f"UPDATE everturn.{table} SET {column} = %s {where}", [value], concerned)
        if kind == "delete":
            return self._run(table, f"DELETE FROM everturn.{table} {where}", [], concerned)
        if kind == "empty":
            return self._run(table, f"DELETE FROM everturn.{table} WHERE {number} = %s", [*concerned], concerned)
        other = dice.choice(self._read(table))
        concerned |= {other[1 + names.index(number)]}
        if other[0] == row[0]:
            return None
        if kind == "move":
            value = other[1 + names.index(number)]
            if value == row[1 + names.index(number)]:
                return None
            return self._run(table, f"UPDATE everturn.{table} SET {number} = %s {where}", [value], concerned)
        column = dice.choice([name for name in names if name != "seal"])
        mine, others_ = row[1 + names.index(column)], other[1 + names.index(column)]
        if mine == others_ or column in NOT_COVERED:
            return None
        of_type = {name: of_type for name, of_type, _ in self.columns[table]}[column]
        chosen = f"CASE ctid::text WHEN %s THEN %s::{of_type} ELSE %s END"
        swap = f"UPDATE everturn.{table} SET {column} = {chosen} WHERE ctid::text IN (%s, %s)"
        return self._run(table, swap, [row[0], others_, mine, row[0], other[0]], concerned)

    def _run(
        self, table: str, statement: str, values: list[Any], concerned: set[int]
    ) -> tuple[str, str, set[int]] | None:
        try:
            done = self.connection.execute(statement, values)
        except psycopg.Error:
            return None  # PostgreSQL does not take it: nothing is damaged
        return (table, f"{statement} {values}", concerned) if done.rowcount else None


def attempt(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MemoryStoreError as exc:
        return exc


def changed(dice: random.Random, of_type: str, value: Any, others: list[Any], *, nullable: bool) -> Any:
    """Another value for a column."""
    if nullable and dice.random() < 0.25:
        return None
    if dice.random() < 0.3:
        return dice.choice(others)
    match of_type:
        case "bigint" | "integer":
            return dice.choice([0, 1, -1, (value or 0) + 1, (value or 0) - 1, (value or 0) * 2 + 3, 2**30, 2**62])
        case "double precision":
            return dice.choice(
                [0.0, 1.0, (value or 0.0) + 1, (value or 0.0) - 7200, float("nan"), float("inf"), -1e300]
            )
        case "text":
            return dice.choice(["", "x", (value or "") + "x", (value or "a")[1:], (value or "a").swapcase()])
        case "boolean":
            return not value
        case "bytea":
            return bytes([(value or b"\0")[0] ^ 1]) + (value or b"\0")[1:]
        case "bigint[]":
            return dice.choice([[], [1], [None], [*(value or ()), 3], [2**62]])
        case "jsonb":
            return dice.choice(["{}", '{"user": "x"}', "[]", '{"user": 1}'])
    raise AssertionError(of_type)


def is_same(told: Any, before: Any) -> bool:
    return not isinstance(told, MemoryStoreError) and bool(told == before)


@pytest.mark.parametrize("case", first(2, range(CASES)))
def test_an_edit_behind_the_back_is_loud_or_harmless(damaged: Damaged, case: int) -> None:
    made = 0
    seed = case * 1_000_000
    while made < EDITS // CASES:
        seed += 1
        edit = damaged.edit(random.Random(seed))
        if edit is None:
            continue
        made += 1
        table, statement, concerned = edit
        try:
            for name in SESSIONS:
                for title, told in damaged.reads(name).items():
                    where = f"seed {seed}: {statement}: {title} of {name}"
                    if damaged.numbers[name] not in concerned and not (title == "by fact" and table == "facts"):
                        assert is_same(told, damaged.before[name][title]), f"{where}: {told!r}"
                    elif title in ("found", "by fact") and not isinstance(told, MemoryStoreError):
                        # A search looks at what is there: it misses what was taken away, and shows nothing else. One by
                        # a fact meets the damage of others that come by the same fact.
                        assert [match for match in told if match not in damaged.before[name][title]] == [], where
                    elif not isinstance(told, MemoryStoreError):
                        assert told == damaged.before[name][title], where
            report = damaged.store.verify()
            assert not report.ok, f"seed {seed}: {statement}: verify says nothing"
            assert report.sessions >= len(SESSIONS) - 1, f"seed {seed}: verify did not go on"
            # Facts are copied from the session's row; the table is the index beside it.
            assert table in ("facts", "effect_keys") or copies_say_so(damaged.store), (
                f"seed {seed}: {statement}: the copy says nothing"
            )
        finally:
            damaged.put_back()
    for name in SESSIONS:
        assert damaged.reads(name) == damaged.before[name]


def copies_say_so(store: Any) -> bool:
    """Whether a copy of everything is not reported as whole."""
    with everturn.open("sqlite://") as target:
        report = attempt(lambda: everturn.copy(store, target))
    return isinstance(report, MemoryStoreError) or not report.ok


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with others"])
def test_an_append_does_not_seal_what_was_damaged(damaged: Damaged, together: bool) -> None:
    """A plain append does not look at the row that it writes anew: what was wrong with it must stay wrong."""
    columns = [one for one in damaged.columns["sessions"] if one[0] not in NOT_COVERED | MADE_ANEW | {"no"}]
    names = [name for name, *_ in damaged.columns["sessions"]]
    row = next(row for row in damaged.rows["sessions"] if row[1 + names.index("session_id")] == "alpha")
    appended = 0
    for column, of_type, nullable in columns:
        before = row[1 + names.index(column)]
        for seed in range(6):
            value = changed(random.Random(seed), of_type, before, [before], nullable=nullable)
            if value == before:
                continue
            where = f"{column} = {value!r}"
            try:
                try:
                    damaged.connection.execute(
                        f"UPDATE everturn.sessions SET {column} = %s WHERE session_id = 'alpha'", (value,)
                    )
                except psycopg.Error:
                    continue  # PostgreSQL does not take it: nothing is damaged
                told = asyncio.run(append_to_all(damaged.url)) if together else attempt(lambda: append(damaged.store))
                appended += not isinstance(told, BaseException)
                assert isinstance(attempt(lambda: damaged.store.get_history("alpha")), MemoryStoreError), where
                assert not damaged.store.verify().ok, where
            finally:
                damaged.put_back()
    assert appended, "none of these edits let an append through: it looks first, and this test is of no use"


def append(store: Any) -> Any:
    return store.add_messages("alpha", [ChatMessage("user", "and more")])


async def append_to_all(url: str) -> Any:
    """Append to every session at the same time. Returns what was said of the first."""
    async with await everturn.open_async(url, timeout=20) as store:
        one = [ChatMessage("user", "and more")]
        told = await asyncio.gather(*(store.add_messages(name, one) for name in SESSIONS), return_exceptions=True)
    assert not [error for error in told[1:] if isinstance(error, BaseException)]
    return told[0]
