"""Commands that read never write: not to an empty file, not to an older one, not without permission."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, InvalidInput, Unsupported
from everturn.backends.sqlite.backup import is_of_earlier_version
from tests.cli.conftest import Run
from tests.conversation import CUSTOMER

LOOKS = [
    ("sessions",),
    ("show", CUSTOMER),
    ("log", CUSTOMER),
    ("snapshots", CUSTOMER),
    ("diff", CUSTOMER, "1"),
    ("tail", CUSTOMER),
    ("verify",),
    ("export",),
    ("doctor",),
    ("effects", CUSTOMER),
]


def words(look: tuple[str, ...], url: object) -> list[object]:
    return [look[0], url, *look[1:]]


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_a_command_that_looks_leaves_every_byte_as_it_is(
    run: Run, url: str, tmp_path: Path, look: tuple[str, ...]
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(*words(look, url)).code in {0, 1}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_backup_leaves_every_byte_of_its_source_as_it_is(run: Run, url: str, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "backups").mkdir()
    ran = run("backup", url, tmp_path / "backups" / "copy.db")
    assert ran.code == 0, ran.err
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["copy.db"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_file_of_an_earlier_everturn_is_backed_up_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent.parent / "migrations" / "v1.db", path)
    before = path.read_bytes()
    ran = run("backup", path, tmp_path / "copy.db")
    assert (ran.code, "verified" in ran.out) == (0, True), ran.err
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy.db", "old.db"]
    assert is_of_earlier_version(tmp_path / "copy.db")
    assert run("compact", tmp_path / "copy.db").code == 0
    assert run("sessions", tmp_path / "copy.db").code == 0


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_an_empty_file_stays_empty_and_is_told(run: Run, tmp_path: Path, look: tuple[str, ...]) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    ran = run(*words(look, path))
    assert (ran.code, "nothing has been stored in it yet" in ran.err) == (2, True)
    assert path.read_bytes() == b""


def test_a_file_of_an_earlier_everturn_is_not_migrated_by_a_look(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent.parent / "migrations" / "v1.db", path)
    before = path.read_bytes()
    ran = run("sessions", path)
    assert (ran.code, "everturn compact" in ran.err) == (2, True)
    assert path.read_bytes() == before
    assert run("compact", path).code == 0
    assert run("sessions", path).code == 0


AS_NOBODY = """
import contextlib, io, os, sys
from everturn.cli import main
sys.argv = ["everturn", *sys.argv[1:]]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()  # once as we are, so that all is imported: nobody may not be allowed to read our installation
os.setgid(65534)
os.setuid(65534)
main()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not write")
@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look[0])
def test_a_file_that_may_only_be_read_can_be_looked_at(url: str, look: tuple[str, ...]) -> None:
    # Not below tmp_path: each pytest that starts on this machine closes the folder above that to others again.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(url.removeprefix("sqlite:///"), folder / "memory.db")
        (folder / "memory.db").chmod(0o444)
        command = [sys.executable, "-c", AS_NOBODY, *map(str, words(look, folder / "memory.db"))]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode in {0, 1}, ran.stderr
        assert [path.name for path in folder.iterdir()] == ["memory.db"]


def test_the_source_of_a_copy_keeps_every_byte(run: Run, url: str, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "target").mkdir()
    assert run("copy", url, f"sqlite:///{tmp_path}/target/memory.db").code == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_file_of_an_earlier_everturn_is_not_migrated_by_a_copy_from_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    shutil.copy(Path(__file__).parent.parent / "migrations" / "v1.db", path)
    before = path.read_bytes()
    ran = run("copy", path, f"sqlite:///{tmp_path}/new.db")
    assert (ran.code, "everturn compact" in ran.err) == (2, True)
    assert path.read_bytes() == before


def test_a_store_that_is_opened_read_only_refuses_changes(url: str) -> None:
    with everturn.open(url, read_only=True) as store:
        assert store.get_history(CUSTOMER)
        with pytest.raises(Unsupported, match="read-only"):
            store.add_messages(CUSTOMER, [ChatMessage("user", "no")])
        with pytest.raises(Unsupported, match="read-only"):
            store.erase(CUSTOMER)
    with pytest.raises(InvalidInput, match="creates none"):
        everturn.open(url + ".absent", read_only=True)


def test_a_look_sees_what_others_write_meanwhile(url: str) -> None:
    with everturn.open(url, read_only=True) as looking, everturn.open(url) as writing:
        writing.add_messages(CUSTOMER, [ChatMessage("user", "new")])
        assert looking.get_history(CUSTOMER)[-1].text == "new"
