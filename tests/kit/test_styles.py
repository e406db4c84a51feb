"""Sound stores of unusual style pass the clauses that once called them broken or untested.

`make false-alarms` runs every clause on them.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from everturn.testing.kit.equality import comes_back
from tests.kit.running import report

FILES = ("disk-full", "garbage", "half-a-file")
ISOLATION = ("isolation", "isolation-of-clear", "isolation-of-encoded-ids", "ids-stay-inside", "strange-session-ids")
STYLES = {
    "styles:picky": ISOLATION,
    "styles:identifiers": ISOLATION,
    "styles:limited": ("sizes", "large-turn", "long-history", "long-clear", "long-replace"),
    "styles:compressed": FILES,
    "styles:gzip_files": FILES,
    "styles:file_per_message": FILES,
    "compressed_redis:factory": ("reply-swallowed", "garbage"),
    "postgres_rows:jsonb": ("odd-json", "odd-contents", "odd-values"),
}


@pytest.mark.parametrize("style", STYLES)
def test_a_sound_store_of_unusual_style_is_called_so(style: str) -> None:
    found = report(f"kit.sound.{style}", *STYLES[style])
    offered = {clause.id: (clause.status, clause.detail) for clause in found.clauses if clause.status != "not_offered"}
    assert {status for status, _ in offered.values()} == {"holds"}, offered


def test_a_store_behind_http_is_told_that_its_files_are_those_of_another_process() -> None:
    found = report("kit.sound.http_service:factory", "disk-full", "append-synced", "half-a-file")
    assert {clause.id: clause.status for clause in found.clauses if clause.id != "append-synced"} == {
        "disk-full": "not_offered",
        "half-a-file": "holds",
    }
    assert "another process" in str(found.clauses)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (1.0, 1),
        (1, 1.0),
        (-0.0, 0),
        (1e22, 10**22),
        (math.nan, math.nan),
        ({"a": 1, "b": [None, "x"]}, {"b": [None, "x"], "a": 1}),
        (5e-324, 5e-324),
    ],
)
def test_values_that_json_cannot_tell_apart_are_equal(sent: Any, found: Any) -> None:
    assert comes_back(sent, found)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (2**53 + 1, float(2**53)),
        (0.1, 0.1000000001),
        (1, True),
        (True, 1),
        (math.nan, None),
        (math.inf, math.nan),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1], (1,)),
        (b"a", "a"),
        (1e300, 10**400),
        ("1", 1),
    ],
)
def test_values_that_json_tells_apart_are_not(sent: Any, found: Any) -> None:
    assert not comes_back(sent, found)
