"""Access to the inspector: requests that are refused, and the headers of every response."""

from __future__ import annotations

import re

import pytest

import everturn
from tests.conversation import CUSTOMER
from tests.web.conftest import HOST, TOKEN, Client

PAGES = ["/", "/session?id=customer-42", "/session/entries?id=customer-42&before=5", "/search", "/static/inspector.js"]
PAGES += ["/raw?id=customer-42&seq=1", "/compare?id=customer-42&a=1"]
GUARDED = [*PAGES, "/live?id=customer-42", "/rollback?id=customer-42", "/erase?id=customer-42"]


def changes(url: str) -> int:
    with everturn.open(url) as store:
        return store.info(CUSTOMER).version


@pytest.mark.parametrize("page", GUARDED)
def test_without_the_cookie_there_is_nothing_to_see(client: Client, page: str) -> None:
    answer = client(admitted=False).get(page)
    assert answer.status_code == 401
    assert "1234" not in answer.text


def test_the_token_is_exchanged_for_a_strict_cookie_and_leaves_the_address(client: Client) -> None:
    answer = client(admitted=False).get("/session", params={"id": "a b&c", "token": TOKEN}, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/session?id=a+b%26c"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in cookie


def test_pages_are_below_a_path_of_their_own_and_so_is_the_cookie(client: Client) -> None:
    made = client(root="/secret", admitted=False)
    for path in ("/", "/session", f"/?token={TOKEN}", f"/secre/?token={TOKEN}", "/secret", "/secretly/", "//secret/"):
        answer = made.get(path, follow_redirects=False)
        assert answer.status_code == 401, path
        assert "set-cookie" not in answer.headers
    answer = made.get(f"/secret/session?id={CUSTOMER}&token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == f"/secret/session?id={CUSTOMER}"
    assert "path=/secret;" in answer.headers["set-cookie"].lower()
    name = answer.headers["set-cookie"].partition("=")[0]
    other = client(root="/other", admitted=False).get(f"/other/?token={TOKEN}", follow_redirects=False)
    assert other.headers["set-cookie"].partition("=")[0] != name


def test_every_link_of_a_page_leads_below_its_path(client: Client) -> None:
    made = client(root="/secret")
    for page in (
        "/",
        f"/session?id={CUSTOMER}",
        "/search?q=order",
        f"/compare?id={CUSTOMER}&a=1",
        f"/erase?id={CUSTOMER}",
    ):
        answer = made.get(f"/secret{page}")
        assert answer.status_code == 200
        links = re.findall(r'(?:href|src|action|data-live|data-part|data-more)="(/[^"]*)"', answer.text)
        assert links
        assert [link for link in links if not link.startswith("/secret/")] == []
        assert 'data-root="/secret"' in answer.text
    assert made.get("/secret/static/inspector.js").status_code == 200
    with_changes = made.get("/secret/session", params={"id": CUSTOMER}).text
    assert 'action="/secret/act/undo"' in with_changes


def test_a_refused_connection_is_closed(client: Client) -> None:
    assert client(admitted=False).get("/").headers["connection"] == "close"


HUGE = "9" * 5000
NUMBERS = [f"/session?id={CUSTOMER}&at=", f"/session?id={CUSTOMER}&changes=", f"/raw?id={CUSTOMER}&seq=", "/reports?n="]
NUMBERS += [f"/session/entries?id={CUSTOMER}&before=", f"/compare?id={CUSTOMER}&a=", f"/compare?id={CUSTOMER}&b="]


@pytest.mark.parametrize("page", NUMBERS)
@pytest.mark.parametrize("number", [HUGE, "1" + "0" * 18, "\u0663" * 5000])
def test_a_number_that_is_too_long_is_the_askers_mistake(client: Client, page: str, number: str) -> None:
    answer = client().get(page + number)
    assert answer.status_code in (400, 414)  # escaped, some are too long for an address
    assert "digits" in answer.text or answer.status_code == 414


@pytest.mark.parametrize("field", ["version", "messages"])
def test_so_it_is_in_a_form(client: Client, url: str, field: str) -> None:
    form = {"id": CUSTOMER, "life": "x", "version": "1", "messages": "1"} | {field: HUGE}
    assert client().post("/act/trim", data=form, headers={"origin": f"http://{HOST}"}).status_code == 400


def test_so_it_is_for_the_length_of_a_request(client: Client) -> None:
    headers = {"origin": f"http://{HOST}", "content-length": HUGE}
    assert client().post("/act/clear", content=b"", headers=headers).status_code == 413


def test_the_redirect_stays_on_this_host(client: Client) -> None:
    answer = client(admitted=False).get(f"http://{HOST}//evil.example/x?token={TOKEN}", follow_redirects=False)
    assert answer.headers["location"] == "/"


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1], "\u00e9"])
def test_a_wrong_token_is_refused(client: Client, token: str) -> None:
    answer = client(admitted=False).get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "127.0.0.1", "127.0.0.1:80", "[::1]:8642", ""])
