"""URLs and options as values. Opens nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from everturn.backends.redis.transport.login import Login
from everturn.core.masking import ESCAPES
from everturn.errors import InvalidInput

Node = tuple[str, int]  # host and port

PORT, SENTINEL_PORT = 6379, 26379


class Address(msgspec.Struct, frozen=True):
    """The servers that a URL names: `kind` is single, cluster or sentinel; `nodes` are servers or sentinels."""

    kind: str
    nodes: tuple[Node, ...]
    username: str | None = None
    password: str | None = None
    db: int = 0
    service: str = ""
    tls: bool = False

    def __repr__(self) -> str:
        return f"Address({self.kind}, {self.nodes}, db={self.db})"  # debuggers and crash reports show it


def parse(url: str) -> Address:
    """Read a URL: `redis://user:password@host:port/db`, `redis+cluster://host:port,host:port`,
    `redis+sentinel://host:port,host:port/service/db`. Raises InvalidInput."""
    scheme, _, rest = url.partition("://")
    kind = {"redis": "single", "rediss": "single", "redis+cluster": "cluster", "redis+sentinel": "sentinel"}[scheme]
    place, _, path = rest.partition("/")
    login, _, hosts = place.rpartition("@")
    username, colon, password = login.partition(":")
    nodes = tuple(_node(host, SENTINEL_PORT if kind == "sentinel" else PORT) for host in hosts.split(","))
    steps = [unquote(step) for step in path.split("/") if step]
    service = ""
    if kind == "sentinel":
        if not steps:
            raise InvalidInput("redis+sentinel://host:port,.../service needs the name of the service", path="url")
        service = steps.pop(0)
    if kind == "single" and len(nodes) > 1:
        raise InvalidInput("names several hosts; use redis+cluster:// or redis+sentinel://", path="url")
    if len(steps) > (kind != "cluster") or (steps and not (steps[0].isdecimal() and len(steps[0]) < 10)):
        raise _unclear("a path that is not the number of a database (a cluster has none)")
    return Address(
        kind,
        nodes,
        unquote(username) or None,
        unquote(password) if colon else None,
        int(steps[0]) if steps else 0,
        service,
        scheme == "rediss",
    )


def _node(text: str, default: int) -> Node:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, ""
    if port and not (port.isdecimal() and len(port) < 10):
        raise _unclear("a port that is not a number")
    return host.strip("[]") or "localhost", int(port) if port else default


def _unclear(what: str) -> InvalidInput:
    """Make the error for a part of a URL, without quoting it: it may be a part of a password that was not escaped."""
    return InvalidInput(f"has {what}; {ESCAPES}", path="url")


def login_of(address: Address, options: Mapping[str, Any], *, sentinel: bool = False) -> Login:
    """Return how to log in to the servers, or to the sentinels."""
    tls = None
    if is_secure(address, options):
        tls = {name.removeprefix("ssl_"): value for name, value in options.items() if name.startswith("ssl_")}
    if sentinel:
        return Login(options.get("sentinel_username"), options.get("sentinel_password"), 0, tls)
    return Login(address.username, address.password, address.db, tls)


def is_secure(address: Address, options: Mapping[str, Any]) -> bool:
    return address.tls or any(name.startswith("ssl_") for name in options) or bool(options.get("ssl"))
