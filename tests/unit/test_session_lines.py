"""Dossiers: every part is a line of JSON and back, and tells whether one session became the other."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

import everturn
from everturn import CorruptEntry
from everturn.backend import Status, drive
from everturn.core import codec
from everturn.core.paths import State
from everturn.transfer import session_lines
from everturn.transfer.lineage import CopyConflict, Incomplete, PortionChecks, Relation, judge
from everturn.transfer.protocol import Arrival, PortionRequest, Staging
from everturn.transfer.session_lines import ChangePart, EntryPart, Outline, Portion
from tests.integration.copying.talks import HOSTILE, assert_alike, fill

SOON = time.monotonic() + 3600


def parts_of(store: Any, name: str) -> list[session_lines.Part]:
    """The whole dossier of a session."""
    backend = store._operations.backend
    outline = drive(backend.outline(name, SOON))
    request = PortionRequest(name, outline.life, 0, outline.last_seq, 0, outline.version)
    portion = drive(backend.portion(request, SOON))
    assert portion.is_last
    return [outline, *portion.entries, *portion.changes]


# --- the exported form -----------------------------------------------------------------------------------------------


def test_every_part_of_a_session_is_a_line_of_json_and_back() -> None:
    with everturn.open("sqlite://") as store:
        for name in fill(store):
            for part in parts_of(store, name):
                line = session_lines.encode(part)
                assert b"\n" not in line
                assert session_lines.decode(line) == part


def test_a_session_that_went_through_lines_is_the_same_session() -> None:
    with everturn.open("sqlite://") as here, everturn.open("sqlite://") as there:
        for name in fill(here):
            lines = b"\n".join(map(session_lines.encode, parts_of(here, name)))
            outline, *rows = map(session_lines.decode, lines.split(b"\n"))
            entries = tuple(row for row in rows if isinstance(row, EntryPart))
            changes = tuple(row for row in rows if isinstance(row, ChangePart))
            arrival = Arrival(outline, outline.ttl, Portion(entries, changes))
            assert drive(there._operations.backend.restore(arrival, SOON)).status is Status.APPLIED
            assert_alike(here, there, name)


def test_a_body_stands_in_its_line_as_it_is_stored() -> None:
    with everturn.open("sqlite://") as store:
        store.add_messages("a", [everturn.ChatMessage("user", HOSTILE)])
        _, entry, _ = parts_of(store, "a")
    assert isinstance(entry, EntryPart)
    line = session_lines.encode(entry)
    assert bytes(entry.body) in line
    assert json.loads(line)["body"] == {"role": "user", "content": HOSTILE}
    again = session_lines.decode(line)
    assert isinstance(again, EntryPart)
    assert codec.checksum("message", bytes(again.body)) == again.checksum


def test_the_exported_form_is_as_documented() -> None:
    """It may gain fields, and lose or change none."""
    page = (Path(everturn.__file__).parents[2] / "docs" / "storage.md").read_text("utf-8")
    lines = page.partition("```jsonl\n")[2].partition("```")[0].encode().splitlines()
    parts = list(map(session_lines.decode, lines))
    assert [type(part) for part in parts] == [Outline, EntryPart, ChangePart]
    assert list(map(session_lines.encode, parts)) == lines
    _, entry, _ = parts
    assert isinstance(entry, EntryPart)
    assert codec.checksum(entry.kind, bytes(entry.body)) == entry.checksum


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"part":"else"}', b'{"part":"entry","seq":1}', b"", b"nonsense"])
def test_what_is_no_part_is_refused(line: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        session_lines.decode(line)


def test_a_form_of_a_later_everturn_is_refused() -> None:
    line = session_lines.encode(outline_at(1)).replace(b'"form":1', b'"form":2')
    with pytest.raises(msgspec.ValidationError, match="form"):
        session_lines.decode(line)


def test_what_is_too_long_for_a_file_is_refused_before_a_row_of_it_is_written() -> None:
    """Else its rows would stand among those of the next session."""
    entry = EntryPart(2**32, 2**32, "message", 0.0, 1, msgspec.Raw(b"{}"))
    change = ChangePart(2**32, "clear", 0, 0, 0.0, b"", State())
    with everturn.open("sqlite://") as store:
        backend = store._operations.backend
        for portion in (Portion((entry,)), Portion((), (change,))):
            with pytest.raises(everturn.MemoryStoreBackendError, match="at most"):
                drive(backend.stage(Staging("a", 1, portion), SOON))
        for outline in (outline_at(2**32), msgspec.structs.replace(outline_at(1), last_seq=2**32)):
            with pytest.raises(everturn.MemoryStoreBackendError, match="at most"):
                drive(backend.restore(Arrival(outline, None), SOON))
        assert store.verify().problems == ()


# --- kinship ---------------------------------------------------------------------------------------------------------


def outline_at(version: int, call: bytes = b"", life: str = "life") -> Outline:
    return Outline("a", life, version, call or b"%d" % version, version, State(), 0.0, 0.0, 0.0)


def test_an_absent_session_is_no_kin() -> None:
    assert judge(outline_at(3), None, None) is Relation.NONE


def test_one_past_is_the_same() -> None:
    assert judge(outline_at(3), outline_at(3), None) is Relation.SAME


def test_what_the_source_remembers_is_its_ancestor() -> None:
    assert judge(outline_at(3), outline_at(2), b"2") is Relation.ANCESTOR


@pytest.mark.parametrize(
    ("target", "remembered", "why"),
    [
        (outline_at(3, life="another"), None, "life of its own"),
        (outline_at(2, life="another"), b"2", "life of its own"),
        (outline_at(3, b"another"), None, "by another change"),
        (outline_at(2), None, "too far apart"),
        (outline_at(2), b"another", "different ways"),
        (outline_at(4), None, "too far apart"),
        (outline_at(4), b"another", "different ways"),
        (outline_at(4), b"3", "the other way round"),
    ],
)
def test_anything_else_is_another_past(target: Outline, remembered: bytes | None, why: str) -> None:
    with pytest.raises(CopyConflict, match=why):
        judge(outline_at(3), target, remembered)


# --- checks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def whole() -> tuple[Outline, tuple[EntryPart, ...], tuple[ChangePart, ...]]:
    """Five turns, the latest of them undone; a snapshot shows it still."""
    with everturn.open("sqlite://") as store:
        for number in range(5):
            store.add_messages("a", [everturn.ChatMessage("user", f"{number}")])
        store.save_snapshot("a")
        store.replace("a", [], after=4)
        outline, *rows = parts_of(store, "a")
    assert isinstance(outline, Outline)
    entries = tuple(row for row in rows if isinstance(row, EntryPart))
    return outline, entries, tuple(row for row in rows if isinstance(row, ChangePart))


def test_a_whole_dossier_passes(whole: Any) -> None:
    outline, entries, changes = whole
    PortionChecks(outline).check(Portion(entries, changes))
    parts = PortionChecks(outline)
    for entry in entries:
        parts.check(Portion((entry,), is_last=False))
    for change in changes[:-1]:
        parts.check(Portion((), (change,), is_last=False))
    parts.check(Portion((), changes[-1:]))
    assert parts.entries == 5


@pytest.mark.parametrize("lost", range(5))
def test_a_missing_entry_is_missed(whole: Any, lost: int) -> None:
    outline, entries, changes = whole
    with pytest.raises(Incomplete) as caught:
        PortionChecks(outline).check(Portion(entries[:lost] + entries[lost + 1 :], changes))
    assert caught.value.error.seq == lost + 1


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5, 6])
def test_a_missing_change_is_missed(whole: Any, lost: int) -> None:
    outline, entries, changes = whole
    with pytest.raises(Incomplete, match="change log"):
        PortionChecks(outline).check(Portion(entries, changes[:lost] + changes[lost + 1 :]))


def test_old_changes_need_not_be_remembered(whole: Any) -> None:
    outline, entries, changes = whole
    PortionChecks(outline).check(Portion(entries, changes[3:]))


def test_what_is_added_must_follow_what_is_there(whole: Any) -> None:
    outline, entries, changes = whole
    PortionChecks(outline, 3, 3).check(Portion(entries[3:], changes[3:]))
    with pytest.raises(Incomplete):
        PortionChecks(outline, 3, 3).check(Portion(entries[3:], changes[4:]))
    with pytest.raises(Incomplete):
        PortionChecks(outline, 3, 3).check(Portion(entries[4:], changes[3:]))


def test_a_damaged_entry_is_corrupt(whole: Any) -> None:
    outline, entries, changes = whole
    damaged = msgspec.structs.replace(entries[2], body=msgspec.Raw(b'{"role":"user","content":"X"}'))
    with pytest.raises(CorruptEntry) as caught:
        PortionChecks(outline).check(Portion((*entries[:2], damaged, *entries[3:]), changes))
    assert caught.value.seq == 3
