"""Commands that read: output for people and for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

import everturn
from everturn import ChatMessage, Record
from everturn.cli.entries import entry_lines
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER


def test_sessions_are_listed_with_what_one_asks_first(run: Run, url: str) -> None:
    ran = run("sessions", url)
    assert ran.code == 0
    assert ran.lines[0].split() == ["session", "messages", "version", "snapshots", "size", "changed", "expires"]
    assert [line.split()[0] for line in ran.lines[1:]] == [CUSTOMER, "customer-43"]
    assert ran.lines[1].split()[1:4] == ["4", "5", "1"]


def test_sessions_go_on_page_by_page(run: Run, url: str) -> None:
    listed: list[str] = []
    more: list[str] = []
    while True:
        ran = run("sessions", url, "-n", 1, "--json", *more)
        listed += [json.loads(line)["session_id"] for line in ran.lines]
        if ran.err == "":
            break
        more = ran.err.split(": ")[1].split()
    assert listed == [CUSTOMER, "customer-43"]


def test_the_latest_changed_come_first_on_demand(run: Run, url: str) -> None:
    assert [line.split()[0] for line in run("sessions", url, "--recent").lines[1:]] == ["customer-43", CUSTOMER]


def test_no_sessions_is_said(run: Run, url: str) -> None:
    assert run("sessions", url, "nobody").out == "no sessions that begin with 'nobody'\n"


def test_a_conversation_shows_everything_in_it_in_order(run: Run, url: str) -> None:
    ran = run("show", url, CUSTOMER)
    assert ran.code == 0
    assert ran.lines == [
        "customer-42   version 5, 4 messages, 1 snapshot",
        "     1 system    You help.",
        "     2 user      My order is 1234.",
        '     5 assistant -> track({"order": 1234}) [call-1]',
        "     6 tool      in Bern",
        "                 [answers call-1]",
        '     7 call      track({"order":1234})',
        "                 = in Bern",
        "                 [took 0.25 s]",
        "     8 summary   Order 1234 is in Bern.",
        "                 [of 1 to 2; embedding of 2 numbers]",
        '     9 record    langgraph.checkpoint: {"step":3}',
    ]


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (Record("lg.put", {"id": "c1", "set": {"meta": {"step": 3}}}), "LangGraph checkpoint c1"),
        (
            Record("lg.writes", {"for": "c1", "writes": [["messages", 1], ["n", 2], ["n", 3]]}),
            "LangGraph task wrote messages, n",
        ),
        (Record("lg.writes", {"for": "c1", "writes": []}), "LangGraph task wrote nothing"),
        (Record("lg.message", {"role": "user", "content": "two"}), "LangGraph branch that was left, user: two"),
        (Record("lg.message", {"role": "assistant", "content": None}), "LangGraph branch that was left, assistant: "),
        (Record("lg.put", {"id": 1}), 'lg.put: {"id":1}'),
        (Record("lg.put", "text"), 'lg.put: "text"'),
        (Record("lg.writes", {"writes": [1, []]}), "LangGraph task wrote nothing"),
        (Record("lg.message", {"role": "", "content": 5}), 'lg.message: {"role":"","content":5}'),
    ],
)
def test_a_record_of_an_adapter_is_one_line_in_words(record: Record, shown: str) -> None:
    (line,) = entry_lines(record, 120)
    assert line.plain.split() == ["record", *shown.split()]


def test_a_conversation_can_be_seen_as_it_was(run: Run, url: str) -> None:
    astray = run("show", url, CUSTOMER, "--at", 3)
    assert astray.lines[-1].endswith("assistant What is your order number?")
    assert "as it was at 3" in astray.lines[0]
    before = run("show", url, CUSTOMER, "--at", "before the new prompt")
    assert before.lines[-1] == "     2 user      My order is 1234."


def test_a_conversation_as_it_was_is_headed_by_what_it_was(run: Run, url: str) -> None:
    assert "version 1, 2 messages" in run("show", url, CUSTOMER, "--at", 1).lines[0]


def test_what_is_left_of_a_damaged_conversation_can_be_shown(run: Run, url: str, tmp_path: Path) -> None:
    script = "import sys, sqlite3; db = sqlite3.connect(sys.argv[1]); db.execute(sys.argv[2]); db.commit()"
    harm = "UPDATE entries SET body = replace(body, 'Hello', 'Hallo')"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "memory.db"), harm], check=True)
    refused = run("show", url, "customer-43")
    assert refused.code == 2
    assert "everturn show --skip-corrupt" in refused.err
    assert "Hi!" in run("show", url, "customer-43", "--skip-corrupt").out


def test_a_label_in_the_graph_is_escaped_once(run: Run, url: str) -> None:
    run("snapshot", url, CUSTOMER, "a\\b")
    assert "snapshot 'a\\\\b'" in run("log", url, CUSTOMER).out


def test_scripts_get_every_field(run: Run, url: str) -> None:
    entries = [json.loads(line) for line in run("show", url, CUSTOMER, "--json").lines]
    assert [entry["kind"] for entry in entries] == [
        "message",
        "message",
        "message",
        "message",
        "tool_call",
        "summary",
        "langgraph.checkpoint",
    ]
    assert entries[1] | {"created_at": 0} == {
        "kind": "message",
        "seq": 2,
        "created_at": 0,
        "role": "user",
        "content": "My order is 1234.",
    }
    assert entries[5]["covers"] == [1, 2]


def test_text_of_others_cannot_reach_the_terminal(run: Run, url: str, tmp_path: Path) -> None:
    hostile = "\x1b[2Jgone \x9b31m \u202eevil\rover\x00 \x07"
    with everturn.open(url) as store:
        store.add_messages("evil\x1b[31m", [ChatMessage("us\x1ber", hostile, name="n\x1bx")])
        store.save_snapshot("evil\x1b[31m", "la\x1bbel")
    ran = [
        run("show", url, "evil\x1b[31m"),
        run("sessions", url),
        run("log", url, "evil\x1b[31m"),
        run("snapshots", url, "evil\x1b[31m"),
        run("diff", url, "evil\x1b[31m", 0),
        run("tail", url, "evil\x1b[31m"),
        run("show", url, "ev\x1bil"),
        run("rollback", url, "evil\x1b[31m", "no\x1bne"),
    ]
    for one in ran:
        assert not set(one.out + one.err) & set("\x1b\x9b\u202e\r\x00\x07"), one
    assert "\\x1b[2Jgone" in ran[0].out


def test_a_long_line_is_folded_under_what_it_belongs_to(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with everturn.open(url) as store:
        store.add_messages("long", [ChatMessage("user", "word " * 40)])
    lines = run("show", url, "long").lines[1:]
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60
    assert all(line.startswith(" " * 17) for line in lines[1:])


def test_a_diff_shows_both_sides_and_says_so_in_its_exit_code(run: Run, url: str) -> None:
    ran = run("diff", url, CUSTOMER, 3)
    assert ran.code == 1
    assert [line[:6] for line in ran.lines if line[0] in "+-"] == [
        "-    3",
        "-    4",
        "+    5",
        "+    6",
        "+    7",
        "+    8",
        "+    9",
    ]
    same = run("diff", url, CUSTOMER, 2, "before the new prompt")
    assert (same.code, same.out) == (0, "no difference\n")


def test_the_graph_shows_the_branch_a_rollback_left(run: Run, url: str) -> None:
    graph = [line[:3].rstrip() for line in run("log", url, CUSTOMER).lines]
    assert graph == ["*", "o", "| *", "o |", "|/", "*"]
    text = run("log", url, CUSTOMER).out
    assert "rollback to 'before the new prompt'" in text
    assert text.count("<- head") == 1
    assert "<- head" in text.splitlines()[0]


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_is_wider_than_the_terminal(run: Run, url: str, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    long = "\u65e5\u672c\u8a9e and a word or two " * 20  # of characters that are two columns wide
    with everturn.open(url) as store:
        store.save_context(CUSTOMER, long, "Indeed.")
        store.replace(CUSTOMER, [ChatMessage("assistant", long), ChatMessage("user", "So?")], after=1)
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (["log", url, CUSTOMER], ["show", url, CUSTOMER], ["sessions", url], ["--help"]):
        lines = run(*words).lines
        assert lines
        assert [line for line in lines if cell_len(line) > columns] == []


def test_the_graph_for_scripts_names_parents_and_heads(run: Run, url: str) -> None:
    changes = [json.loads(line) for line in run("log", url, CUSTOMER, "--json").lines]
    assert [(one["version"], one["kind"], one["head"], one.get("parent")) for one in changes] == [
        (5, "append", 5, 1),
        (4, "rollback", 1, None),
        (3, "append", 3, 1),
        (2, "snapshot", 1, None),
        (1, "append", 1, 0),
    ]


def test_snapshots_are_listed(run: Run, url: str) -> None:
    ran = run("snapshots", url, CUSTOMER)
    assert "before the new prompt" in ran.lines[1]
    assert json.loads(run("snapshots", url, CUSTOMER, "--json").out)["version"] == 2
    assert run("snapshots", url, "customer-43").out == "no snapshots\n"


def test_tail_shows_the_latest_and_ends(run: Run, url: str) -> None:
    assert [line.split()[0] for line in run("tail", url, CUSTOMER, "-n", 1).lines] == ["9"]
    assert run("tail", url, CUSTOMER, "-n", 0).out == ""


def test_tail_follows_other_writers(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def passes(_seconds: float) -> None:  # the pause between two looks: time for someone else to write
        nonlocal looks
        looks += 1
        with everturn.open(url) as store:
            if looks == 1:
                store.save_context(CUSTOMER, "Anything new?", "It has arrived.")
            elif looks == 2:
                store.clear(CUSTOMER)
            elif looks == 3:
                store.erase(CUSTOMER)
            else:
                raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", passes)
    ran = run("tail", url, CUSTOMER, "-f", "-n", 0, "--every", 0.1)
    assert ran.code == 0
    assert [line.split(maxsplit=1)[1] for line in ran.lines] == [
        "user      Anything new?",
        "assistant It has arrived.",
        "clear (version 7)",
        "the session expired, or was erased",
    ]


@pytest.fixture
def long(tmp_path: Path) -> str:
    """A session of 3,000 messages, of which every third turn was taken back, behind a trim."""
    url = f"sqlite:///{tmp_path}/long.db"
    with everturn.open(url, synchronous="OFF") as store:
        store.add_messages("long", [ChatMessage("system", "be brief")])
        for number in range(30):
            turn = [ChatMessage("user", f"{number}-{index}") for index in range(100)]
            store.add_messages("long", turn)
            if number % 3 == 2:
                store.rollback("long", store.info("long").version - 1)
        store.trim("long", max_messages=1501)
    return url


def test_a_long_session_is_shown_and_compared_window_by_window(
    run: Run, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with everturn.open(long) as store:
        entries, early = store.state("long").entries, store.diff("long", 5)
    read: list[int] = []
    whole = everturn.MemoryStore.state

    def state(store: everturn.MemoryStore, *args: object, **options: object) -> everturn.SessionState:
        found = whole(store, *args, **options)  # type: ignore[arg-type]
        read.append(len(found.entries))
        return found

    monkeypatch.setattr(everturn.MemoryStore, "state", state)
    shown = [json.loads(line) for line in run("show", long, "long", "--json").lines]
    assert [entry["seq"] for entry in shown] == [entry.seq for entry in entries]
    assert sum(read) == len(entries)
    assert max(read) < len(entries)
    read.clear()
    latest = [json.loads(line)["seq"] for line in run("show", long, "long", "-n", 7, "--json").lines]
    assert latest == [entry.seq for entry in entries[-7:]]
    assert sum(read) <= 100
    assert "these are the latest 7" in run("show", long, "long", "-n", 7).out
    compared = [json.loads(line) for line in run("diff", long, "long", 5, "--json").lines]
    expected = sorted([(entry.seq, "added") for entry in early.added] + [(e.seq, "removed") for e in early.removed])
    assert [(entry["seq"], entry["change"]) for entry in compared] == expected


def test_a_reader_that_has_seen_enough_ends_it_quietly(long: str) -> None:
    for words in (("show", long, "long"), ("diff", long, "long", "5"), ("show", long, "long", "--json")):
        process = subprocess.Popen(
            [sys.executable, "-m", "everturn", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        process.wait()
