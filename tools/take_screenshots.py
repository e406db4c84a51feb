"""Takes the screenshots of the inspector in docs/images: `python tools/take_screenshots.py`.

Needs Playwright (requirements/dev.txt) and a Chromium on PATH. Run it after a change that can be seen, and look at the
images before you commit them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import everturn
from everturn import ChatMessage, Summary, ToolCall

IMAGES = Path(__file__).parents[1] / "docs" / "images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDE, NARROW = {"width": 1180, "height": 700}, {"width": 380, "height": 700}
CUSTOMER = "customer-42"


def fill(url: str) -> None:
    """Store a conversation that was led astray, rolled back, and went on; and a few others."""
    with everturn.open(url) as store:
        for name, question in [("customer-7", "Do you ship to Norway?"), ("customer-19", "Cancel my order, please.")]:
            store.save_context(name, question, "Yes, with pleasure.")
        store.add_messages(
            CUSTOMER,
            [
                ChatMessage("system", "You are the order assistant of a small shop in Bern."),
                ChatMessage("user", "My order is 1234."),
                ChatMessage("assistant", "Thank you. What would you like to know?"),
            ],
        )
        call = {"id": "call-1", "function": {"name": "track", "arguments": '{"order": 1234}'}}
        store.add_messages(
            CUSTOMER,
            [
                ChatMessage("user", "Where is it?"),
                ChatMessage("assistant", None, tool_calls=[call]),
                ChatMessage("tool", "left Bern at 09:40, arrives tomorrow", tool_call_id="call-1"),
                ChatMessage("assistant", "It left Bern this morning and arrives tomorrow."),
            ],
        )
        before = store.save_snapshot(CUSTOMER, "before the new prompt")
        store.save_context(CUSTOMER, "Can I still change the address?", "What is your order number?")
        store.save_context(CUSTOMER, "I told you: 1234!", "I am sorry. What is your order number?")
        store.rollback_to_snapshot(CUSTOMER, before)
        answer = "For order 1234, yes: until it reaches the depot tonight."
        store.save_context(CUSTOMER, "Can I still change the address?", answer)
        store.add_tool_call(CUSTOMER, ToolCall("change_address", {"order": 1234}, result="Basel", duration=0.41))
        text = "Customer tracks order 1234 and wants it sent to Basel."
        store.add_summary(CUSTOMER, Summary(text, [0.5, 0.5], covers=(1, 9)))
        store.trim(CUSTOMER, max_messages=2)
        store.undo(CUSTOMER)
        store.save_snapshot(CUSTOMER, "address changed")


def photograph(browser: Any, address: str) -> None:
    """Visit the pages and save an image of each."""
    window = browser.new_context(viewport=WIDE)
    page = window.new_page()
    page.goto(address)
    base = page.url.split("?")[0].rstrip("/")
    page.wait_for_selector(f"tbody >> text={CUSTOMER}")
    page.goto(f"{base}/session?id={CUSTOMER}")
    page.wait_for_selector("text=sent to Basel")
    page.screenshot(path=IMAGES / "inspector-session.png")
    page.goto(f"{base}/compare?id={CUSTOMER}&a=5&b=7")
    page.wait_for_selector("text=removed")
    page.screenshot(path=IMAGES / "inspector-compare.png")
    cookies = window.cookies()
    window.close()
    window = browser.new_context(viewport=NARROW, color_scheme="dark")
    window.add_cookies(cookies)
    page = window.new_page()
    page.goto(f"{base}/session?id={CUSTOMER}")
    page.wait_for_selector("text=sent to Basel")
    page.screenshot(path=IMAGES / "inspector-narrow.png", full_page=True)
    window.close()


def main() -> None:
    """Serve a store that was made for it, and take the images."""
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        sys.exit("no Chromium on PATH: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        fill(f"sqlite:///{folder}/memory.db")
        command = [sys.executable, "-m", "everturn", "serve", "sqlite:///memory.db", "--no-open"]
        server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
        try:
            told = server.stdout.readline() if server.stdout else ""
            address = re.search(r"http://\S+", told)
            if address is None:
                sys.exit(f"the inspector did not start: {told}")
            with sync_playwright() as playwright:
                # As root, Chromium has no sandbox.
                sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = playwright.chromium.launch(executable_path=chromium, args=["--disable-gpu", *sandbox])
                photograph(browser, address[0])
                browser.close()
        finally:
            server.terminate()
            server.wait(10)


if __name__ == "__main__":
    main()
