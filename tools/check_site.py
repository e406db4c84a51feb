"""Tries the built docs site in a real browser: `make docs-browser`, after `make docs`.

It types queries into the search as a person does, over http and from files, follows results, and looks at every page
at the width of a phone. The site may load nothing from another host, and no script may fail. Needs Playwright
(requirements/dev.txt) and a Chromium on PATH; without one it says so, and does nothing.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import TimeoutError as NotSeen
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # it is run as a script

from tools.docs_search import FINDS  # noqa: E402
from tools.take_screenshots import NAMES  # noqa: E402

SITE = ROOT / "build/docs/site"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line for each request."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this machine, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def watched(page: Any, base: str, troubles: list[str]) -> Any:
    """Note errors of scripts, failed requests, and requests to other hosts. Return the page."""
    page.on("pageerror", lambda error: troubles.append(f"{page.url}: {error}"))
    # Aborted: the next page was opened before this one had everything.
    page.on("requestfailed", lambda it: "ABORTED" in it.failure or troubles.append(f"{it.url}: {it.failure}"))
    page.on("request", lambda it: it.url.startswith((base, "data:")) or troubles.append(f"asks {it.url}"))
    return page


def check_search(browser: Any, base: str, troubles: list[str]) -> None:
    """Type every query of FINDS on a page below the first one: its page must appear among the results, and open."""
    for query, wanted in FINDS.items():
        page = watched(browser.new_page(viewport=WIDE), base, troubles)
        page.goto(f"{base}concepts/key.html")
        page.locator(".md-search__button").wait_for()
        page.keyboard.press("/")
        # In a shadow root, which document.querySelector does not look into; Playwright does.
        page.locator("dialog[open] input").first.press_sequentially(query, delay=20)
        try:
            page.locator(f"dialog[open] a[href^='{base}{wanted}']").first.click(timeout=10_000)
            page.wait_for_url(f"{base}{wanted}**", timeout=10_000)
        except NotSeen:
            troubles.append(f"{base}: a search for {query!r} does not lead to {wanted}")
        page.close()


def check_widths(browser: Any, base: str, troubles: list[str]) -> int:
    """Open every page at the width of a phone: none may be wider than the screen. Return how many there are."""
    page = watched(browser.new_page(viewport=PHONE), base, troubles)
    names = sorted(file.relative_to(SITE).as_posix() for file in SITE.rglob("*.html"))
    for name in names:
        page.goto(base + name)
        if (over := page.evaluate("document.documentElement.scrollWidth - innerWidth")) > 0:
            troubles.append(f"{name} is {over} pixels too wide for a phone")
    page.close()
    return len(names)


def main() -> None:
    """Check, and end with an error if there was any trouble."""
    if not (SITE / "index.html").exists():
        sys.exit("there is no site to check; make docs builds it")
    if (program := next(filter(None, map(shutil.which, NAMES)), None)) is None:
        print("the site was not tried in a browser: there is no Chromium on PATH")
        return
    troubles: list[str] = []
    with served(SITE) as address, sync_playwright() as playwright:
        # As root, Chromium has no sandbox.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=sandbox)
        files = f"{SITE.as_uri()}/"
        check_search(browser, address, troubles)
        check_search(browser, files, troubles)
        pages = check_widths(browser, address, troubles)
        browser.close()
    if troubles:
        sys.exit("\n".join(troubles))
    print(f"{len(FINDS)} queries find their pages, over http and from files; {pages} pages fit a phone")


if __name__ == "__main__":
    main()
