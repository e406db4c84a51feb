"""Changes, leases and receipts of sessions whose rows were edited behind the back of the store.

What a change is told to have found must be true: also that there is no session, no such snapshot, no earlier attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, KeyReused, MemoryStoreError, Receipt
from everturn.backends.postgres import fork_session

pytestmark = pytest.mark.one_schema

ONE = [ChatMessage("user", "one")]
TABLES = ("sessions", "changes", "snapshots", "leases")


class Edits:
    """Edits of tables that are taken back."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema
        connection.execute("SET session_replication_role = replica")
        for table in TABLES:
            connection.execute(f"CREATE TEMP TABLE kept_{table} AS TABLE {schema}.{table}")  # type: ignore[arg-type]

    @contextmanager
    def made(self, statement: str) -> Iterator[None]:
        done = self._connection.execute(statement.format(self._schema))  # type: ignore[arg-type]
        assert done.rowcount > 0, statement
        try:
            yield
        finally:
            with self._connection.transaction():
                for table in TABLES:
                    self._connection.execute(f"DELETE FROM {self._schema}.{table}")  # type: ignore[arg-type]
                    again = f"INSERT INTO {self._schema}.{table} OVERRIDING SYSTEM VALUE TABLE kept_{table}"
                    self._connection.execute(again)  # type: ignore[arg-type]


