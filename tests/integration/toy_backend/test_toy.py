"""The example backend (examples/backend), as a third party's: everturn.backend and an entry point are enough.

The tests of the store run on it as on ours: see tests/store/places/toy.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage, InvalidInput, Unsupported
from tests.integration.toy_backend.installing import PACKAGE, PROJECT, install
from tests.store.places import Servers


@pytest.fixture
def url(servers: Servers, tmp_path: Path) -> str:
    assert servers.toy  # it is installed
    return f"toy://{tmp_path.name}"


def in_a_process_that_has_it(site: Path, script: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_url_opens_it(url: str) -> None:
    with everturn.open(url, ttl=60) as store:
        store.add_messages("a", [ChatMessage("user", "kept")], key="k")
        assert store.info("a").ttl == 60
    with everturn.open(url) as again:
        assert [message.content for message in again.get_history("a")] == ["kept"]
        assert again.add_messages("a", [ChatMessage("user", "kept")], key="k").replayed


def test_it_is_opened_in_an_event_loop_too(url: str) -> None:
    async def main() -> list[ChatMessage]:
        async with await everturn.open_async(url) as store:
            await asyncio.gather(*(store.add_messages("a", [ChatMessage("user", str(n))]) for n in range(20)))
            return await store.get_history("a")

    assert {message.content for message in asyncio.run(main())} == {str(n) for n in range(20)}


def test_another_process_opens_it_because_it_is_installed(tmp_path: Path) -> None:
    install(tmp_path / "site")
    script = """
import everturn
with everturn.open("toy://here?namespace=n") as store:
    store.add_messages("a", [everturn.ChatMessage("user", "hello")])
    snapshot = store.save_snapshot("a")
    store.clear("a")
    store.rollback_to_snapshot("a", snapshot)
    print(store.get_history("a")[0].content, store.verify().ok)
"""
    done = in_a_process_that_has_it(tmp_path / "site", script)
    assert (done.stdout, done.stderr) == ("hello True\n", "")


def test_a_process_that_lacks_it_says_which_there_are(tmp_path: Path) -> None:
    done = in_a_process_that_has_it(tmp_path, "import everturn; everturn.open('toy://here')")
    assert "does not begin with a scheme there is a backend for: dynamodb://, postgres://" in done.stderr


def test_its_scheme_is_listed_with_the_others(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"sqlite://, toy://"):
        everturn.open("nosuch://")


def test_its_options_are_its_own(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^synchronous: .*: max_message_bytes, namespace, timeout, ttl$"):
        everturn.open(url, synchronous="FULL")


def test_what_it_leaves_out_is_unsupported_and_says_what_to_do(url: str) -> None:
    with everturn.open(url) as toy, everturn.open("sqlite://") as other:
        toy.add_messages("a", [ChatMessage("user", "1")])
        with pytest.raises(
            Unsupported, match=r"everturn_toy.*everturn\.backend\.Portable; read from one store and append"
        ):
            everturn.copy(toy, other)


def test_the_contract_holds_on_it(tmp_path: Path) -> None:
    """The command of its README."""
    install(tmp_path / "site")
    script = """
import sys
from everturn.__main__ import main
sys.argv = ["everturn", "check", "everturn_toy.contract:factory", "--quick"]
main()
"""
    done = in_a_process_that_has_it(tmp_path / "site", script)
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_readme_names_the_files_it_has() -> None:
    text = (PROJECT / "README.md").read_text("utf-8")
    told = set(re.findall(r"^\| `([\w./]+)` \|", text, re.MULTILINE))
    files = {path.relative_to(PROJECT).as_posix() for path in [*PACKAGE.glob("*.py"), PROJECT / "pyproject.toml"]}
    assert told == files
