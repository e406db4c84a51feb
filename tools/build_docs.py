"""Builds the docs site: `make docs`.

    python tools/build_docs.py            # into build/docs/site; fails at the first thing that is wrong
    python tools/build_docs.py --stage    # only puts the pages together, in build/docs/pages

Zensical reads mkdocs.yml and pages of one folder. So the pages of docs/, those of the repository's root that the site
has, and the examples (tools/docs_examples.py) are put into one folder, with links that fit there. Parts that the code
knows best are filled in: see tools/docs_parts.py. This script also checks some things that Zensical does not:
navigation and pages agree, every public name has its place in the API reference, the search finds every page
(tools/docs_search.py), and no page loads anything from another host.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # it is run as a script

from tools import docs_examples, docs_parts, docs_search  # noqa: E402

DOCS = ROOT / "docs"
PAGES = ROOT / "build/docs/pages"
SITE = ROOT / "build/docs/site"
NO_ADDRESS = "http://127.0.0.1:8000/"  # as mkdocs.yml has it
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
ANY_FENCE = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
# A part, with the sentence before it that is for readers of the repository.
PART = re.compile(r"(?:^\*In the repository[^\n]*\*\n\n)?^<!-- everturn: (\w+)(?: ([\w. ]+))? -->$", re.MULTILINE)
HOME_TITLE = "Agent memory that cannot lose a turn"  # in the browser, before the site's name
FROM_ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link(?![^>]*canonical)[^>]*\shref=["']?(?:https?:)?//"""
)


class DocsError(Exception):
    """Something in the docs is wrong; the message says what, and where."""


def sources() -> dict[Path, Path]:
    """Return the file of every page and picture, and its place in the site's folder.

    Of the repository's root, these are the pages that the navigation names: CHANGELOG.md, CONTRIBUTING.md.
    """
    found = {file: file.relative_to(DOCS) for file in DOCS.rglob("*") if file.is_file()}
    of_root = [name for name in nav_of() if "/" not in name and not (DOCS / name).exists() and (ROOT / name).exists()]
    found |= {ROOT / name: Path(name) for name in of_root}
    found |= {file: Path("examples", f"{file.parent.name}.md") for file in ROOT.glob("examples/*/README.md")}
    return found | docs_examples.file_pages()


def project_urls() -> dict[str, str]:
    """Return the addresses of the project, by their names in lower case."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {name.lower(): address for name, address in project.get("urls", {}).items()}


def stage() -> None:
    """Put all pages together in build/docs/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    places = sources()
    for file, place in places.items():
        target = PAGES / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(page_text(file, places), "utf-8")
        elif place.suffix == ".md":
            target.write_text(docs_examples.file_page(file), "utf-8")
        else:
            shutil.copyfile(file, target)
    for readme in ROOT.glob("examples/*/README.md"):
        docs_examples.write_archive(readme.parent, PAGES / "examples" / f"{readme.parent.name}.zip")


