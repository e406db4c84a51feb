"""Checks that the search of the built site can find every page, without a browser. `tools/build_docs.py` calls it.

The browser splits pages and queries at the separator that the index names, ignores case, and finds words by their
beginning. The same is done here. `tools/check_site.py` asks a real browser.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

# Words that people search for, and the page that must be among the results.
FINDS = {
    "rollback": "reference/api/memory-store.html",
    "KeyReused": "reference/api/errors.html",
    "snapshot_db": "snapshot-db.html",
    "expected_version": "concepts/version.html",
    "langgraph kill": "adapters/langgraph.html",
    "test_chat": "examples/chat/test_chat.py.html",
}


class SearchError(Exception):
    """The search leaves something out; the message says what."""


def words(text: str, separator: str) -> list[str]:
    """Split a text as the search does: tags left out, lower case."""
    plain = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return [word for word in re.split(separator, plain.lower()) if word]


def find(index: dict[str, Any], query: str) -> set[str]:
    """Return the pages with a section that has every word of the query, or a longer word that begins with it."""
    separator = index["config"]["separator"]
    wanted = words(query, separator)
    found = set()
    for item in index["items"]:
        there = words(f"{item['title']} {item['text']}", separator)
        if wanted and all(any(word.startswith(begin) for word in there) for begin in wanted):
            found.add(item["location"].partition("#")[0])
    return found


def check_index(index: dict[str, Any], pages: set[str]) -> None:
    """Raise SearchError if a page is not in the index, or a query of FINDS does not find its page."""
    listed = {item["location"].partition("#")[0] or "index.html" for item in index["items"]}
    if missing := sorted(pages - listed):
        raise SearchError(f"search.json leaves out pages: {', '.join(missing)}")
    for query, page in FINDS.items():
        if page not in find(index, query):
            raise SearchError(f"a search for {query!r} does not find {page}")


def check_search(site: Path) -> None:
    """Raise SearchError if the built site has no search, or one that leaves out a page."""
    if not (site / "search.json").exists():
        raise SearchError("the site has no search.json: is the plugin `search` in mkdocs.yml?")
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    check_index(json.loads((site / "search.json").read_text("utf-8")), pages)


def write_index_for_files(site: Path) -> None:
    """Write search.js, the index for pages that are opened as files: they may not fetch search.json.

    A script of the theme loads it then, by this name. docs/search-from-files.js does the rest.
    """
    index = (site / "search.json").read_text("utf-8")
    (site / "search.js").write_text(f"var __index = {index};\n", "utf-8")