def test_a_name_that_merely_leads_here_is_refused(client: Client, host: str) -> None:
    admitted = client()
    assert admitted.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1:8642", "http://127.0.0.1"])
def test_a_change_from_another_site_is_refused(client: Client, url: str, origin: str | None) -> None:
    before = changes(url)
    headers = {} if origin is None else {"origin": origin}
    form = {"id": CUSTOMER, "life": "x", "version": str(before)}
    answer = client().post("/act/clear", data=form, headers=headers)
    assert answer.status_code == 403
    assert changes(url) == before


def test_a_form_of_our_own_page_has_no_origin_but_the_browsers_word(client: Client, url: str) -> None:
    form = {"id": CUSTOMER, "life": "x", "version": "1"}
    for origin in ({"origin": "null"}, {}):
        ours = client().post("/act/clear", data=form, headers=origin | {"sec-fetch-site": "same-origin"})
        assert ours.status_code == 409  # let in, and told that the session is another
        for site in ("same-site", "cross-site", "none"):
            theirs = client().post("/act/clear", data=form, headers=origin | {"sec-fetch-site": site})
            assert theirs.status_code == 403


def test_a_read_for_another_site_is_refused(client: Client) -> None:
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}
    assert client().get("/", headers=headers).status_code == 403


@pytest.mark.parametrize("page", PAGES)
def test_every_answer_forbids_what_a_page_needs_not(client: Client, page: str) -> None:
    for admitted in (True, False):
        headers = client(admitted=admitted).get(page).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_requests_are_bounded(client: Client, url: str) -> None:
    before = changes(url)
    made = client()
    origin = {"origin": f"http://{HOST}"}
    assert made.post("/act/clear", content=b"x" * 100_000, headers=origin).status_code == 413
    assert made.post("/act/clear", content=iter([b"x" * 1000] * 100), headers=origin).status_code == 413
    assert made.get("/", params={"q": "x" * 9000}).status_code == 414
    assert made.request("DELETE", "/").status_code == 405
    assert changes(url) == before


def test_nothing_outside_the_static_files_is_served(client: Client) -> None:
    made = client()
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%2fapp.py"):
        assert made.get(path).status_code == 404


def test_a_read_only_inspector_changes_nothing_whatever_is_sent(client: Client, url: str) -> None:
    before = changes(url)
    made = client(can_change=False)
    with everturn.open(url) as store:
        life = store.info(CUSTOMER).life
    form = {"id": CUSTOMER, "life": life, "version": str(before), "confirm": CUSTOMER, "new": "n", "messages": "0"}
    for verb in ("snapshot", "rollback", "undo", "fork", "trim", "clear", "erase"):
        answer = made.post(f"/act/{verb}", data=form, headers={"origin": f"http://{HOST}"})
        assert answer.status_code == 403
    assert (
        "<form"
        not in made.get("/session", params={"id": CUSTOMER}).text.replace('action="/compare"', "").split("<aside")[0]
    )
    assert "/act/" not in made.get("/session", params={"id": CUSTOMER}).text
    assert "/erase" not in made.get("/session", params={"id": CUSTOMER}).text
    assert made.get("/rollback", params={"id": CUSTOMER, "to": "x"}).status_code == 400
    assert changes(url) == before
