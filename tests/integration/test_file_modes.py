"""Files that hold conversations can be read by their owner alone, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, InvalidInput
from everturn.cli.app import app
from everturn.private_files import written


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


@pytest.fixture
def path(tmp_path: Path, umask: int) -> Path:
    path = tmp_path / "memory.db"
    with everturn.open(f"sqlite:///{path}") as store:
        store.add_messages("a", [ChatMessage("user", "secret")])
    return path


def modes(folder: Path) -> dict[str, str]:
    return {file.name: oct(file.stat().st_mode & 0o777) for file in folder.iterdir()}


def command(*words: object) -> None:
    with pytest.raises(SystemExit) as caught:
        app([str(word) for word in words])
    assert not caught.value.code


def test_the_file_and_those_beside_it_are_private(tmp_path: Path, path: Path) -> None:
    with everturn.open(f"sqlite:///{path}") as store:
        store.add_messages("a", [ChatMessage("user", "more")])
        assert modes(tmp_path) == dict.fromkeys(["memory.db", "memory.db-wal", "memory.db-shm"], "0o600")


@pytest.mark.parametrize("query", ["0660", "660"])
def test_a_group_may_be_let_in(tmp_path: Path, umask: int, query: str) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}?file_mode={query}") as store:
        store.add_messages("a", [ChatMessage("user", "more")])
        assert set(modes(tmp_path).values()) == {"0o660"}
    with everturn.open(f"sqlite:///{tmp_path / 'other.db'}", file_mode=0o640):
        assert modes(tmp_path)["other.db-wal"] == "0o640"


@pytest.mark.parametrize("mode", ["0777", "rw", 0o1600, 0o400, True, None, "0o600x", -1])
def test_a_mode_that_is_none_is_refused(tmp_path: Path, mode: object) -> None:
    with pytest.raises(InvalidInput, match="file_mode"):
        everturn.open(f"sqlite:///{tmp_path / 'memory.db'}", file_mode=mode)
    assert modes(tmp_path) == {}


def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path, path: Path) -> None:
    path.chmod(0o644)
    with everturn.open(f"sqlite:///{path}", file_mode=0o660) as store:
        store.add_messages("a", [ChatMessage("user", "more")])
        assert set(modes(tmp_path).values()) == {"0o644"}


def test_a_link_that_leads_nowhere_yet_leads_to_a_private_file(tmp_path: Path, umask: int) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    everturn.open(f"sqlite:///{tmp_path / 'link.db'}").close()
    assert modes(tmp_path)["real.db"] == "0o600"


def test_exports_and_backups_are_private(tmp_path: Path, path: Path) -> None:
    command("export", path, "-o", tmp_path / "out.jsonl")
    command("backup", path, tmp_path / "copy.db")
    assert modes(tmp_path) == dict.fromkeys(["memory.db", "out.jsonl", "copy.db"], "0o600")


def test_exports_and_backups_that_replace_a_file_keep_its_mode(tmp_path: Path, path: Path) -> None:
    for name in ("out.jsonl", "copy.db"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o640)
    command("export", path, "-o", tmp_path / "out.jsonl")
    command("backup", path, tmp_path / "copy.db", "--force")
    assert modes(tmp_path) == {"memory.db": "0o600", "out.jsonl": "0o640", "copy.db": "0o640"}


@pytest.mark.parametrize("name", ["out.jsonl", "copy.db"])
def test_a_link_that_lies_in_wait_is_not_followed(tmp_path: Path, path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f"{name}.part").symlink_to(victim)
    if name == "copy.db":
        command("backup", path, tmp_path / name)
    else:
        command("export", path, "-o", tmp_path / name)
    assert victim.read_text() == "precious"
    assert (tmp_path / f"{name}.part").is_symlink()


def test_a_link_at_the_name_itself_is_replaced_and_not_followed(tmp_path: Path, path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "out.jsonl").symlink_to(victim)
    command("export", path, "-o", tmp_path / "out.jsonl")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "out.jsonl").is_symlink()


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> None:
        with written(tmp_path / "out") as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert modes(tmp_path) == {}
