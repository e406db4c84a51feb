"""The docs site, as far as it can be checked without building it (`make docs` does): navigation, parts, messages."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import errors
from tools import build_docs, docs_examples, docs_parts, docs_search

ROOT = Path(__file__).parents[2]
API = ROOT / "docs/reference/api"
TROUBLES = (ROOT / "docs/how-to/troubleshooting.md").read_text("utf-8")


def staged() -> set[str]:
    return {place.as_posix() for place in build_docs.sources().values() if place.suffix == ".md"}


def test_the_navigation_names_every_page_and_no_other() -> None:
    build_docs.check_nav(build_docs.nav_of(), staged())


def test_a_page_that_is_not_named_is_found() -> None:
    with pytest.raises(build_docs.DocsError, match=r"does not name: b\.md"):
        build_docs.check_nav(["a.md", "decisions/*"], {"a.md", "b.md", "decisions/001.md"})
    with pytest.raises(build_docs.DocsError, match=r"not there: b\.md"):
        build_docs.check_nav(["a.md", "b.md"], {"a.md"})


def test_links_lead_to_where_the_site_has_the_page(tmp_path: Path) -> None:
    places = build_docs.sources()
    page = ROOT / "docs/public.md"
    assert "(CHANGELOG.md)" in build_docs.page_text(page, places)
    assert "(examples/snapshot_db.md)" in build_docs.page_text(ROOT / "docs/snapshot-db.md", places)
    assert "(architecture.md#the-layers)" in build_docs.page_text(ROOT / "CONTRIBUTING.md", places)
    broken = ROOT / "docs" / "no-such-page.md"
    with pytest.raises(build_docs.DocsError, match=r"there is no nowhere\.md"):
        build_docs._link(build_docs.LINK.fullmatch("[a](nowhere.md)"), broken, places)


def test_every_file_that_a_page_links_to_is_on_the_site() -> None:
    """But for one: a decision names a file of the source, and leads to the repository."""
    places = build_docs.sources()
    pages = [file for file in places if file.suffix == ".md"]
    elsewhere = [
        page.name
        for page in pages
        if "/blob/main/" in build_docs.page_text(page, places) and "decisions" not in page.parts
    ]
    assert elsewhere == []
    chat = build_docs.page_text(ROOT / "docs/start/chat-endpoint.md", places)
    assert "(../examples/chat/app.py.md)" in chat
    shown = docs_examples.file_page(ROOT / "examples/chat/test_chat.py")
    assert (ROOT / "examples/chat/test_chat.py").read_text("utf-8") in shown


def test_the_page_of_an_example_lists_its_files_and_has_them_in_an_archive(tmp_path: Path) -> None:
    page = build_docs.page_text(ROOT / "examples/snapshot_db/README.md", build_docs.sources())
    assert "- [tests/test_storage.py](snapshot_db/tests/test_storage.py.md)" in page
    docs_examples.write_archive(ROOT / "examples/snapshot_db", tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        names = archive.namelist()
    assert {f"snapshot_db/{name}" for name in ("README.md", "pytest.ini", "tests/snapshots/memory_test.sqlite")} <= set(
        names
    )


def searchable() -> dict[str, Any]:
    """An index in which every query of FINDS finds its page."""
    items = [{"location": f"{page}#a", "title": query, "text": ""} for query, page in docs_search.FINDS.items()]
    return {"config": {"separator": r"[\s\-_,:!=\[\]()\\\"`/]+|\.(?!\d)"}, "items": items}


def test_a_search_finds_words_by_their_beginning_in_any_case() -> None:
    index = searchable()
    index["items"] = [{"location": "a.html#b", "title": "Key", "text": "<p>raises <code>KeyReused</code></p>"}]
    assert docs_search.find(index, "keyre") == docs_search.find(index, "raises KEYREUSED") == {"a.html"}
    assert docs_search.find(index, "reused") == docs_search.find(index, "code") == docs_search.find(index, " ") == set()


def test_an_index_that_leaves_out_a_page_is_found() -> None:
    pages = set(docs_search.FINDS.values())
    docs_search.check_index(searchable(), pages)
    with pytest.raises(docs_search.SearchError, match=r"leaves out pages: a\.html"):
        docs_search.check_index(searchable(), pages | {"a.html"})


def test_a_query_that_does_not_find_its_page_is_found() -> None:
    index = searchable()
    index["items"] = [item | {"title": item["title"].replace("KeyReused", "Key")} for item in index["items"]]
    with pytest.raises(
        docs_search.SearchError, match=r"a search for 'KeyReused' does not find reference/api/errors\.html"
    ):
        docs_search.check_index(index, set())


def test_a_site_without_an_index_is_found(tmp_path: Path) -> None:
    with pytest.raises(docs_search.SearchError, match=r"no search\.json"):
        docs_search.check_search(tmp_path)


def test_code_on_the_pages_for_machines_has_its_language() -> None:
    known = build_docs.fence_languages(["```sh\nls\n```\n\n1. a\n\n    ```python\n    f()\n    ```\n"])
    built = "```\nls\n```\n\n- a\n\n  ```\n  f()\n  ```\n\n```\nunknown\n```\n"
    mended = "```sh\nls\n```\n\n- a\n\n  ```python\n  f()\n  ```\n\n```\nunknown\n```\n"
    assert build_docs.with_languages(built, known) == mended
    assert build_docs.with_languages(built, {}, "python").count("```python\n") == 3


def test_the_home_page_has_a_title_of_its_own() -> None:
    places = build_docs.sources()
    assert build_docs.page_text(ROOT / "docs/README.md", places).startswith("---\ntitle: Agent memory")
    assert build_docs.page_text(ROOT / "docs/public.md", places).startswith("# ")


def test_every_public_module_is_in_the_api_reference() -> None:
    shown = set(
        re.findall(
            r"^(?::::|<!-- everturn: members) (\S+)",
            "\n".join(page.read_text("utf-8") for page in API.glob("*.md")),
            re.MULTILINE,
        )
    )
    modules = {name.rpartition(".")[0] for name in docs_parts.public_names()}
    assert modules - shown == set()
    assert {f"everturn.{name}" for name in ("MemoryStore", "AsyncMemoryStore")} <= shown
    functions = re.search(r"members: \[(.*)\]", (API / "everturn.md").read_text("utf-8"))
    assert functions
    assert set(functions[1].split(", ")) == {name for name in docs_parts.listed("everturn") if name[0].islower()}


def test_the_table_of_methods_has_every_method() -> None:
    text = (API / "memory-store.md").read_text("utf-8")
    methods = {name for name, _ in inspect.getmembers(everturn.MemoryStore, inspect.isfunction) if name[0] != "_"}
    assert methods - set(re.findall(r"#everturn\.MemoryStore\.(\w+)", text)) - {"close", "clear_all"} == set()


def test_the_page_of_the_command_has_every_command() -> None:
    text = docs_parts.cli()
    first, *commands = text.split("\n## ")
    named = re.findall(r"^  (?:[A-Z]\w+)? +([\w-]+) {2,}[A-Z]", first, re.MULTILINE)
    assert len(named) > 20
    shown = {command.split("\n")[0].split(" ")[0] for command in commands}
    assert set(named) <= shown
    assert all("Usage: everturn " in command for command in commands)


def test_the_table_of_options_has_every_option_and_its_backends() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", docs_parts.options(), re.MULTILINE))
    assert rows["ttl"] == rows["namespace"] == "all"
    assert rows["synchronous"] == "SQLite"
    assert rows["warnings"] == "Redis, PostgreSQL"
    assert set(rows) == set(inspect.signature(everturn.open).parameters) - {"url", "options"}
    assert "`sslmode`" in docs_parts.options()


def test_the_pictures_are_those_that_the_tool_draws() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/draw_concepts.py", "--check"], check=False)
    assert done.returncode == 0, "python tools/draw_concepts.py draws them anew"


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield every text in some code; `...` stands for a value in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


SAID = "\n".join(
    text for file in (ROOT / "src/everturn").rglob("*.py") for text in texts(ast.parse(file.read_text("utf-8")))
)
MESSAGES = [
    message
    for section in re.split(r"^## ", TROUBLES, flags=re.MULTILINE)[1:-1]
    for message in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
]


def test_the_page_has_messages() -> None:
    assert len(MESSAGES) > 60


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_troubleshooting_is_one_that_everturn_says(message: str) -> None:
    """Each piece of it: where the page has `...`, the message has a value."""
    if message.startswith("messages[0].metadata.score: "):  # the path is an example
        message = message.partition(": ")[2].replace("NaN ", "...")
    pieces = [piece.strip(" :;,") for piece in message.split("...")]
    assert [piece for piece in pieces if len(piece) > 3 and piece not in SAID] == []


def test_troubleshooting_has_every_error() -> None:
    titles = set(re.findall(r"\w+", " ".join(re.findall(r"^## (.+)$", TROUBLES, re.MULTILINE))))
    assert set(errors.__all__) - {"Outcome", "MemoryStoreError"} - titles == set()
    tree = (API / "errors.md").read_text("utf-8")
    assert [name for name in errors.__all__ if name not in ("Outcome", "HostileSetting") and name not in tree] == []