class Story:
    """A session with all that changes look for."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.first: Receipt = store.add_messages("a", ONE, key="k1")
        store.add_messages("a", [ChatMessage("user", "two")], key="k2")
        self.snapshot = store.save_snapshot("a").id
        store.begin_effect("a", "pay")
        store.add_messages("a", [ChatMessage("user", "three")])
        self.version = store.info("a").version
        self.lease = store.lease("a", seconds=3000)

    def calls(self) -> dict[str, Callable[[], Any]]:
        """Calls that say something of the session without a change of it."""
        store = self.store
        return {
            "get_turn": lambda: store.get_turn("a", "k1"),
            "no such turn": lambda: store.get_turn("a", "none"),
            "a version": lambda: store.add_messages("a", ONE, expected_version=1),
            "rollback": lambda: store.rollback_to_snapshot("a", "none"),
            "rollback to a version": lambda: store.rollback("a", self.version),
            "undo": lambda: store.undo("a"),
            "replace": lambda: store.replace("a", ONE, after=77),
            "delete_snapshot": lambda: store.delete_snapshot("a", "none"),
            "finish_effect": lambda: store.finish_effect("a", "none", 1),
            "begin_effect": lambda: store.begin_effect("a", "pay"),
            "set_facts": lambda: store.set_facts("a", {"absent": None}),
            "trim": lambda: store.trim("a", max_messages=100),
        }


@pytest.fixture
def story(url: str) -> Iterator[Story]:
    with everturn.open(url, timeout=20) as store:
        yield Story(store)


@pytest.fixture
def edits(story: Story, beside: psycopg.Connection[Any], schema: str) -> Edits:
    return Edits(beside, schema)


def told(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except MemoryStoreError as exc:
        return exc


def test_a_lost_session_is_not_said_to_be_absent(story: Story, edits: Edits) -> None:
    more: dict[str, Callable[[], Any]] = {
        "clear": lambda: story.store.clear("a"),
        "set_ttl": lambda: story.store.set_ttl("a", 60),
        "lease": lambda: story.store.lease("a"),
        "get_lease": lambda: story.store.get_lease("a"),
    }
    for lost in (
        "DELETE FROM {}.sessions",
        "UPDATE {}.sessions SET ended = true",
        "UPDATE {}.sessions SET expires_at = 1",
    ):
        with edits.made(lost):
            for title, call in (story.calls() | more).items():
                assert isinstance(told(call), CorruptEntry), (lost, title)


def test_a_change_is_not_refused_for_a_reason_that_damage_gave(story: Story, edits: Edits) -> None:
    before = {title: told(call) for title, call in story.calls().items()}
    for edit in ("version = 1", "head = 1", "last_jump = 2", "cleared = 9, floor = 9", "undo_steps = 1", "life = 'x'"):
        with edits.made("UPDATE {}.sessions SET " + edit):
            for title, call in story.calls().items():
                if title != "a version" or edit != "version = 1":  # which it then is at: the turn is written
                    found = told(call)
                    assert isinstance(found, CorruptEntry) or found == before[title], (edit, title, found)
            assert isinstance(told(lambda: story.store.lease("a")), CorruptEntry), edit


def test_a_receipt_is_as_it_was_written(story: Story, edits: Edits) -> None:
    def again() -> Any:
        return story.store.add_messages("a", ONE, key="k1")

    def other() -> Any:
        return story.store.add_messages("a", [ChatMessage("user", "x")], key="k1")

    assert told(again).seqs == story.first.seqs
    assert isinstance(told(other), KeyReused)
    for edit in (
        "first_seq = 2",
        "count = 2",
        "content = '\\x00'",
        "created_at = 1",
        "kind = 'clear'",
        "seal = '\\x00'",
    ):
        with edits.made(f"UPDATE {{}}.changes SET {edit} WHERE version = 1"):
            for call in (again, other):
                assert isinstance(told(call), CorruptEntry), edit


@pytest.mark.parametrize(
    "lost",
    [
        "DELETE FROM {}.changes WHERE version = 2",
        "DELETE FROM {}.changes WHERE version < 4",
        "DELETE FROM {}.changes",
        "UPDATE {}.changes SET version = 99 WHERE version = 2",
    ],
)
def test_a_retry_does_not_take_a_lost_change_for_one_that_was_never_made(
    story: Story, edits: Edits, beside: psycopg.Connection[Any], schema: str, lost: str
) -> None:
    ask = (
        f"SELECT {schema}.version_of_v1(s, json_populate_record(NULL::{schema}.request_v1, %s), 2e9)"
        f" FROM {schema}.sessions s"
    )
    request = """{"retry": true, "call": "\\\\x11", "issued": 1}"""
    assert beside.execute(ask, (request,)).fetchone() == (None,)  # type: ignore[arg-type]
    with edits.made(lost), pytest.raises(psycopg.Error, match="lost or damaged"):
        beside.execute(ask, (request,))  # type: ignore[arg-type]


def test_turns_of_one_session_in_one_statement_miss_nothing(
    story: Story, beside: psycopg.Connection[Any], schema: str
) -> None:
    """The rows of the first turn are written behind the look at the second, which must not take them for lost."""
    together = (
        f"SELECT status, version FROM {schema}.change_v5('', '{{a,a}}', ARRAY[sha256('1'), sha256('2')], NULL,"
        """ '{1,1}', '{2,2}', '{"{}","{}"}', '{1,1}', NULL, NULL, NULL, NULL, NULL, 1000,"""
        " extract(epoch FROM clock_timestamp()), '{1e12,1e12}', NULL)"
    )
    answers = beside.execute(together).fetchall()  # type: ignore[call-overload]
    assert answers == [("applied", story.version + 1), ("applied", story.version + 2)]


def test_a_snapshot_that_is_lost_is_not_said_to_be_unknown(story: Story, edits: Edits) -> None:
    for lost in ("DELETE FROM {}.snapshots", "UPDATE {}.snapshots SET snapshot_id = 'x'"):
        with edits.made(lost):
            assert isinstance(told(lambda: story.store.delete_snapshot("a", story.snapshot)), CorruptEntry), lost


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM {}.leases",
        "UPDATE {}.leases SET session_id = 'b'",
        "UPDATE {}.leases SET namespace = 'b'",
        "UPDATE {}.leases SET until = 0",
        "UPDATE {}.leases SET until = until + 1",
        "UPDATE {}.leases SET token = 7",
        "UPDATE {}.leases SET holder = 'x'",
        "UPDATE {}.leases SET life = 'x'",
        "UPDATE {}.leases SET seal = '\\x00'",
    ],
)
def test_a_lease_that_is_lost_or_damaged_is_nobodys_and_is_named(story: Story, edits: Edits, edit: str) -> None:
    store = story.store
    store.add_messages("a", ONE, lease=story.lease)
    with edits.made(edit):
        for call in (
            lambda: store.get_lease("a"),
            lambda: store.lease("a"),
            lambda: store.add_messages("a", ONE, lease=story.lease),
            lambda: store.get_effects("a"),
        ):
            assert isinstance(told(call), CorruptEntry)
        assert "a" in {problem.session_id for problem in store.verify().problems}


def test_a_damaged_lease_of_a_name_without_a_session_is_named(story: Story, edits: Edits) -> None:
    story.store.lease("later", seconds=3000)
    assert story.store.verify().ok
    with edits.made("UPDATE {}.leases SET holder = 'x' WHERE session_id = 'later'"):
        (problem,) = story.store.verify().problems
        assert "later" in problem.what
        assert isinstance(told(lambda: story.store.lease("later")), CorruptEntry)


def test_a_released_lease_leaves_nothing_to_miss(story: Story, beside: psycopg.Connection[Any], schema: str) -> None:
    story.lease.release()
    beside.execute(f"DELETE FROM {schema}.leases")  # type: ignore[arg-type]
    assert story.store.verify().ok
    assert story.store.get_lease("a") is None
    assert story.store.lease("a").token == 1


def test_a_fork_under_way_does_not_go_on_from_another_session(
    story: Story, beside: psycopg.Connection[Any], schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_session, "STEP", 1)
    store = story.store
    store.add_messages("b", [ChatMessage("user", f"b {number}") for number in range(9)])
    went_on = fork_session.ForkProgress.is_settled

    def after_one_step(copy: Any, *step: Any) -> Any:
        astray = f"UPDATE {schema}.forks SET source = (SELECT no FROM {schema}.sessions WHERE session_id = 'b')"
        beside.execute(astray)  # type: ignore[arg-type]
        return went_on(copy, *step)

    monkeypatch.setattr(fork_session.ForkProgress, "is_settled", after_one_step)
    assert isinstance(told(lambda: store.fork("a", "c")), CorruptEntry)
    assert [info.session_id for info in store.sessions().sessions] == ["a", "b"]


@pytest.mark.parametrize("within", ["a", None])
def test_a_search_does_not_pass_over_what_is_lost(
    story: Story, beside: psycopg.Connection[Any], schema: str, within: str | None
) -> None:
    store = story.store
    for number in range(6):
        store.add_messages("a", [ChatMessage("user", f"word {number}")])
    store.replace("a", [ChatMessage("user", "word 6")], after=7)
    store.trim("a", max_messages=3)
    store.compact("a", drop_undo=True)
    beside.execute("SET session_replication_role = replica")
    whole = [match.entry.content for match in store.find("word", session_id=within)]
    assert whole == ["word 6", "word 3", "word 2"]
    shown = [entry.seq for entry in store.state("a").entries]
    edits = [f"DELETE FROM {schema}.entries WHERE seq = {seq}" for seq in shown]
    edits += [f"UPDATE {schema}.entries SET seq = 99 WHERE seq = {seq}" for seq in shown]
    if within is None:
        edits += [f"DELETE FROM {schema}.sessions", f"UPDATE {schema}.sessions SET ended = true"]
    for edit in edits:
        with beside.transaction(force_rollback=True):
            beside.execute(edit)  # type: ignore[call-overload]
            ask = f"SELECT * FROM {schema}.find_v1('', %s, '%%word%%', {2**62}, {2**62}, 100, NULL)"
            with pytest.raises(psycopg.Error, match="lost"):
                beside.execute(ask, (within,))  # type: ignore[call-overload]
