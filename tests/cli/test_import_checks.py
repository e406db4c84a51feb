"""Import goes by the checks of every other change: nothing comes in that no call could have written, or could read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import everturn
from everturn import ChatMessage, CorruptEntry, InvalidInput, Record, Summary, ToolCall
from everturn.core import codec
from everturn.transfer.jsonl import read_sessions, write_sessions
from tests.cli.conftest import Run

Line = dict[str, Any]


@pytest.fixture
def lines() -> list[Line]:
    """An export of one session, with everything that a session has."""
    with everturn.open("sqlite://", ttl=3600) as store:
        store.add_messages("first", [ChatMessage("system", "be brief")])
        store.fork("first", "a")
        store.append("a", [ChatMessage("user", "hello"), ToolCall("f", {}), Record("note", [1])], key="k")
        store.add_summary("a", Summary("so far", (1.0, 2.0), (1, 2)))
        store.save_snapshot("a", "safe")
        store.replace("a", [ChatMessage("user", "hi")], after=2)
        store.trim("a", max_messages=1)
        store.once("a", "refund", lambda: {"receipt": 1}, request={"amount": 20})
        store.begin_effect("a", "mail")
        out = io.BytesIO()
        write_sessions(store, ["a"], out.write)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def first(lines: list[Line], part: str, **having: Any) -> Line:
    return next(line for line in lines if line["part"] == part and having.items() <= line.items())


def with_body(entry: Line, body: bytes, kind: str | None = None) -> None:
    """Give an entry another body, and the checksum that goes with it."""
    entry["kind"] = entry["kind"] if kind is None else kind
    entry["checksum"] = codec.checksum(entry["kind"], body)
    entry["body"] = msgspec.Raw(body)


def set_field(part: str, *path: Any, to: Any) -> Callable[[list[Line]], None]:
    def spoil(lines: list[Line]) -> None:
        place: Any = next(line for line in lines if line["part"] == part and (path[0] != "snapshots" or line[path[0]]))
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return spoil


def body(text: bytes, kind: str | None = None) -> Callable[[list[Line]], None]:
    return lambda lines: with_body(first(lines, "entry", kind="message"), text, kind)


DEEP = b'{"role":"user","content":%s}'
SPOILT: dict[str, tuple[Callable[[list[Line]], None], str]] = {
    "an id with NUL": (set_field("session", "session_id", to="a\0b"), "line 1, session_id"),
    "an id of 5,000 bytes": (set_field("session", "session_id", to="a" * 5000), "line 1, session_id"),
    "an empty id": (set_field("session", "session_id", to=""), "line 1, session_id"),
    "a life with a blank": (set_field("session", "life", to="9f3c51d2 07be846"), "line 1, life"),
    "a short life": (set_field("session", "life", to="9f"), "line 1, life"),
    "a life in capitals": (set_field("session", "life", to="9F3C51D2A07BE846"), "line 1, life"),
    "version 0": (set_field("session", "version", to=0), "line 1, version"),
    "a large version": (set_field("session", "version", to=2**60), "line 1, version"),
    "a negative seq": (set_field("session", "last_seq", to=-1), "line 1, last_seq"),
    "a long call": (set_field("session", "call", to="AAAA" * 99), "line 1, call"),
    "a negative time": (set_field("session", "created_at", to=-5.0), "line 1, created_at"),
    "a far time": (set_field("session", "seen_at", to=1e300), "line 1, seen_at"),
    "a ttl of 0": (set_field("session", "ttl", to=0), "line 1, ttl"),
    "no dimension": (set_field("session", "dimension", to=0), "line 1, dimension"),
    "another dimension": (set_field("session", "dimension", to=3), "body.embedding"),
    "forked from NUL": (set_field("session", "forked_from", to="\0"), "line 1, forked_from"),
    "a head beyond the log": (set_field("session", "state", "head", to=99), "line 1, state.head"),
    "kept that do not ascend": (set_field("session", "state", "kept", to=[2, 1]), "line 1, state.kept[1]"),
    "a jump forward": (set_field("session", "jumps", to=[[2, 3]]), "line 1, jumps[0][1]"),
    "a label with NUL": (set_field("session", "snapshots", 0, "label", to="\0"), "line 1, snapshots[0].label"),
    "a snapshot without id": (set_field("session", "snapshots", 0, "id", to=""), "line 1, snapshots[0].id"),
    "a late snapshot": (set_field("session", "snapshots", 0, "version", to=99), "line 1, snapshots[0].version"),
    "an unknown step": (set_field("session", "undo_steps", 0, "kind", to="append"), "line 1, undo_steps[0].kind"),
    "an effect with NUL": (set_field("session", "effects", 0, "key", to="\0"), "line 1, effects[0].key"),
    "an effect twice": (set_field("session", "effects", 1, "key", to="refund"), "line 1, effects[1].key"),
    "an unknown status": (set_field("session", "effects", 0, "status", to="new"), "line 1, effects[0].status"),
    "a worker of two words": (set_field("session", "effects", 0, "by", to="pid 1"), "line 1, effects[0].by"),
    "a worker of two lines": (set_field("session", "effects", 0, "by", to="pid\n1"), "line 1, effects[0].by"),
    "too many attempts": (set_field("session", "effects", 0, "attempt", to=10**15), "line 1, effects[0].attempt"),
    "attempt 0": (set_field("session", "effects", 0, "attempt", to=0), "line 1, effects[0].attempt"),
    "a late effect": (set_field("session", "effects", 1, "began", to=99), "line 1, effects[1].began"),
    "an end before it began": (set_field("session", "effects", 0, "ended", to=1), "line 1, effects[0].ended"),
    "an end of what goes on": (set_field("session", "effects", 1, "ended", to=9), "line 1, effects[1].ended"),
    "an end without time": (set_field("session", "effects", 0, "ended_at", to=None), "line 1, effects[0].ended_at"),
    "a seq beyond the log": (set_field("entry", "seq", to=99), "line 2, seq"),
    "a turn after its entry": (set_field("entry", "turn", to=99), "line 2, turn"),
    "a seq twice": (lambda lines: lines.insert(2, lines[1]), "line 3, seq"),
    "a kind with NUL": (body(b"1", "no\0te"), "line 2, kind"),
    "an empty kind": (body(b"1", ""), "line 2, kind"),
    "a long kind": (body(b"1", "x" * 65), "line 2, kind"),
    "a long role": (body(b'{"role":"%s","content":"x"}' % (b"x" * 99)), "line 2, body.role"),
    "no content": (body(b'{"role":"user","content":null}'), "line 2, body.content"),
    "nested 300 deep": (body(DEEP % (b"[" * 300 + b"]" * 300)), "line 2, body.content[0][0]"),
    "nested 5,000 deep": (body(DEEP % (b"[" * 5000 + b"]" * 5000)), "nested more than 200 deep"),
    "nested 100,000 deep": (body(DEEP % (b"[" * 100_000 + b"]" * 100_000)), "nested more than 200 deep"),
    "a record nested deep": (body(b"[" * 100_000 + b"]" * 100_000, "note"), "nested more than 200 deep"),
    "an unknown change": (set_field("change", "kind", to="magic"), ", kind"),
    "a change of many": (set_field("change", "count", to=99), ", count"),
    "a change with NUL": (set_field("change", "label", to="\0"), ", label"),
    "a short key": (set_field("change", "key", to="AAAA"), ", key"),
    "a short content": (set_field("change", "content", to="AAAA"), ", content"),
    "a change of nobody": (set_field("change", "call", to=""), ", call"),
}


def test_the_file_itself_comes_in(lines: list[Line]) -> None:
    with everturn.open("sqlite://") as store:
        assert read_sessions([msgspec.json.encode(line) for line in lines], store).imported == 1


@pytest.mark.parametrize("how", SPOILT)
def test_what_no_change_would_store_is_refused_by_line_and_field(lines: list[Line], how: str) -> None:
    spoil, told = SPOILT[how]
    spoil(lines)
    with everturn.open("sqlite://") as store:
        with pytest.raises(InvalidInput) as caught:
            read_sessions([msgspec.json.encode(line) for line in lines], store)
        assert told in str(caught.value)
        assert "line " in caught.value.path
        assert store.sessions().sessions == ()


def test_a_nesting_beyond_what_can_be_read_is_told_by_line_and_byte(lines: list[Line]) -> None:
    text = b'{"role":"user","name":"[[[\\"{{{","content":' + b"[" * 5000 + b"]" * 5000 + b"}"
    with_body(first(lines, "entry", kind="message"), text)
    written = [msgspec.json.encode(line) for line in lines]
    place = written[1].index(b"[[[[[[") + 200  # so many are taken
    with everturn.open("sqlite://") as store, pytest.raises(InvalidInput) as caught:
        read_sessions(written, store)
    assert caught.value.path == f"line 2, byte {place + 1}"
    assert written[1][place : place + 1] == b"["


DAMAGED: dict[str, Callable[[Line], object]] = {
    "a wrong checksum": lambda entry: entry.update(checksum=entry["checksum"] + 1),
    "a body of another": lambda entry: entry.update(body={"role": "user", "content": "other"}),
    "a body that is none": lambda entry: with_body(entry, b"[1]"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_entry_is_named_by_its_line(run: Run, tmp_path: Any, lines: list[Line], how: str) -> None:
    entry = first(lines, "entry", kind="message", seq=2)
    DAMAGED[how](entry)
    written = [msgspec.json.encode(line) for line in lines]
    with everturn.open("sqlite://") as store:
        with pytest.raises(CorruptEntry, match=f"^line {lines.index(entry) + 1}: session 'a', entry 2: ") as caught:
            read_sessions(written, store)
        assert (caught.value.session_id, caught.value.seq) == ("a", 2)
        assert "verify" not in str(caught.value)
        assert store.sessions().sessions == ()
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(b"\n".join(written))
    ran = run("import", f"sqlite:///{tmp_path / 'other.db'}", file)
    assert ran.code == 2
    assert f"line {lines.index(entry) + 1}: session 'a', entry 2" in ran.err


def test_a_body_over_the_limit_of_the_target_is_refused(lines: list[Line]) -> None:
    with_body(lines[1], msgspec.json.encode({"role": "user", "content": "x" * 5000}), "message")
    written = [msgspec.json.encode(line) for line in lines]
    too_long = pytest.raises(InvalidInput, match=r"line 2, body: .*over the limit")
    with everturn.open("sqlite://", max_message_bytes=4096) as store, too_long:
        read_sessions(written, store)


@pytest.mark.parametrize("name", ["request", "result", "error"])
def test_a_value_of_an_effect_over_the_limit_of_the_target_is_refused(lines: list[Line], name: str) -> None:
    set_field("session", "effects", 0, name, to="x" * 5000)(lines)
    written = [msgspec.json.encode(line) for line in lines]
    too_long = pytest.raises(InvalidInput, match=rf"line 1, effects\[0\].{name}: .*over the limit")
    with everturn.open("sqlite://", max_message_bytes=4096) as store, too_long:
        read_sessions(written, store)


@pytest.mark.parametrize("how", ["an empty id", "an id with NUL", "nested 100,000 deep"])
def test_the_command_says_it_and_fails(run: Run, tmp_path: Any, lines: list[Line], how: str) -> None:
    spoil, told = SPOILT[how]
    spoil(lines)
    file = tmp_path / "wrong.jsonl"
    file.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    ran = run("import", f"sqlite:///{tmp_path / 'other.db'}", file)
    assert ran.code == 2, ran
    assert told in ran.err
    assert "Traceback" not in ran.err
