"""Lists of sessions whose rows were edited behind the back of the store: no value is shown that was not written.

A list by id shows a damaged session with zeros, so that `verify` and copies come to it. Lists in the order of change,
and by facts, raise: it is not known where such a session stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import everturn
from everturn import CorruptEntry, SessionInfo

pytestmark = pytest.mark.one_schema

HOUR = 3600.0
NOON = 1_800_000_000.0
NAMES = [f"s{number}" for number in range(8)]  # each changed an hour after the one before
VICTIM = "s6"
NOTHING = SessionInfo(VICTIM, "", 0, 0, 0, 0, 0, 0, 0.0, 0.0, None, None, None)

# Edits that leave the session where it stands, or bring it to a page that is read sooner or in its turn.
IN_PLACE = [
    "messages = 99",
    "bytes = 7",
    "version = version + 1",
    "life = 'x'",
    "created_at = 1",
    "ttl = 5",
    "expires_at = 1",
    "expires_at = 'NaN'",
    "forked_from = 's0'",
    "facts = '[]'",
    """facts = '{"user": "other"}'""",
    "snapshots = 3",
    "seal = NULL",
    "tally = tally + 1",
    "expires_in = 1",
    "changed_at = changed_at - 1",
    "changed_at = changed_at + 1",
    "changed_at = changed_at - 100000",
    "changed_at = changed_at + 100000",
    "changed_at = 0",
    "changed_at = -1e300",
    "changed_at = 'NaN'",
    "changed_at = 'Infinity'",
    "changed_at = 1e300",
    "changed_in = changed_in + 1000",
    "changed_in = 9223372036854775807",
]
# Edits that take it out of the order: it stands on a later page, or on none.
OUT_OF_PLACE = [
    "changed_in = changed_in - 1000",
    "changed_in = NULL",
    "changed_at = changed_at - 100000, changed_in = changed_in - 333",
    "changed_at = 0, changed_in = 0",
    "ended = true",
    "session_id = 'other'",
    "namespace = 'other'",
]
LOST = "the row is deleted"


class Edits:
    """Edits of one session behind the back of the store and of its triggers."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._sessions = f"{schema}.sessions"
        connection.execute("SET session_replication_role = replica")
        self.keep()

    def keep(self) -> None:
        """Note the rows as they are: each edit is taken back to them."""
        make = f"DROP TABLE IF EXISTS kept; CREATE TEMP TABLE kept AS TABLE {self._sessions}"
        self._connection.execute(make)  # type: ignore[arg-type]

    @contextmanager
    def made(self, change: str) -> Iterator[None]:
        named = f"WHERE session_id = '{VICTIM}'"
        statement = (
            f"DELETE FROM {self._sessions} {named}"
            if change == LOST
            else f"UPDATE {self._sessions} SET {change} {named}"
        )
        assert self._connection.execute(statement).rowcount == 1, change  # type: ignore[arg-type]
        try:
            yield
        finally:
            with self._connection.transaction():
                self._connection.execute(f"DELETE FROM {self._sessions}")  # type: ignore[arg-type]
                again = f"INSERT INTO {self._sessions} OVERRIDING SYSTEM VALUE TABLE kept"
                self._connection.execute(again)  # type: ignore[arg-type]


@pytest.fixture
def store(url: str) -> Any:
    with everturn.open(url, timeout=20) as store:
        for number, name in enumerate(NAMES):
            at(store, NOON + number * HOUR)
            store.set_facts(name, {"user": "42", "title": name})
        yield store


@pytest.fixture
def edits(store: Any, beside: psycopg.Connection[Any], schema: str) -> Edits:
    return Edits(beside, schema)


def at(store: Any, time: float) -> None:
    store._operations.backend._clock = lambda: time


def paged(store: Any, limit: int, order: Any = None, **more: Any) -> list[SessionInfo]:
    page, found = None, []
    while True:
        listed = store.sessions(limit=limit, page=page, order=order, **more)
        found += listed.sessions
        if (page := listed.next) is None:
            return found


def raised_by(change: str, call: Callable[[], Any]) -> CorruptEntry:
    """Return the error that a call has to raise."""
    try:
        told = call()
    except CorruptEntry as exc:
        return exc
    raise AssertionError(f"{change}: not noticed: {told}")


@pytest.mark.parametrize("limit", [3, 100])
def test_a_list_by_id_shows_a_damaged_session_with_zeros(store: Any, edits: Edits, limit: int) -> None:
    before = {info.session_id: info for info in paged(store, limit)}
    for change in [*IN_PLACE, *OUT_OF_PLACE, LOST]:
        with edits.made(change):
            found = {info.session_id: info for info in paged(store, limit)}
            found.pop("other", None)  # by its new name it is damaged as well
            assert found == {**before, VICTIM: NOTHING}, change


