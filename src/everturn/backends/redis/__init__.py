"""Redis and Valkey: the backend of the schemes `redis`, `rediss`, `redis+cluster` and `redis+sentinel`.

    __init__.py       URLs, options, clients that are given to us
    backend.py        the protocol's operations, written once for blocking and awaited stores
    changes.py        a change as a call of a script; fork_session.py and maintenance.py the larger ones
    session_state.py  a session's facts and state; reads.py its entries; listing.py and verify.py across sessions
    transfer.py       sessions in and out, for copies; staged_rows.py where they are not yet seen
    stored_form.py    the stored form as values; keys.py the names of keys
    client.py         the right node, scripts, replicas; topology.py which nodes there are; url.py where
    transport/        connections, commands and replies
    errors.py         Redis's errors as ours; open_checks.py settings that lose turns; doctor.py more of them
    scripts.py        loads lua/, the scripts: every change is one of them

redis-py is imported when a store is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from everturn.backends._shared.options import namespace, switch, whole_number
from everturn.backends._shared.server_warnings import say
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.topology import Topology
    from everturn.backends.redis.transport.blocking_pool import Lines
    from everturn.backends.redis.url import Address, Node

DRIVERS = ("redis", "valkey", "fakeredis")


def _file(path: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not Path(value).is_file():
            raise InvalidInput(f"there is no file {value!r}", path=path)
        return value

    return read


def _cert_reqs(value: object) -> str:
    if value not in ("none", "optional", "required"):
        raise InvalidInput(f"is none, optional or required, not {value!r}", path="ssl_cert_reqs")
    return str(value)


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "namespace": namespace,
    "wait_replicas": whole_number("wait_replicas", 0),
    "max_connections": whole_number("max_connections", 1),
    "warnings": switch("warnings"),
    "sentinel_username": str,
    "sentinel_password": str,
    "ssl": switch("ssl"),
    "ssl_ca_certs": _file("ssl_ca_certs"),
    "ssl_cert_reqs": _cert_reqs,
    "ssl_certfile": _file("ssl_certfile"),
    "ssl_keyfile": _file("ssl_keyfile"),
    "ssl_check_hostname": switch("ssl_check_hostname"),
}
CONNECTIONS = 50


def load_driver() -> None:
    """Import redis-py, and what of ours needs it."""
    import redis.connection  # noqa: F401 - imported is all it takes

    from everturn.backends.redis import backend, topology  # noqa: F401
    from everturn.backends.redis.transport import async_pool  # noqa: F401


def open(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:  # noqa: A001 - the protocol's name
    """Connect to the servers a URL names. Raises InvalidInput, MemoryStoreBackendError.

    Warns of settings under which turns can be lost, unless told `warnings=off`.
    """
    from everturn.backend import drive
    from everturn.backends.redis.url import parse

    backend = _backend(parse(url), options, blocking=True)
    drive(_meet(backend, options, deadline))
    return backend


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """The same for an event loop."""
    from everturn.backends.redis.url import parse

    backend = _backend(parse(url), options, blocking=False)
    await _meet(backend, options, deadline)
    return backend


def _backend(address: Address, options: Mapping[str, Any], *, blocking: bool) -> RedisBackend:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.client import Sender
    from everturn.backends.redis.topology import Cluster, Single, Watched

    carrying = _lines(address, options, blocking=blocking)
    asking: tuple[Lines, ...] = ()
    topology: Topology
    if address.kind == "cluster":
        topology = Cluster(address.nodes, carrying)
    elif address.kind == "sentinel":
        asking = (_lines(address, options, blocking=blocking, sentinel=True),)
        topology = Watched(address.nodes, address.service, asking[0])
    else:
        topology = Single(address.nodes[0])
    sender = Sender(carrying, topology, options.get("wait_replicas", 0))
    return RedisBackend(sender, options.get("namespace", ""), asking)


def _lines(address: Address, options: Mapping[str, Any], *, blocking: bool, sentinel: bool = False) -> Lines:
    """Connections of our own, to the servers or to the sentinels."""
    from everturn.backends.redis.transport.async_pool import LoopLines, LoopPool
    from everturn.backends.redis.transport.blocking_pool import BlockingLines, Pool
    from everturn.backends.redis.url import async_maker, blocking_maker, driver_options, is_secure

    secure, size = is_secure(address, options), options.get("max_connections", CONNECTIONS)
    make = (blocking_maker if blocking else async_maker)(secure, driver_options(address, options, sentinel=sentinel))
    if blocking:
        return BlockingLines(lambda node: Pool(node, make, size))
    return LoopLines(lambda node: LoopPool(node, make, size))


async def _meet(backend: RedisBackend, options: Mapping[str, Any], deadline: float) -> None:
    """Make sure that the servers answer, and say what is wrong with them."""
    try:
        await _greet(backend, options, deadline)
    except BaseException:
        await backend.close()
        raise


async def _greet(backend: RedisBackend, options: Mapping[str, Any], deadline: float) -> None:
    found = await backend.findings(deadline)
    if options.get("warnings", True):
        say(found)


# --- clients that are given to us ------------------------------------------------------------------------------------


def adopts(client: object) -> Literal["blocking", "async"] | None:
    """Whether this is a client of redis-py, valkey-py or fakeredis, and of which kind. Imports none of them."""
    modules = [kind.__module__ for kind in type(client).__mro__]
    if not any(module.partition(".")[0] in DRIVERS for module in modules):
        return None
    return "async" if any(".asyncio" in module or "aioredis" in module for module in modules) else "blocking"


def adopt(client: Any, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """A backend over a client, whose connections it borrows and which stays open when the store is closed.

    A cluster's client lends its address and credentials only: the store then has connections of its own. The servers
    of an asynchronous client are asked nothing before the first call of the store.
    """
    from everturn.backend import drive
    from everturn.backends.redis.topology import Unmet

    blocking = adopts(client) == "blocking"
    if hasattr(client, "connection_pool"):
        backend = _over(client.connection_pool, options, blocking=blocking)
    else:
        backend = _backend(*_cluster_of(client, options), blocking=blocking)
    if blocking:
        drive(_meet(backend, options, deadline))
    else:
        sender = backend.sender
        sender.topology = Unmet(sender.topology, lambda deadline: _greet(backend, options, deadline))
    return backend


def _over(pool: Any, options: Mapping[str, Any], *, blocking: bool) -> RedisBackend:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.client import Sender
    from everturn.backends.redis.topology import Single
    from everturn.backends.redis.transport.async_pool import LoopBorrowed, LoopLines
    from everturn.backends.redis.transport.blocking_pool import BlockingLines, Borrowed

    lines: Lines = BlockingLines(lambda _: Borrowed(pool)) if blocking else LoopLines(lambda _: LoopBorrowed(pool))
    return RedisBackend(Sender(lines, Single(("", 0)), options.get("wait_replicas", 0)), options.get("namespace", ""))


def _cluster_of(client: Any, options: Mapping[str, Any]) -> tuple[Address, dict[str, Any]]:
    """Where a cluster's client would connect, and how."""
    from everturn.backends.redis.url import Address

    manager = client.nodes_manager
    given: Mapping[str, Any] = getattr(manager, "connection_kwargs", {})
    nodes: tuple[Node, ...] = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
    secure = {name: value for name, value in given.items() if name.startswith("ssl") and value is not None}
    return Address("cluster", nodes, given.get("username"), given.get("password")), dict(options) | secure
