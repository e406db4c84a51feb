"""Pages and forms of the inspector, without a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import everturn
from everturn import ChatMessage
from everturn.core.masking import masked_url
from everturn.testing.report.files import write_json
from everturn.testing.results import ClauseResult, Event, RunReport, Violation, count_statuses
from everturn.ui.html import named, shown, tag
from tests.conversation import CUSTOMER
from tests.web.conftest import HOST, Client

ORIGIN = {"origin": f"http://{HOST}"}


def form_of(page: str, verb: str) -> dict[str, str]:
    """The hidden fields of the form for a verb."""
    form = re.search(rf'<form method="post" action="/act/{verb}".*?</form>', page) or re.search(
        rf'<form[^>]*data-verb="{verb}".*?</form>', page
    )
    assert form, verb
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form[0])
    return dict(hidden)


def texts(url: str, session_id: str = CUSTOMER) -> list[str]:
    with everturn.open(url) as store:
        return [message.text for message in store.get_history(session_id)]


def test_sessions_are_listed_latest_first_and_by_name(client: Client) -> None:
    made = client()
    latest = re.findall(r'href="/session\?id=([\w-]+)"', made.get("/").text)
    assert latest == ["other-2", "other-1", "other-0", CUSTOMER]
    by_name = re.findall(r'href="/session\?id=([\w-]+)"', made.get("/", params={"order": "name"}).text)
    assert by_name == [CUSTOMER, "other-0", "other-1", "other-2"]
    found = made.get("/", params={"q": "other", "order": "name"}).text
    assert re.findall(r'href="/session\?id=([\w-]+)"', found) == ["other-0", "other-1", "other-2"]


def test_a_backend_that_cannot_order_says_so(client: Client) -> None:
    page = client(can_order=False).get("/").text
    assert "by id" in page
    assert "latest first" not in page


def test_sessions_come_in_pages(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        for number in range(120):
            store.save_context(f"many-{number:03}", "Hello", "Hi!")
    made = client()
    seen: list[str] = []
    address = "/?q=many&order=name"
    while address:
        page = made.get(address).text
        seen += re.findall(r'href="/session\?id=(many-\d+)"', page)
        following = re.search(r'href="([^"]+)">Next page', page)
        address = following[1].replace("&amp;", "&") if following else ""
    assert seen == [f"many-{number:03}" for number in range(120)]


def test_a_conversation_shows_what_was_said_called_and_summed_up(client: Client) -> None:
    page = client().get("/session", params={"id": CUSTOMER}).text
    for told in ("My order is 1234.", "calls track", "in Bern", "stands for #1 to #2", "record · langgraph.checkpoint"):
        assert told in page
    assert "What is your order number?" not in re.sub(r"<aside.*", "", page)
    assert "before the new prompt" in page


def test_any_point_can_be_read(client: Client) -> None:
    made = client()
    astray = made.get("/session", params={"id": CUSTOMER, "at": "3"}).text
    assert "What is your order number?" in re.sub(r"<aside.*", "", astray)
    assert "As it was at" in astray
    assert set(re.findall(r"/act/(\w+)", re.sub(r"<aside.*", "", astray))) == {"fork"}  # the past cannot be changed
    assert "/act/" not in client(can_change=False).get("/session", params={"id": CUSTOMER, "at": "3"}).text


def test_any_point_can_be_rolled_back_to_and_forked_from(client: Client, url: str) -> None:
    made = client()
    before = texts(url)
    past = made.get("/session", params={"id": CUSTOMER, "at": "1"}).text
    made.post("/act/fork", data=form_of(past, "fork") | {"new": "from here"}, headers=ORIGIN)
    address = re.search(r'href="(/rollback[^"]+)"[^>]*>Roll back to here', past)
    assert address
    asked = made.get(address[1].replace("&amp;", "&")).text
    assert "to version 1" in re.sub(r"<[^>]+>", "", asked)
    answer = made.post("/act/rollback", data=form_of(asked, "rollback"), headers=ORIGIN).text
    assert "The session was rolled back." in answer
    assert texts(url) == texts(url, "from here") != before
    asked = made.get(address[1].replace("&amp;", "&")).text
    answer = made.post("/act/rollback", data=form_of(asked, "rollback"), headers=ORIGIN).text
    assert "Nothing changed" in answer
    assert 'data-verb="undo"' not in answer[: answer.index("Change this session")]
    assert "rollback to version 1" in answer


def test_a_branch_that_was_left_is_drawn_greyed(client: Client) -> None:
    page = client().get("/session", params={"id": CUSTOMER}).text
    moments = re.findall(r'<a [^>]*class="(moment[^"]*)" data-version="(\d+)"', page)
    assert {version: "gone" in classes for classes, version in moments} == {
        "1": False,
        "2": False,
        "3": True,
        "4": False,
        "5": False,
    }


def test_earlier_entries_come_a_window_at_a_time(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        for number in range(250):
            store.save_context("long", f"question {number}", f"answer {number}")
    made = client()
    page = made.get("/session", params={"id": "long"}).text
    seqs: list[int] = []
    while True:
        seqs = [int(seq) for seq in re.findall(r'data-seq="(\d+)"', page)] + seqs
        more = re.search(r'data-more="([^"]+)"', page)
        if not more:
            break
        page = made.get(more[1].replace("&amp;", "&")).text
    assert seqs == list(range(1, 501))


def test_two_points_are_compared(client: Client) -> None:
    page = client().get("/compare", params={"id": CUSTOMER, "a": 3}).text
    assert "2 removed, 5 added" in page
    assert "entry user gone" in page
    assert "No difference." in client().get("/compare", params={"id": CUSTOMER, "a": 1, "b": 2}).text


def test_what_took_the_place_of_another_stands_beside_it(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        store.replace("other-0", [ChatMessage("assistant", "Hi there!")], after=1)
    page = client().get("/compare", params={"id": "other-0", "a": 1}).text
    assert 'class="pair"' in page
    assert "<mark>Hi!</mark>" in page


def test_text_is_found_in_one_session_and_in_all(client: Client) -> None:
    made = client()
    assert "3 found" in made.get("/search", params={"text": "in bern", "id": CUSTOMER}).text
    everywhere = made.get("/search", params={"text": "hello"}).text
    assert "3 found" in everywhere
    assert re.findall(r'<h2><a href="/session\?id=(other-\d)"', everywhere)


def test_changes_are_made_by_forms_and_can_be_undone(client: Client, url: str) -> None:
    made = client()
    page = made.get("/session", params={"id": CUSTOMER}).text
    answer = made.post("/act/clear", data=form_of(page, "clear"), headers=ORIGIN)
    assert "The session was cleared." in answer.text
    assert texts(url) == []
    assert made.post("/act/undo", data=form_of(answer.text, "undo"), headers=ORIGIN).status_code == 200
    assert texts(url)[-1] == "in Bern"


def test_a_rollback_first_shows_what_leaves(client: Client, url: str) -> None:
    made = client()
    page = made.get("/session", params={"id": CUSTOMER}).text
    address = re.search(r'href="(/rollback[^"]+)"', page)
    assert address
    asked = made.get(address[1].replace("&amp;", "&")).text
    assert "5 removed, 0 added" in asked
    assert texts(url)[-1] == "in Bern"
    answer = made.post("/act/rollback", data=form_of(asked, "rollback"), headers=ORIGIN)
    assert "The session was rolled back." in answer.text
    assert texts(url)[-1] == "My order is 1234."


def test_a_page_that_has_grown_old_changes_nothing(client: Client, url: str) -> None:
    made = client()
    form = form_of(made.get("/session", params={"id": CUSTOMER}).text, "clear")
    with everturn.open(url) as store:
        store.save_context(CUSTOMER, "meanwhile", "yes")
    answer = made.post("/act/clear", data=form, headers=ORIGIN)
    assert answer.status_code == 409
    assert "The session has changed" in answer.text
    assert texts(url)[-1] == "yes"


def test_snapshot_fork_and_trim(client: Client, url: str) -> None:
    made = client()
    page = made.get("/session", params={"id": CUSTOMER}).text
    page = made.post("/act/snapshot", data=form_of(page, "snapshot") | {"label": "l<b>"}, headers=ORIGIN).text
    assert "l&lt;b&gt;" in page
    answer = made.post("/act/fork", data=form_of(page, "fork") | {"new": "copy & more"}, headers=ORIGIN)
    assert "copy &amp; more" in answer.text
    page = made.get("/session", params={"id": CUSTOMER}).text
    made.post("/act/trim", data=form_of(page, "trim") | {"messages": "1"}, headers=ORIGIN)
    assert texts(url, "copy & more") != texts(url)


def test_erase_wants_the_name(client: Client, url: str) -> None:
    made = client()
    form = form_of(made.get("/erase", params={"id": CUSTOMER}).text, "erase")
    assert made.post("/act/erase", data=form | {"confirm": "customer"}, headers=ORIGIN).status_code == 400
    assert texts(url)
    answer = made.post("/act/erase", data=form | {"confirm": CUSTOMER}, headers=ORIGIN)
    assert "9 entries, 1 snapshot," in answer.text
    assert made.get("/session", params={"id": CUSTOMER}).status_code == 404


@pytest.mark.parametrize(
    "address", ["/session?id=nobody", "/compare?id=nobody&a=1", "/session?id=", "/rollback?id=nobody&to=x"]
)
def test_a_session_that_is_not_there_is_an_error_and_not_empty(client: Client, address: str) -> None:
    answer = client().get(address)
    assert answer.status_code in {400, 404}
    assert 'role="alert"' in answer.text


def test_damage_is_shown_as_an_error_with_the_fix(client: Client, url: str) -> None:
    statement = "UPDATE entries SET body = replace(body, '1234', '1235') WHERE session = 1 AND seq IN (1, 2)"
    code = f"import apsw; apsw.Connection({url.removeprefix('sqlite:///')!r}).execute({statement!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    answer = client().get("/session", params={"id": CUSTOMER})
    assert answer.status_code == 500
    assert "entry 2" in answer.text
    assert "verify" in answer.text


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \x1b[2J \u202eevil \x00 ' \" & \r\n</div>"


def test_hostile_text_is_text_wherever_it_stands(client: Client, url: str) -> None:
    name = "s<script>\u202e'\"&"
    with everturn.open(url) as store:
        store.add_messages(name, [ChatMessage("us<er", HOSTILE, name="<i>"), ChatMessage("tool", HOSTILE * 5)])
        store.save_snapshot(name, "<b>label")
        store.append(name, [everturn.ToolCall("<u>", {"<k>": HOSTILE}, error=HOSTILE)])
        store.append(name, [everturn.Record("<kind>", HOSTILE), everturn.Summary(HOSTILE, [1.0], covers=(1, 2))])
    made = client()
    pages = [
        made.get("/").text,
        made.get("/session", params={"id": name}).text,
        made.get("/session", params={"id": name, "at": "1"}).text,
        made.get("/compare", params={"id": name, "a": "0"}).text,
        made.get("/search", params={"text": "<script>", "id": name}).text,
        made.get("/erase", params={"id": name}).text,
        made.get("/session", params={"id": "<script>nobody"}).text,
    ]
    for page in pages:
        scripts = re.findall(r"<script[^>]*>", page)
        assert scripts == ['<script src="/static/inspector.js" defer>']
        assert not re.search(r"<(img|i|b|u|k|kind|er)\b", page)
        seen = re.sub(r'value="[^"]*"', "", page)  # what a form sends back must be the id itself
        assert not set(seen) & set("\x1b\u202e\x00")
    raw = made.get("/raw", params={"id": name, "seq": 1})
    assert raw.headers["content-type"] == "text/plain; charset=utf-8"
    assert raw.text == HOSTILE


def test_five_megabytes_in_one_line_do_not_fill_the_page(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        store.add_messages("large", [ChatMessage("user", "x" * 5_000_000)])
    made = client()
    page = made.get("/session", params={"id": "large"})
    assert len(page.content) < 100_000
    assert "all 5,000,000 characters" in page.text
    assert len(made.get("/raw", params={"id": "large", "seq": 1}).content) == 5_000_000


def a_report(tmp_path: Path) -> Path:
    events = (
        Event("invoke", "w<1>", 1, 0, "s", "append", ("a",)),
        Event("ok", "w<1>", 1, 10, "s", "append", ("a",)),
        Event("invoke", "r", 1, 20, "s", "read"),
        Event("ok", "r", 1, 30, "s", "read", ()),
    )
    lost = Violation("lost", "w<1> was told that <a> is kept", events, "s", ("a",), 3)
    clauses = (
        ClauseResult(
            "kept", "concurrency", "broken", "1 of 1 lost", (lost,), "Acknowledged is kept.", replay="everturn"
        ),
        ClauseResult("order", "sequential", "holds", promise="In order."),
    )
    report = RunReport(
        contract_version="1",
        target="my<store>",
        seed=7,
        clauses=clauses,
        started="2026-11-15T00:00:00+00:00",
        seconds=1.5,
        versions={},
        counts=count_statuses(clauses),
    )
    write_json(report, tmp_path / "run.json")
    return tmp_path / "run.json"


def test_a_report_of_the_kit_is_drawn(client: Client, tmp_path: Path) -> None:
    page = client(reports=(a_report(tmp_path),)).get("/reports")
    assert page.status_code == 200
    told = ("my&lt;store&gt;", "1 broken, 1 holds", "was told that &lt;a&gt; is kept", "Replay", "<svg", "In order.")
    for one in told:
        assert one in page.text, one
    assert "w<1>" not in page.text


def test_a_file_that_is_no_report_is_an_error(client: Client, tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    made = client(reports=(tmp_path / "no.json", a_report(tmp_path)))
    assert made.get("/reports").text.count("<li>") == 2
    assert made.get("/reports", params={"n": 0}).status_code == 400
    assert made.get("/reports", params={"n": 1}).status_code == 200
    assert made.get("/reports", params={"n": 2}).status_code == 400


def test_a_password_is_never_shown() -> None:
    assert masked_url("postgresql://me:secret@host:5432/db?x=secret") == "postgresql://me:***@host:5432/db"
    assert masked_url("sqlite:///memory.db?ttl=3") == "sqlite:///memory.db"


def test_elements_escape_by_construction() -> None:
    assert (
        tag("p", "<b>", tag("b", "&"), title='"', hidden=True, id=None)
        == '<p title="&quot;" hidden>&lt;b&gt;<b>&amp;</b></p>'
    )
    assert shown("a\u202eb") == 'a<span class="unseen">U+202E</span>b'
    assert named("a\x00b") == "a[U+0000]b"


def test_a_fold_is_on_the_page_and_its_undo_shows_the_turns_again(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        for number in range(4):
            store.save_context("long", f"Question {number}", f"Answer {number}")
        store.fold("long", lambda messages, earlier: "They asked two things.", max_messages=4)
    made = client()
    page = made.get("/session", params={"id": "long"}).text
    conversation = re.sub(r"<aside.*", "", page)
    assert "They asked two things." in conversation
    assert "written by a fold" in conversation
    assert "Question 1" not in conversation
    assert "Question 2" in conversation
    assert re.search(r'data-version="5".*?fold', page)
    answer = made.post("/act/undo", data=form_of(page, "undo"), headers=ORIGIN).text
    assert "Question 1" in re.sub(r"<aside.*", "", answer)
    assert texts(url, "long")[0] == "Question 0"


def test_the_worker_that_holds_the_lease_is_on_the_page(client: Client, url: str) -> None:
    made = client(admitted=True)
    with everturn.open(url) as store, store.lease(CUSTOMER):
        held = store.get_lease(CUSTOMER)
        assert held is not None
        assert f"leased by {held.by} since" in made.get(f"/session?id={CUSTOMER}").text
    assert "leased by" not in made.get(f"/session?id={CUSTOMER}").text


def test_effects_are_on_the_page_and_a_rollback_shows_those_that_stay(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        store.once(CUSTOMER, "refund <1234>", lambda: "r-1")
        store.begin_effect(CUSTOMER, "mail")
        store.fail_effect(CUSTOMER, "mail", "no address")
    made = client(admitted=True)
    page = made.get(f"/session?id={CUSTOMER}").text
    assert "Effects</h2>" in page
    assert "refund &lt;1234&gt;" in page
    assert "effect finished: refund" in page
    asked = made.get(f"/rollback?id={CUSTOMER}&to=1").text
    assert "Effects that stay done" in asked
    assert "refund &lt;1234&gt;" in asked
    assert "mail" not in asked


def test_facts_are_on_the_page_of_a_session_and_in_the_list(client: Client, url: str) -> None:
    with everturn.open(url) as store:
        store.set_facts(CUSTOMER, {"title": "Refund <1234>"})
    made = client()
    for page in (made.get("/").text, made.get(f"/session?id={CUSTOMER}").text):
        assert "title: Refund &lt;1234&gt;" in page
    assert "facts set: title" in made.get(f"/session?id={CUSTOMER}").text