def test_verify_names_a_damaged_session_and_goes_on(store: Any, edits: Edits) -> None:
    for change in [*IN_PLACE, *OUT_OF_PLACE, LOST]:
        with edits.made(change):
            report = store.verify()
            assert VICTIM in {problem.session_id for problem in report.problems}, change
            assert report.sessions >= len(NAMES), change
    assert store.verify().ok


def test_a_page_of_recent_sessions_raises_for_a_damaged_one(store: Any, edits: Edits) -> None:
    for change in IN_PLACE:
        with edits.made(change):
            error = raised_by(change, lambda: store.sessions(order="recent", limit=2))
            assert error.session_id == VICTIM, change


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_recent_sessions_to_the_end_do_not_pass_over_a_damaged_one(store: Any, edits: Edits, limit: int) -> None:
    for change in [*IN_PLACE, *OUT_OF_PLACE, LOST]:
        with edits.made(change):
            error = raised_by(change, lambda: paged(store, limit, "recent"))
            assert error.session_id in {VICTIM, "other"}, change


def test_a_session_that_was_put_back_among_those_of_the_same_minutes_is_missed_on_its_page(
    store: Any, edits: Edits
) -> None:
    for number in range(20):
        at(store, NOON + 100 * HOUR + number)
        store.set_facts(VICTIM if number == 18 else f"t{number}", {"number": str(number)})
    edits.keep()
    for change in ("changed_at = changed_at - 10", "changed_at = changed_at - 100000", "changed_at = 0"):
        with edits.made(change):
            error = raised_by(change, lambda: store.sessions(order="recent", limit=3))
            assert error.session_id == VICTIM, change


def test_one_page_of_all_recent_sessions_does_not_pass_over_a_damaged_one(store: Any, edits: Edits) -> None:
    for change in [*OUT_OF_PLACE, LOST]:
        with edits.made(change):
            for prefix in ("", "s", VICTIM):
                raised_by(change, lambda prefix=prefix: store.sessions(prefix, order="recent"))  # type: ignore[misc]
            assert [info.session_id for info in store.sessions("s2", order="recent").sessions] == ["s2"]


@pytest.mark.parametrize("order", [None, "recent"])
def test_a_search_by_facts_does_not_pass_over_a_damaged_session(store: Any, edits: Edits, order: Any) -> None:
    for change in [*IN_PLACE, *OUT_OF_PLACE, LOST]:
        with edits.made(change):
            for limit in (2, 100):
                raised_by(change, lambda limit=limit: paged(store, limit, order, where={"user": "42"}))  # type: ignore[misc]
            if order == "recent":
                raised_by(change, lambda: store.sessions(order="recent", where={"user": "42"}, limit=2))


@pytest.mark.parametrize("where", [None, {"user": "42"}])
@pytest.mark.parametrize("order", [None, "recent"])
def test_sound_sessions_that_expired_are_on_no_page(store: Any, order: Any, where: Any) -> None:
    store.set_ttl(VICTIM, 60)
    at(store, NOON + 100 * HOUR)
    for limit in (1, 3, 100):
        found = paged(store, limit, order, where=where)
        assert sorted(info.session_id for info in found) == [name for name in NAMES if name != VICTIM]
    assert store.verify().ok


@pytest.mark.parametrize(
    "page",
    [
        "sessions_by_name_v4('', '', NULL, 'n01', 0, 10, NULL)",
        "sessions_by_change_v4('', '', NULL, '', 1e300, 10, NULL)",
    ],
)
def test_a_page_reads_as_much_as_it_shows(url: str, beside: psycopg.Connection[Any], schema: str, page: str) -> None:
    with everturn.open(url, timeout=20) as store:
        for number in range(300):
            at(store, NOON + number * HOUR)
            store.set_facts(f"n{number:03}", {"user": "42"})
    beside.execute(f"ANALYZE {schema}.sessions")  # type: ignore[arg-type]
    counts = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables"
        f" WHERE schemaname = '{schema}'"
    )
    with beside.transaction():
        ((before,),) = beside.execute(counts).fetchall()  # type: ignore[arg-type]
        assert len(beside.execute(f"SELECT * FROM {schema}.{page}").fetchall()) == 10  # type: ignore[arg-type]
        ((after,),) = beside.execute(counts).fetchall()  # type: ignore[arg-type]
    assert after - before <= 3 * 10 + 2
