"""Access control: the token, the cookie, Host and Origin, the size of a request, the headers of a response.

The page is for one person on this machine. It is protected against other sites in the same browser, and against host
names that resolve to 127.0.0.1. Knows no store.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everturn.web.links import ROOT

LARGEST_BODY = 64 * 1024
LONGEST_QUERY = 8 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class AccessControl:
    """ASGI middleware that lets a request through only with the cookie, which the token is exchanged for.

    A browser sends the cookies of 127.0.0.1 to the servers on all its ports. So the pages are below a path that nobody
    can guess, and the cookie is for that path: no other server gets it, and none overwrites it.
    """

    def __init__(self, app: ASGIApp, *, token: str, hosts: Iterable[str], root: str = "") -> None:
        self._app = app
        self._root = root  # "" or "/" and a secret
        self._name = f"everturn-{secrets.token_hex(4)}"
        self._token = token
        self._hosts = frozenset(hosts)  # with the port, as a browser writes them
        # Not the token: a URL stays in histories and logs, and is worth nothing once the server has ended.
        self._cookie = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            ROOT.set(self._root)
            answer = self._refusal(scope) or self._admission(scope)
            if answer is not None:
                await answer(scope, receive, _with_headers(send))
            else:
                await self._app({**scope, "root_path": self._root}, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """The response to a request that no page of ours sends; None for others."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return _refuse(421, "Use the address that everturn serve printed: this host name is not allowed.")
        if not scope["path"].startswith(f"{self._root}/"):
            return _refuse(401, "Open the whole address that everturn serve printed.")
        if len(scope["query_string"]) > LONGEST_QUERY:
            return _refuse(414, "The address is too long.")
        if scope["method"] not in {"GET", "HEAD"}:
            if scope["method"] != "POST":
                return _refuse(405, "Only GET and POST are allowed.")
            length = headers.get("content-length", "")
            if not length.isdecimal() or len(length) > len(str(LARGEST_BODY)) or int(length) > LARGEST_BODY:
                return _refuse(413, "The request is too large.")
            if not _is_ours(headers, f"http://{host}"):
                return _refuse(403, "A change must come from a page of the inspector.")
        elif headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-dest") != "document":
            return _refuse(403, "Another site may not read this page.")
        return None

    def _admission(self, scope: Scope) -> Response | None:
        """Exchange the token for a cookie; None for a request that has it."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = dict(query).get("token")
        if token is not None and scope["method"] == "GET":
            if not secrets.compare_digest(token.encode(), self._token.encode()):
                return _refuse(401, "Wrong token: copy the whole address that everturn serve printed.")
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = scope["path"] if not scope["path"].startswith("//") else f"{self._root}/"
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._name, self._cookie, httponly=True, samesite="strict", path=self._root or "/")
            return answer
        if secrets.compare_digest(_cookie_in(scope, self._name).encode(), self._cookie.encode()):
            return None
        return _refuse(401, "Open the address that everturn serve printed: it holds the token.")


def _is_ours(headers: Headers, origin: str) -> bool:
    """Whether a form was sent by a page of this origin."""
    if headers.get("origin", "null") != "null":
        return headers["origin"] == origin
    # A page without a referrer sends no origin, either; then Sec-Fetch-Site counts, which no page can forge.
    return headers.get("sec-fetch-site") == "same-origin"


def _cookie_in(scope: Scope, name: str) -> str:
    try:
        cookies = SimpleCookie(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""


def _refuse(code: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", code, {"Connection": "close"})  # do not keep a connection that has no cookie


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sent


def _bounded(receive: Receive) -> Receive:
    """Receive a body up to the largest size, whatever Content-Length said."""
    left = LARGEST_BODY

    async def received() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            return {"type": "http.disconnect"}
        return message

    return received
