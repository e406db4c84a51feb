"""Commands that bring conversations along are run as the pages have them: after the code above them, or on servers."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import apsw
import pytest
from langchain_core.messages import AIMessage, HumanMessage, message_to_dict

import everturn
from tests.docs.test_snippets import ROOT, snippets
from tests.docs.test_transcripts import ends_with, lines, run

if TYPE_CHECKING:
    from tests.store.places import Servers


def test_a_file_of_openai_agents_comes_along(tmp_path: Path) -> None:
    page = "docs/how-to/migrate/openai-agents.md"
    (tmp_path / "begin.py").write_text(snippets(ROOT / page, "python")[0], "utf-8")
    ends_with([0], [f"{sys.executable} begin.py"], tmp_path)
    *commands, show = lines(page, "console")
    ends_with([0] * len(commands), commands, tmp_path)
    assert "My order is 1234." in run(show, tmp_path).stdout


def test_a_file_of_langchain_comes_along(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "chat.db"))  # as SQLChatMessageHistory lays it out
    db.execute("CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)")
    for message in (HumanMessage("My order is 1234."), AIMessage("Thanks!")):
        row = ("customer-42", json.dumps(message_to_dict(message)))
        db.execute("INSERT INTO message_store (session_id, message) VALUES (?, ?)", row)
    db.close()
    *commands, sessions = lines("docs/how-to/migrate/langchain.md", "console")
    ends_with([0] * len(commands), commands, tmp_path)
    assert "customer-42" in run(sessions, tmp_path).stdout


@pytest.mark.parametrize("page", ["docs/how-to/backups.md", "docs/how-to/move-between-backends.md"])
def test_copies_from_and_to_servers(page: str, tmp_path: Path, servers: Servers) -> None:
    with everturn.open(f"sqlite:///{tmp_path / 'memory.db'}") as store:
        store.save_context("customer-42", "My order is 1234.", "Thanks!")
    apart = f"?namespace={uuid4().hex}"
    urls = {"redis://localhost": servers.valkey.url, "postgresql://host/db": servers.postgres.url}
    for command in lines(page, "console"):
        (named,) = [name for name in urls if name in command]
        url = shlex.quote(urls[named] + apart)
        if command.split()[2] == named:  # from the server: something must be there
            ends_with([0], [f"everturn copy sqlite:///memory.db {url}"], tmp_path)
        ends_with([0], [command.replace(named, url)], tmp_path)
        assert "customer-42" in run(f"everturn sessions {url}", tmp_path).stdout
