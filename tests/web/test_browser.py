"""The inspector in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import pytest

import everturn
from everturn import ChatMessage
from tests.conversation import CUSTOMER
from tests.tiers import first

sync_playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright").sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Chromium phones home at every start unless told not to, and as root it has no sandbox.
QUIET = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
QUIET += ["--disable-gpu", "--disable-quic", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
PATIENCE = 20_000  # milliseconds


def chromium() -> str:
    """The browser on this machine; installed first, where we may."""
    for _ in range(2):
        for name in NAMES:
            if found := shutil.which(name):
                return found
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            break
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        settings = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/var/tmp"}
        subprocess.run(["apt-get", "update", "-qq"], env=settings, check=False, timeout=300, **quiet)  # type: ignore[call-overload]
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
        subprocess.run(install, env=settings, check=False, timeout=600, **quiet)  # type: ignore[call-overload]
    pytest.skip("the browser tests need Chromium on the PATH: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, serve: Any) -> Iterator[Any]:
    """A window, closed before the server is; whatever it complains of, or asks another host for, fails the test."""
    window = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = window.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda one: None if one.url.startswith("http://127.0.0.1:") else complaints.append(one.url))
    yield opened
    window.close()
    assert complaints == []


def second_page(browser: Any, address: str) -> Any:
    other = browser.new_context().new_page()
    other.set_default_timeout(PATIENCE)
    other.goto(address)
    return other


def test_browse_compare_roll_back_and_undo(page: Any, serve: Any, url: str) -> None:
    page.goto(serve())
    assert "token" not in page.url
    page.click(f"tbody a:has-text('{CUSTOMER}')")
    page.wait_for_selector("text=Order 1234 is in Bern.")
    page.select_option("select[name=a]", "3")
    page.click("button:has-text('Compare')")
    page.wait_for_selector("text=2 removed, 5 added")
    page.click("text=Back to the session")
    page.click("text=roll back…")
    page.wait_for_selector("text=5 removed, 0 added")
    page.click("button:has-text('Roll back')")
    page.wait_for_selector(".toast >> text=The session was rolled back.")
    with everturn.open(url) as store:
        assert store.get_history(CUSTOMER)[-1].text == "My order is 1234."
    page.click(".toast button:has-text('Undo')")
    page.wait_for_selector(".toast >> text=The change was undone.")
    with everturn.open(url) as store:
        assert store.get_history(CUSTOMER)[-1].text == "in Bern"


def test_a_second_browser_sees_it_live(page: Any, browser: Any, serve: Any, url: str) -> None:
    address = serve()
    page.goto(address)
    page.click(f"tbody a:has-text('{CUSTOMER}')")
    other = second_page(browser, address)
    other.wait_for_selector("text=latest first")
    with everturn.open(url) as store:  # another process would do the same
        store.save_context(CUSTOMER, "Are you there?", "Always.")
        store.save_context("brand-new", "Hello", "Hi!")
    page.wait_for_selector(".conversation >> text=Always.")
    page.wait_for_selector("svg text:has-text('Are you there?')")
    other.wait_for_selector("tbody >> text=brand-new")
    other.context.close()


def test_what_changes_before_a_page_listens_is_seen_too(page: Any, serve: Any, url: str) -> None:
    def change_first(route: Any) -> None:
        with everturn.open(url) as store:
            store.save_context("brand-new", "Hello", "Hi!")
        route.continue_()

    page.route("**/live?*", change_first)
    page.goto(serve())
    page.wait_for_selector("tbody >> text=brand-new")


def test_hostile_content_is_text(page: Any, serve: Any, url: str) -> None:
    hostile = "<script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">\u202eevil"
    with everturn.open(url) as store:
        store.add_messages("hostile", [ChatMessage("user", hostile), ChatMessage("<b>", "x" * 5_000_000)])
        store.save_snapshot("hostile", hostile[:60])
    page.goto(serve())
    page.click("tbody a:has-text('hostile')")
    page.wait_for_selector("#e1")
    assert page.inner_text("#e1 .said").startswith("<script>document.title='hacked'</script><img src=x")
    assert page.title() == "hostile · everturn"
    assert page.locator(".conversation img, .conversation script, .conversation b").count() == 0
    assert page.locator(".unseen:has-text('U+202E')").count() >= 1


def test_scrolling_up_brings_what_was_said_before(page: Any, serve: Any, url: str) -> None:
    with everturn.open(url) as store:
        for number in range(200):
            store.save_context("long", f"question {number}", f"answer {number}")
    page.goto(serve())
    page.click("tbody a:has-text('long')")
    page.wait_for_selector("text=answer 199")
    seen = page.locator(".entry").count()
    assert seen < 250
    for _ in range(8):
        if page.locator("#e1").count():
            break
        page.eval_on_selector("#conversation", "box => { box.scrollTop = 0 }")
        page.wait_for_function("before => document.querySelectorAll('.entry').length > before", arg=seen)
        seen = page.locator(".entry").count()
    assert page.locator("#e1").count() == 1
    seqs = page.eval_on_selector_all(".entry", "all => all.map(one => Number(one.dataset.seq))")
    assert seqs == list(range(1, 401))


# The entry at the upper edge of the conversation.
IN_SIGHT = """() => {
  const box = document.getElementById("conversation"), top = box.getBoundingClientRect().top;
  return [...box.querySelectorAll(".entry")].find((entry) => entry.getBoundingClientRect().bottom > top + 1).id;
}"""
AT_END = """() => {
  const box = document.getElementById("conversation");
  return box.scrollHeight - box.scrollTop - box.clientHeight < 40;
}"""
TRAPPED = """() => {
  const box = document.getElementById("conversation");
  return box.scrollHeight > box.clientHeight + 1;
}"""


def test_a_live_update_keeps_the_readers_place(page: Any, serve: Any, url: str) -> None:
    with everturn.open(url) as store:
        for number in range(150):
            call = {"id": f"c{number}", "function": {"name": "track", "arguments": '{"order": 1234}'}}
            store.add_messages("long", [ChatMessage("assistant", f"step {number}", tool_calls=[call])])
        page.goto(serve())
        page.goto(page.url.split("/?")[0].rstrip("/") + "/session?id=long")
        page.wait_for_selector("#conversation .entry")
        page.evaluate("() => { document.getElementById('conversation').scrollTop = 700; }")
        page.evaluate("() => { document.querySelector('#conversation details').open = true; }")
        opened = page.locator("#conversation details[open]").count()
        before = page.evaluate(IN_SIGHT)
        store.add_messages("long", [ChatMessage("user", "the newest of all")])
        page.locator("#conversation").get_by_text("the newest of all").wait_for(state="attached")
        assert page.evaluate(IN_SIGHT) == before
        assert page.locator("#conversation details[open]").count() == opened
        page.evaluate("() => { document.getElementById('conversation').scrollTop = 10 ** 9; }")
        store.add_messages("long", [ChatMessage("user", "newer still")])
        page.locator("#conversation").get_by_text("newer still").wait_for(state="attached")
        page.wait_for_function(AT_END)


def test_what_a_rollback_took_leaves_a_page_that_is_open(page: Any, serve: Any, url: str) -> None:
    with everturn.open(url) as store:
        store.save_context("short", "first question", "first answer")
        snapshot = store.save_snapshot("short")
        store.save_context("short", "regretted question", "regretted answer")
        page.goto(serve())
        page.goto(page.url.split("/?")[0].rstrip("/") + "/session?id=short")
        page.locator("#conversation").get_by_text("regretted answer").wait_for()
        store.rollback_to_snapshot("short", snapshot)
        page.locator("#conversation").get_by_text("regretted answer").wait_for(state="detached")
        assert page.locator("#conversation").get_by_text("first answer").count() == 1


def test_on_a_narrow_screen_the_page_scrolls_and_no_box_in_it(browser: Any, serve: Any, url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("long", [ChatMessage("user", f"line {number}") for number in range(60)])
    window = browser.new_context(viewport={"width": 380, "height": 700})
    try:
        narrow = window.new_page()
        narrow.goto(serve())
        narrow.goto(narrow.url.split("/?")[0].rstrip("/") + "/session?id=long")
        narrow.wait_for_selector("#conversation .entry")
        assert not narrow.evaluate(TRAPPED)
    finally:
        window.close()


def test_keys_are_enough(page: Any, serve: Any) -> None:
    def arrived(selector: str) -> None:
        page.wait_for_selector(selector)
        page.wait_for_load_state()  # until the script listens: a page can be seen before that

    page.goto(serve())
    page.keyboard.press("/")
    page.keyboard.type("customer")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=customer**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    arrived("h1:has-text('customer-42')")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    arrived("text=As it was at")
    page.keyboard.press("n")
    arrived("text=Change this session")
    page.keyboard.press("g")
    page.wait_for_selector("h1:has-text('Sessions')")


def test_read_only_shows_no_way_to_change(page: Any, serve: Any) -> None:
    page.goto(serve("--read-only"))
    page.click(f"tbody a:has-text('{CUSTOMER}')")
    page.wait_for_selector(".mode:has-text('read-only')")
    assert page.locator("form[method=post]").count() == 0
    assert page.locator("text=roll back").count() == 0


def test_a_wrong_token_and_none_at_all(browser: Any, serve: Any) -> None:
    address = serve()
    window = browser.new_context()
    page = window.new_page()
    for wrong in (address[:-3] + "xyz", address.partition("?")[0]):
        answer = page.goto(wrong)
        assert answer.status == 401
        assert CUSTOMER not in page.content()
    window.close()


# The first two show both schemes and both widths.
LOOKS = [("light", 380), ("dark", 1280), ("dark", 380), ("light", 1280)]


@pytest.mark.parametrize(("scheme", "width"), first(2, LOOKS))
def test_it_fits_and_can_be_read_by_all(browser: Any, serve: Any, tmp_path: Path, scheme: str, width: int) -> None:
    """Nothing sticks out at 380 px, and axe finds nothing to object to."""
    axe = Path(axe_core_python.__file__).with_name("axe.min.js").read_text()
    window = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
    page = window.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(serve())
    base = page.url.rstrip("/")
    for path in (
        "/",
        f"/session?id={CUSTOMER}",
        f"/compare?id={CUSTOMER}&a=3",
        "/search?text=hello",
        f"/erase?id={CUSTOMER}",
    ):
        page.goto(base + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(run => run.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
        assert found == [], path
    window.close()
