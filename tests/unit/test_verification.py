"""What is wrong with a session, told from all that is stored of it. Pure; tests/store damages real ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everturn import ChatMessage, ToolCall
from everturn.backends._shared.verification import ExaminedSession, examine
from everturn.core import codec
from everturn.core.paths import State

HEAD = State(head=3, messages=2)
SOUND = ExaminedSession("a", 2, 3, (), ((HEAD, "the head"),), (State(head=1, messages=1), HEAD), (1, 2))


def rows() -> list[tuple[Any, ...]]:
    entries = [ChatMessage("user", "1"), ChatMessage("user", "2"), ToolCall("f", {})]
    drafts = [codec.encode(entry, "entries", 10_000) for entry in entries]
    return [(seq, 0.0, draft.checksum, draft.body, draft.kind, seq) for seq, draft in enumerate(drafts, 1)]


def told(stored: ExaminedSession, entries: list[tuple[Any, ...]] | None = None) -> list[str]:
    kinds, problems = examine(stored, rows() if entries is None else entries)
    assert len(kinds) == 3 if entries is None else len(entries)
    return [problem.what for problem in problems]


def test_a_sound_session_has_no_problems() -> None:
    assert told(SOUND) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"versions": ()}, "the change log does not lead to version 2"),
        ({"versions": (1,)}, "the change log does not lead to version 2"),
        ({"versions": (1, 3), "version": 3}, "the change log does not lead to version 3"),
        ({"jumps": ((2, 2),)}, "its jump leads to 2, which is not before it"),
        ({"jumps": ((9, 1),)}, "its jump leads to 1, which is not before it"),
        (
            {"roots": ((State(head=4, messages=2), "the head"),)},
            "the head: it points to entry 4, but the log ends at 3",
        ),
        ({"roots": ((State(head=3, messages=3), "the head"),)}, "the head: it shows 2 messages, but had 3"),
        ({"roots": ((State(head=3, floor=1, cleared=2, messages=1), "a snapshot"),)}, "a snapshot: it hides entries"),
        ({"last_seq": 5, "remembered": (State(head=5),)}, "the entries from here to 5 are missing"),
    ],
)
def test_what_disagrees_is_told(change: dict[str, Any], what: str) -> None:
    assert any(found.startswith(what) for found in told(msgspec.structs.replace(SOUND, **change)))


def test_before_the_latest_changes_only_some_are_remembered() -> None:
    latest = range(2000 - 1023, 2001)
    assert told(msgspec.structs.replace(SOUND, version=2000, versions=(3, 7, *latest))) == []
    (found,) = told(msgspec.structs.replace(SOUND, version=2000, versions=(3, 7, *latest[1:])))
    assert found == "the change log does not lead to version 2000"


def test_a_missing_entry_and_a_bad_checksum_are_told() -> None:
    first, second, third = rows()
    assert told(SOUND, [first, third])[-1] == "the entry is missing"
    damaged = (*second[:2], second[2] + 1, *second[3:])
    (found,) = told(SOUND, [first, damaged, third])
    assert "checksum" in found
