"""Sessions move whole: through a file, through a pipe, from store to store."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, MemoryStore
from everturn.transfer.jsonl import read_sessions, write_sessions
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER


def lines_of(store: MemoryStore, *names: str) -> bytes:
    out = io.BytesIO()
    write_sessions(store, names or None, out.write)
    return out.getvalue()


def same(a: MemoryStore, b: MemoryStore, session_id: str) -> None:
    assert a.state(session_id) == b.state(session_id)
    assert a.changes(session_id, limit=2000) == b.changes(session_id, limit=2000)
    assert a.list_snapshots(session_id) == b.list_snapshots(session_id)
    changes = a.changes(session_id, limit=2000)
    for change in changes[:: max(1, len(changes) // 20)]:  # of a long session every state costs as much as all of it
        assert a.state(session_id, at=change.version) == b.state(session_id, at=change.version)


def test_an_export_comes_in_whole(run: Run, url: str, tmp_path: Path) -> None:
    file, other = tmp_path / "all.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    assert run("export", url, "-o", file).err == "2 sessions written\n"
    ran = run("import", other, file)
    assert (ran.code, ran.out) == (0, "2 imported; 2 compared and equal\n")
    with everturn.open(url) as here, everturn.open(other) as there:
        same(here, there, CUSTOMER)
        same(here, there, "customer-43")
        before = there.list_snapshots(CUSTOMER)[0]
        there.rollback_to_snapshot(CUSTOMER, before)
        assert [message.text for message in there.get_history(CUSTOMER)] == ["You help.", "My order is 1234."]


def test_again_changes_nothing_an_ancestor_is_extended_a_stranger_left_alone(
    run: Run, url: str, tmp_path: Path
) -> None:
    file, other = tmp_path / "all.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    run("export", url, "-o", file)
    run("import", other, file)
    assert run("import", other, file).out == "2 already there; 2 compared and equal\n"
    with everturn.open(url) as store:
        store.save_context(CUSTOMER, "Anything else?", "No.")
        store.erase("customer-43")
        store.save_context("customer-43", "A new life", "indeed")
    run("export", url, "-o", file)
    ran = run("import", other, file)
    assert ran.code == 1
    assert ran.lines[0] == "1 extended; 1 compared and equal"
    assert ran.lines[1].startswith("conflict: 'customer-43'")


def test_through_a_pipe(url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    python = f"{sys.executable} -m everturn.cli"
    done = subprocess.run(
        ["bash", "-c", f"{python} export '{url}' {CUSTOMER} | {python} import '{other}'"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1 imported; 1 compared and equal\n"
    with everturn.open(other) as there:
        assert [session.session_id for session in there.sessions().sessions] == [CUSTOMER]


def test_long_sessions_keys_and_ttls_survive(tmp_path: Path) -> None:
    with everturn.open("sqlite://", ttl=3600) as here, everturn.open("sqlite://") as there:
        for number in range(1300):
            here.save_context("long", f"question {number}", "answer " + "x" * 1500, key=f"k{number}")
        snapshot = here.save_snapshot("long", "there")
        here.clear("long")
        report = read_sessions(io.BytesIO(lines_of(here)), there)
        assert (report.imported, report.verified) == (1, 1)
        same(here, there, "long")
        assert there.save_context("long", "question 1299", "answer " + "x" * 1500, key="k1299").replayed
        # However long the rest took: only from the step that made it visible on, its time is counted anew.
        assert there.info("long").expires_at == pytest.approx(here.info("long").expires_at, abs=60)
        there.undo("long")
        assert len(there.get_history("long")) == 2600
        there.rollback_to_snapshot("long", snapshot)


def test_a_session_whose_time_ran_out_on_the_way_stays_away() -> None:
    with everturn.open("sqlite://", ttl=3600) as here, everturn.open("sqlite://") as there:
        here.save_context("a", "b", "c")
        outline, *rest = lines_of(here).splitlines()
        past = json.loads(outline) | {"expires_at": time.time() - 1}
        read_sessions([json.dumps(past).encode(), *rest], there)
        assert there.sessions().sessions == ()


def broken(lines: list[bytes]) -> dict[str, tuple[list[bytes], str]]:
    """Ways a file can be wrong, and what is said of each."""
    return {
        "empty": ([], "line 1"),
        "no json": ([b"hello", *lines], "line 1"),
        "another json": ([b'{"role": "user"}'], "line 1"),
        "no session": (lines[1:], "line 1"),
        "cut off": (lines[:-1], "change log breaks off"),
        "an entry gone": ([line for line in lines if b'"seq":2,' not in line], "entry 2"),
        "an entry changed": ([line.replace(b"1234.", b"1235.") for line in lines], "entry 2"),
        "twice": (lines + lines, "there twice"),
        "the future": ([lines[0].replace(b'"form":1', b'"form":2'), *lines[1:]], "line 1"),
    }


@pytest.mark.parametrize("how", list(broken([b"{}"])))
def test_a_file_that_is_wrong_is_refused_and_nothing_is_written(run: Run, url: str, tmp_path: Path, how: str) -> None:
    with everturn.open(url) as store:
        lines = lines_of(store, CUSTOMER).splitlines()
    wrong, told = broken(lines)[how]
    file, other = tmp_path / "wrong.jsonl", tmp_path / "other.db"
    file.write_bytes(b"\n".join(wrong))
    ran = run("import", f"sqlite:///{other}", file)
    assert ran.code == 2, ran
    assert told in ran.err
    with everturn.open(f"sqlite:///{other}") as there:
        assert there.sessions().sessions == ()


def test_a_damaged_session_is_not_exported(run: Run, url: str, tmp_path: Path) -> None:
    statement = "UPDATE entries SET body = replace(body, '1234', '1235') WHERE session = 1 AND seq IN (1, 2)"
    code = f"import apsw; apsw.Connection({url.removeprefix('sqlite:///')!r}).execute({statement!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    ran = run("export", url, "-o", tmp_path / "x.jsonl")
    assert (ran.code, "entry 2" in ran.err) == (2, True)
    assert list(tmp_path.glob("x.jsonl*")) == []


def test_export_under_a_writer_is_of_one_moment(tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'a.db'}") as here, everturn.open("sqlite://") as there:
        here.add_messages("busy", [ChatMessage("user", "x" * 2000)] * 2000)

        out = io.BytesIO()

        def write(chunk: bytes) -> None:
            here.save_context("busy", "meanwhile", "yes")
            here.compact("busy")
            out.write(chunk)

        write_sessions(here, None, write)
        read_sessions(io.BytesIO(out.getvalue()), there)
        assert there.info("busy").version == 1


def test_copy_between_stores(run: Run, url: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    assert run("copy", url, other, CUSTOMER).out == "1 imported; 1 compared and equal\n"
    assert run("copy", url, other).out == "1 imported, 1 already there; 2 compared and equal\n"
    assert json.loads(run("copy", url, other, "--json").out)["skipped"] == 2
    assert run("copy", url, other, "nobody").code == 2
    with everturn.open(other) as there:
        there.save_context(CUSTOMER, "only here", "yes")
    assert run("copy", url, other).code == 1