def page_text(file: Path, places: dict[Path, Path]) -> str:
    """Return a page as the site has it: generated parts filled in, links as they lead in the site's folder."""
    text = PART.sub(lambda found: docs_parts.part(found[1], found[2]), file.read_text("utf-8"))
    if file == DOCS / "README.md":
        text = f"---\ntitle: {HOME_TITLE}\n---\n\n{text}"
    if places[file].parent == Path("examples"):
        text += docs_examples.list_of_files(file.parent)
    pieces = FENCE.split(text)  # code at the odd places
    pieces[::2] = [LINK.sub(lambda link: _link(link, file, places), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _link(link: re.Match[str], file: Path, places: dict[Path, Path]) -> str:
    picture, text, address = link.groups()
    path, _, anchor = address.partition("#")
    if not path or re.match(r"[a-z]+:", address):
        return link[0]
    target = Path(os.path.normpath(file.parent / path))
    if not target.exists():
        raise DocsError(f"{file.relative_to(ROOT)}: there is no {path}")
    if target.is_dir() and (target / "README.md") in places:
        target /= "README.md"
    if target in places:
        way = os.path.relpath(places[target], places[file].parent)
        return f"{picture}[{text}]({way}{'#' if anchor else ''}{anchor})"
    repository = project_urls().get("repository") or project_urls().get("source")
    name = target.relative_to(ROOT).as_posix()
    return f"[{text}]({repository}/blob/main/{name})" if repository else text


def nav_pages(nav: Any) -> Iterator[str]:
    """Yield the paths that a navigation names, wildcards as they stand."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from [value] if isinstance(value, str) else nav_pages(value)


def nav_of(config: Path = ROOT / "mkdocs.yml") -> list[str]:
    """Return the paths that the site's navigation names."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("!ENV", lambda *_: None)
    return list(nav_pages(yaml.load(config.read_text("utf-8"), Loader)["nav"]))  # noqa: S506 - a SafeLoader


def check_nav(named: list[str], pages: set[str]) -> None:
    """Raise DocsError if the navigation names a page that is not there, or leaves one out.

    Pages of single files are left out on purpose: the page of their example lists them.
    """
    folders = tuple(name.removesuffix("*") for name in named if name.endswith("/*"))
    absent = sorted(name for name in named if not name.endswith("/*") and name not in pages)
    files = {page.as_posix() for page in docs_examples.file_pages().values()}
    unnamed = sorted(page for page in pages - set(named) - files if not page.startswith(folders))
    if absent:
        raise DocsError(f"nav of mkdocs.yml names pages that are not there: {', '.join(absent)}")
    if unnamed:
        raise DocsError(f"pages that nav of mkdocs.yml does not name: {', '.join(unnamed)}")


def check_names() -> None:
    """Raise DocsError if a public name has no place in the API reference."""
    inventory = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    there = {line.split(" ", 1)[0] for line in zlib.decompress(inventory).decode().splitlines()}
    # A function in a module of its own name is only found there: everturn.testing.history.judge.judge.
    inside = {name: f"{name}.{name.rpartition('.')[2]}" for name in docs_parts.public_names()}
    missing = [name for name, below in inside.items() if not {name, below} & there]
    if missing:
        raise DocsError(f"public names without a place in docs/reference/api: {', '.join(missing)}")


def check_hosts() -> None:
    """Raise DocsError if a page loads something from another host."""
    pages = [page for page in SITE.rglob("*.html") if FROM_ELSEWHERE.search(page.read_text("utf-8"))]
    if pages:
        raise DocsError(f"loads from another host: {pages[0].relative_to(SITE)}")


def fence_languages(pages: list[str]) -> dict[str, str]:
    """Return the language of every piece of code on some pages, by the code."""
    fences = [fence for page in pages for fence in ANY_FENCE.findall(page)]
    return {textwrap.dedent(code).strip(): language for _, language, code in fences}


def with_languages(text: str, known: dict[str, str], otherwise: str = "") -> str:
    """Return a page with the languages of its code: Zensical leaves them out of the Markdown that it writes."""

    def mended(fence: re.Match[str]) -> str:
        indent, language, code = fence.groups()
        language = language or known.get(textwrap.dedent(code).strip(), otherwise)
        return f"{indent}```{language}\n{code}{indent}```"

    return ANY_FENCE.sub(mended, text)


def finish_markdown() -> None:
    """Give the code on the site's Markdown pages its languages. In the API reference, all code is Python."""
    known = fence_languages([page.read_text("utf-8") for page in sorted(PAGES.rglob("*.md"))])
    for page in sorted(SITE.rglob("*.md")):
        otherwise = "python" if page.is_relative_to(SITE / "reference/api") else ""
        text = with_languages(page.read_text("utf-8"), known, otherwise)
        page.write_text(text, "utf-8")
        known |= fence_languages([text])
    whole = SITE / "llms-full.txt"
    whole.write_text(with_languages(whole.read_text("utf-8"), known), "utf-8")


def finish_llms(address: str | None) -> None:
    """Raise DocsError if llms.txt leaves a page out. Without an address of the site, its links become relative."""
    for file in (SITE / "llms.txt", SITE / "llms-full.txt"):
        text = file.read_text("utf-8")
        file.write_text(text if address else text.replace(NO_ADDRESS, ""), "utf-8")
    listed = set(re.findall(r"\]\(<([^>]+)>\)", (SITE / "llms.txt").read_text("utf-8")))
    pages = {page.relative_to(PAGES).as_posix() for page in PAGES.rglob("*.md")}
    built = {re.sub(r"(^|/)README\.md$", r"\1index.md", page) for page in pages}
    if missing := sorted(built - {link.removeprefix(address or "") for link in listed}):
        raise DocsError(f"pages that llmstxt of mkdocs.yml leaves out: {', '.join(missing)}")


def main() -> None:
    stage()
    check_nav(nav_of(), {page.relative_to(PAGES).as_posix() for page in PAGES.rglob("*.md")})
    if sys.argv[1:] == ["--stage"]:
        return
    shutil.rmtree(SITE, ignore_errors=True)
    address = os.environ.get("EVERTURN_SITE_URL") or project_urls().get("documentation")
    address = address and address.rstrip("/") + "/"
    environment = {**os.environ, "NO_COLOR": "1"} | ({"EVERTURN_SITE_URL": address} if address else {})
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise DocsError("zensical found what stands above")
    check_names()
    check_hosts()
    docs_search.check_search(SITE)
    docs_search.write_index_for_files(SITE)
    finish_markdown()
    finish_llms(address)
    print(f"built {SITE.relative_to(ROOT)}/index.html")


if __name__ == "__main__":
    try:
        main()
    except (DocsError, docs_search.SearchError) as error:
        sys.exit(f"make docs: {error}")
