"""A backup is the store at one moment, whatever is written meanwhile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import everturn
from everturn import ChatMessage
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER

WRITER = """
import sys, everturn
with everturn.open(sys.argv[1]) as store:
    number = 0
    while True:
        store.save_context("busy", f"question {number}", f"answer {number}")
        number += 1
        if number == 20:
            print("under way", flush=True)
"""


def test_a_backup_under_a_writer_is_whole_and_sound(run: Run, url: str, tmp_path: Path) -> None:
    with everturn.open(url) as store:
        for number in range(40):
            store.add_messages("large", [ChatMessage("user", "x" * 50_000), ChatMessage("assistant", str(number))])
    with subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "under way\n"
            ran = run("backup", url, tmp_path / "copy.db")
        finally:
            writer.kill()
    assert ran.code == 0, ran.err
    assert "verified" in ran.out
    assert sorted(path.name for path in tmp_path.glob("copy.db*")) == ["copy.db"]
    with everturn.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy, everturn.open(url) as store:
        assert copy.state(CUSTOMER) == store.state(CUSTOMER)
        busy = [message.text for message in copy.get_history("busy")]
        assert busy[:40] == [f"{what} {number}" for number in range(20) for what in ("question", "answer")]
        assert busy == [message.text for message in store.get_history("busy")][: len(busy)]
        assert len(busy) % 2 == 0


def test_a_file_that_is_there_is_not_written_over(run: Run, url: str, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    assert run("backup", url, target).code == 2
    assert target.read_text() == "precious"
    assert run("backup", url, target, "--force").code == 0
    assert run("backup", url, url.removeprefix("sqlite:///"), "--force").code == 2
    assert run("sessions", target).lines[1].startswith(CUSTOMER)


def test_a_damaged_store_is_not_passed_on_as_a_backup(run: Run, url: str, tmp_path: Path) -> None:
    statement = "UPDATE entries SET body = replace(body, '1234', '1235') WHERE session = 1 AND seq IN (1, 2)"
    code = f"import apsw; apsw.Connection({url.removeprefix('sqlite:///')!r}).execute({statement!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    ran = run("backup", url, tmp_path / "copy.db")
    assert (ran.code, "everturn verify" in ran.err) == (2, True)
    assert list(tmp_path.glob("copy.db*")) == []
    kept = run("backup", url, tmp_path / "copy.db", "--damaged-too")
    assert (kept.code, " problems" in kept.out) == (0, True)


def test_other_backends_have_their_own(run: Run, tmp_path: Path) -> None:
    assert "everturn copy" in run("backup", "redis://localhost", tmp_path / "x").err
