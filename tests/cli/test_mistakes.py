"""A user's mistake is one clear line and exit code 2, never a stack trace and never a new file."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import everturn
from everturn.cli.app import GROUPS, OTHER_WORDS
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER

COMMANDS = [name for commands in GROUPS.values() for name in commands]


def refused(ran: object, *words: str) -> None:
    code, out, err = ran  # type: ignore[misc]
    assert code == 2, (out, err)
    assert len(err.splitlines()) == 1, err
    assert err.startswith("everturn: ")
    for word in words:
        assert word in err, err


def test_a_file_that_is_not_there_is_not_made(run: Run, tmp_path: Path, url: str) -> None:
    for name in ("typo.db", "sqlite:///" + str(tmp_path / "typo.db")):
        refused(run("sessions", name if "://" in name else tmp_path / name), "there is no file", "memory.db")
    assert sorted(path.name for path in tmp_path.iterdir() if "typo" in path.name) == []


def test_an_unknown_scheme_lists_the_known(run: Run) -> None:
    refused(run("sessions", "mysql://localhost"), "sqlite://", "redis://", "postgresql://")


def test_an_unknown_option_lists_the_known(run: Run, url: str) -> None:
    refused(run("sessions", f"{url}?tll=3"), "tll", "ttl")


def test_a_session_that_is_not_there_comes_with_near_names(run: Run, url: str) -> None:
    for command in (["show"], ["log"], ["snapshots"], ["tail"], ["diff"], ["undo"], ["snapshot"]):
        words = [*command, url, "custmer-42", *(["1"] if command == ["diff"] else [])]
        refused(run(*words), "no session 'custmer-42'", "'customer-42'")


def test_a_session_like_no_other_comes_with_some_that_are_there(run: Run, url: str) -> None:
    refused(run("show", url, "xyz"), "no session 'xyz'; there are others, as: 'customer-42'")


def test_in_an_empty_store_no_session_is_named(run: Run, tmp_path: Path) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'empty.db'}"):
        pass
    refused(run("show", tmp_path / "empty.db", "xyz"), "no session 'xyz': it never was")


@pytest.mark.parametrize(
    ("word", "meant"), [("shw", "show"), ("find", "serve"), ("delete", "erase"), ("ls", "sessions")]
)
def test_a_command_that_is_none_comes_with_the_one_that_was_meant(run: Run, word: str, meant: str) -> None:
    refused(run(word, "x.db"), f"'{word}' is none; did you mean ", meant, "everturn --help")


def test_words_of_other_tools_lead_to_commands_and_are_none() -> None:
    assert set(OTHER_WORDS.values()) <= set(COMMANDS)
    assert not set(OTHER_WORDS) & set(COMMANDS)


def test_a_word_like_no_command_is_refused(run: Run) -> None:
    refused(run("xyzzy"), "'xyzzy' is none; everturn --help")


def test_a_snapshot_that_is_not_there_comes_with_those_that_are(run: Run, url: str) -> None:
    refused(run("rollback", url, CUSTOMER, "nope", "-y"), "no snapshot 'nope'", "'before the new prompt'")
    refused(run("show", url, CUSTOMER, "--at", "nope"), "no snapshot 'nope'")


def test_a_version_that_never_was(run: Run, url: str) -> None:
    refused(run("show", url, CUSTOMER, "--at", 99), "version 99")
    refused(run("rollback", url, CUSTOMER, "--to", 99), "everturn: --to: session", "version 99")
    refused(run("rollback", url, CUSTOMER, "--to", 99, "--yes"), "everturn: --to: session", "version 99")


def test_a_version_in_the_place_of_a_snapshot_is_told_the_option(run: Run, url: str) -> None:
    refused(run("rollback", url, CUSTOMER, "2"), "has no snapshot '2'", "for a version: --to 2")
    refused(run("rollback", url, CUSTOMER, "2", "--to", "3"), "not both")
    refused(run("rollback", url, CUSTOMER), "give a SNAPSHOT, or --to")


def test_a_server_that_is_down(run: Run) -> None:
    refused(run("sessions", "redis://127.0.0.1:1?timeout=1"), "127.0.0.1:1")
    refused(run("sessions", "postgresql://127.0.0.1:1/x?timeout=1"), "127.0.0.1")


def test_a_file_that_is_no_database(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are notes, and longer than a header of SQLite, which is a hundred bytes." * 9)
    refused(run("sessions", path), "notes.db")


def test_a_place_that_cannot_be_written_is_named(run: Run, url: str, tmp_path: Path) -> None:
    refused(run("backup", url, tmp_path / "absent" / "copy.db"), "there is no directory")
    refused(run("backup", url, tmp_path), "is a directory")
    refused(run("backup", url, tmp_path, "--force"), "is a directory")
    refused(run("backup", url, tmp_path / "memory.db", "--force"), "the store itself")
    refused(run("export", url, "-o", tmp_path), "is a directory")
    refused(run("export", url, "-o", "."), "is a directory")


def test_a_directory(run: Run, tmp_path: Path) -> None:
    refused(run("sessions", tmp_path), "directory")


AS_NOBODY = """
import contextlib, io, os, sys
from everturn.cli import main
sys.argv = ["everturn", "sessions", sys.argv[1]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()  # once as we are, so that all is imported: nobody may not be allowed to read our installation
os.chmod(sys.argv[-1].removeprefix("sqlite:///"), 0)
if os.geteuid() == 0:
    os.setuid(65534)  # root may read everything
main()
"""


@pytest.mark.parametrize("closed", ["file", "folder"])
def test_a_file_one_may_not_read(tmp_path: Path, url: str, closed: str) -> None:
    tmp_path.chmod(stat.S_IRWXU | (stat.S_IXOTH if closed == "file" else 0))
    try:
        ran = subprocess.run([sys.executable, "-c", AS_NOBODY, url], capture_output=True, text=True, check=False)
    finally:
        tmp_path.chmod(stat.S_IRWXU)
    refused((ran.returncode, ran.stdout, ran.stderr), "memory.db")


def test_a_schema_from_the_future(run: Run, url: str) -> None:
    path = url.removeprefix("sqlite:///")
    statement = "UPDATE schema_versions SET version = 99 WHERE version = 1"
    code = f"from everturn.backends.sqlite.page_checksums import connect; connect({path!r}).execute({statement!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    refused(run("sessions", url), "schema version 99", "Upgrade everturn")


def test_a_missing_driver_names_the_extra(url: str) -> None:
    code = (
        "import sys; sys.modules['redis'] = None\n"
        "sys.argv = ['everturn', 'sessions', 'redis://localhost']\n"
        "from everturn.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    refused((ran.returncode, ran.stdout, ran.stderr), "pip install 'everturn[redis]'")


def test_a_pipe_that_closes_early_is_no_error(url: str) -> None:
    command = f"{sys.executable} -m everturn.cli show '{url}' {CUSTOMER} --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == 2


# --- help ------------------------------------------------------------------------------------------------------------


def test_the_first_page_of_help_fits_a_screen(run: Run) -> None:
    for words in ([], ["--help"], ["-h"]):
        ran = run(*words)
        assert ran.code == 0
        assert len(ran.lines) <= 45
        assert max(map(len, ran.lines)) <= 100
        for name in COMMANDS:
            assert re.search(rf"  {name} ", ran.out), name


def test_the_version(run: Run) -> None:
    assert re.fullmatch(r"everturn \d+\.\d+\.\d+ \(SQLite 3\.\d+\.\d+\)\n", run("--version").out)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples(run: Run, name: str) -> None:
    ran = run(name, "--help")
    assert ran.code == 0
    assert re.search(rf"Examples:\n +everturn {name}", ran.out), ran.out
    assert max(map(len, ran.lines)) <= 110


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_no_types_of_python_and_no_brackets_twice(run: Run, name: str) -> None:
    text = run(name, "--help").out
    assert "list[" not in text
    assert "[[" not in text


def test_the_package_runs_as_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "everturn", "--help"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Usage: everturn " in ran.stdout
    assert [name for name in COMMANDS if name not in ran.stdout] == []
