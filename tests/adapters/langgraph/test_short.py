"""Ids and times in fewer bytes, and back letter by letter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import example, given
from hypothesis import strategies as st

from everturn.adapters.langgraph.short_ids import full, shortened

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=2)), None])
TIMES = st.builds(lambda time, zone: time.replace(tzinfo=zone).isoformat(), st.datetimes(), ZONES)
IDS = st.uuids().map(str) | st.uuids().map(lambda one: str(one).upper()) | st.text() | st.text("~A", max_size=24)


@example(ids={}, ts="0001-01-01T00:00:00+02:00")
@given(ids=st.fixed_dictionaries({}, optional=dict.fromkeys(("id", "for", "task", "parent"), IDS)), ts=TIMES | IDS)
def test_whatever_the_ids_and_the_time_are_they_come_back(ids: dict[str, str], ts: str) -> None:
    body = {**ids, "ts": ts, "set": {"id": "inner"}}
    assert full(shortened(body)) == body


def test_what_langgraph_writes_is_shorter() -> None:
    body = {"id": "1f1e16d0-3328-6a2a-80b2-1455249a9678", "ts": datetime.now(UTC).isoformat(), "parent": None}
    short = shortened(body)
    assert len(short["id"]) == 23
    assert type(short["ts"]) is int
    assert short["parent"] is None
