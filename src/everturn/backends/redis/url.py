"""URLs and options as values, and functions that make redis-py's connections from them. Opens nothing by itself."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from everturn.core.masking import ESCAPES
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.redis.transport.blocking_connection import BlockingConnection

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


def driver_options(address: Address, options: Mapping[str, Any], *, sentinel: bool = False) -> dict[str, Any]:
    """Return the arguments of redis-py's connections. Its retries are off, since they carry no call id; ours do."""
    given: dict[str, Any] = {"protocol": 2, "health_check_interval": 0}
    if is_secure(address, options):
        # Older releases do not check the host's name unless they are told to.
        given["ssl_check_hostname"] = options.get("ssl_cert_reqs") not in ("none", ssl.CERT_NONE)
        given |= {name: value for name, value in options.items() if name.startswith("ssl_")}
    if sentinel:
        own = {"username": options.get("sentinel_username"), "password": options.get("sentinel_password"), "db": 0}
    else:
        own = {"username": address.username, "password": address.password, "db": address.db}
    return given | own


def is_secure(address: Address, options: Mapping[str, Any]) -> bool:
    return address.tls or any(name.startswith("ssl_") for name in options) or bool(options.get("ssl"))


def blocking_maker(secure: bool, given: Mapping[str, Any]) -> Callable[[Node], BlockingConnection]:  # noqa: FBT001 - one caller
    """Return a function that makes a blocking connection to a node."""
    from redis.backoff import NoBackoff
    from redis.connection import Connection, SSLConnection
    from redis.retry import Retry

    from everturn.backends.redis.transport.blocking_connection import BlockingConnection

    kind: Any = SSLConnection if secure else Connection
    named = dict(given) | _driver()
    retry = Retry(NoBackoff(), 0)
    return lambda node: BlockingConnection(kind(host=node[0], port=node[1], retry=retry, **named))


def async_maker(secure: bool, given: Mapping[str, Any]) -> Callable[[Node], Any]:  # noqa: FBT001 - one caller
    """Return a function that makes a connection of redis-py for an event loop. The caller limits how long it takes."""
    from redis.asyncio.connection import Connection, SSLConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    kind: Any = SSLConnection if secure else Connection
    named = dict(given) | _driver()
    return lambda node: kind(host=node[0], port=node[1], retry=Retry(NoBackoff(), 0), **named)


def _driver() -> dict[str, Any]:
    """Return what redis-py tells servers about itself. Without this, it searches all installed packages for its version
    at each connection, and takes any exception there, also one of a signal's handler, for "not installed"."""
    from redis import __version__

    try:
        from redis.driver_info import DriverInfo
    except ImportError:
        return {"lib_version": __version__}
    return {"driver_info": DriverInfo(lib_version=__version__)}
