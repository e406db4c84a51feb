"""Values that are equal are not unequal, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest

from everturn import ChatMessage, Record, SessionState, Summary, ToolCall


def state(version: int) -> SessionState:
    return SessionState("a", version, 1, (ChatMessage("user", "x", seq=1),), (), 0, None, None, life=f"life {version}")


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (ChatMessage("user", "x", seq=1), ChatMessage("user", "x"), ChatMessage("user", "y")),
        (ToolCall("f", {}), ToolCall("f", {}, created_at=1.0), ToolCall("f", [])),
        (Summary("s", [1.0], (1, 2)), Summary("s", [1.0], (1, 2)), Summary("s", [2.0], (1, 2))),
        (Record("r", 1), Record("r", 1), Record("r", 2)),
        (state(1), state(1), state(2)),
    ],
)
def test_unequal_is_what_is_not_equal(one: Any, same: Any, other: Any) -> None:
    assert (one == same, one != same) == (True, False)
    assert (one == other, one != other) == (False, True)
    assert one != "something else"
