"""Redis and Valkey: the backend of the schemes `redis`, `rediss`, `redis+cluster` and `redis+sentinel`.

    __init__.py       opens a backend: by URL and options, or over a client that is given to us
    backend.py        RedisBackend: every operation, written once for blocking and asynchronous stores
    changes.py        a change to the arguments of its script, and the script's answer to an outcome
    effects.py        leases and effects: arguments of their scripts, and answers
    scripts.py        which script carries out a change; loads lua/
    lua/              the scripts: every change is one of them
    session_state.py  meta, state and path of a session; reads.py its entries
    listing.py        pages of sessions, and text search; verify.py checks all that is stored
    fork_session.py   forks; staged_rows.py writes the rows of a copy before it is visible
    transfer.py       sessions in and out, for copies and exports
    maintenance.py    compact and erase
    stored_form.py    stored texts to values and back; keys.py names of keys
    client.py         sends to the right node; topology.py knows the nodes; url.py reads URLs
    transport/        connections, commands and replies
    errors.py         errors of Redis as ours
    open_checks.py    settings that may lose turns; doctor.py asks for more

redis-py is imported when a store is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from everturn.backends._shared.options import namespace, switch, whole_number
from everturn.backends._shared.read_only import refuse_changes
from everturn.backends._shared.server_warnings import say
from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.topology import Topology
    from everturn.backends.redis.transport.blocking_pool import Transport
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
    "read_only": switch("read_only"),
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
    """Import redis-py and hiredis, and our modules that need them."""
    import hiredis  # noqa: F401 - imported is all it takes
    import redis.crc  # noqa: F401

    from everturn.backends.redis import backend, topology  # noqa: F401
    from everturn.backends.redis.transport import async_pool  # noqa: F401


def open(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:  # noqa: A001 - the protocol's name
    """Connect to the servers a URL names. Raises InvalidInput, MemoryStoreBackendError.

    Warns of settings under which turns can be lost, unless told `warnings=off`.
    """
    from everturn.backend import drive
    from everturn.backends.redis.url import parse

    backend = _backend(parse(url), options, blocking=True)
    drive(_check_or_close(backend, options, deadline))
    return backend


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """Connect as `open` does, for an event loop."""
    from everturn.backends.redis.url import parse

    backend = _backend(parse(url), options, blocking=False)
    await _check_or_close(backend, options, deadline)
    return backend


def _backend(address: Address, options: Mapping[str, Any], *, blocking: bool) -> RedisBackend:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.client import Sender
    from everturn.backends.redis.topology import ClusterTopology, SentinelTopology, SingleServer

    transport = _transport(address, options, blocking=blocking)
    to_sentinels: tuple[Transport, ...] = ()
    topology: Topology
    if address.kind == "cluster":
        topology = ClusterTopology(address.nodes, transport)
    elif address.kind == "sentinel":
        to_sentinels = (_transport(address, options, blocking=blocking, sentinel=True),)
        topology = SentinelTopology(address.nodes, address.service, to_sentinels[0])
    else:
        topology = SingleServer(address.nodes[0])
    sender = Sender(transport, topology, options.get("wait_replicas", 0))
    backend = RedisBackend(sender, options.get("namespace", ""), to_sentinels)
    return refuse_changes(backend, "the store on Redis") if options.get("read_only") else backend


def _transport(address: Address, options: Mapping[str, Any], *, blocking: bool, sentinel: bool = False) -> Transport:
    """Make a transport with connections of our own, to the servers or to the sentinels."""
    from everturn.backends.redis.transport.async_pool import AsyncPool, AsyncTransport
    from everturn.backends.redis.transport.blocking_pool import BlockingPool, BlockingTransport
    from everturn.backends.redis.url import login_of

    login, size = login_of(address, options, sentinel=sentinel), options.get("max_connections", CONNECTIONS)
    if blocking:
        return BlockingTransport(lambda node: BlockingPool(node, login, size))
    return AsyncTransport(lambda node: AsyncPool(node, login, size))


async def _check_or_close(backend: RedisBackend, options: Mapping[str, Any], deadline: float) -> None:
    """Check the servers. Closes the backend if they do not answer."""
    try:
        await _check_servers(backend, options, deadline)
    except BaseException:
        await backend.close()
        raise


async def _check_servers(backend: RedisBackend, options: Mapping[str, Any], deadline: float) -> None:
    """Ask the servers for their settings, and warn of those that may lose turns. Raises if no server answers."""
    found = await backend.findings(deadline)
    if options.get("warnings", True):
        say(found, "redis")


# --- clients that are given to us ------------------------------------------------------------------------------------


def adopts(client: object) -> Literal["blocking", "async"] | None:
    """Say whether this is a client of redis-py, valkey-py or fakeredis, and of which kind. Imports none of them."""
    modules = [kind.__module__ for kind in type(client).__mro__]
    if not any(module.partition(".")[0] in DRIVERS for module in modules):
        return None
    return "async" if any(".asyncio" in module or "aioredis" in module for module in modules) else "blocking"


def adopt(client: Any, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """Make a backend that uses the connections of a client. The client stays open when the store is closed.

    Of a cluster's client, only address and credentials are used: the store then has connections of its own. The servers
    of an asynchronous client are checked at the first call of the store.
    """
    from everturn.backend import drive
    from everturn.backends.redis.topology import CheckedFirst

    blocking = adopts(client) == "blocking"
    if hasattr(client, "connection_pool"):
        backend = _over(client.connection_pool, options, blocking=blocking)
    else:
        backend = _backend(*_cluster_of(client, options), blocking=blocking)
    if blocking:
        drive(_check_or_close(backend, options, deadline))
    else:
        sender = backend.sender
        sender.topology = CheckedFirst(sender.topology, lambda deadline: _check_servers(backend, options, deadline))
    return backend


def _over(pool: Any, options: Mapping[str, Any], *, blocking: bool) -> RedisBackend:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.client import Sender
    from everturn.backends.redis.topology import SingleServer
    from everturn.backends.redis.transport.async_pool import AsyncClientPool, AsyncTransport
    from everturn.backends.redis.transport.blocking_pool import BlockingTransport, ClientPool

    transport: Transport
    if blocking:
        transport = BlockingTransport(lambda _: ClientPool(pool))
    else:
        transport = AsyncTransport(lambda _: AsyncClientPool(pool))
    sender = Sender(transport, SingleServer(("", 0)), options.get("wait_replicas", 0))
    backend = RedisBackend(sender, options.get("namespace", ""))
    return refuse_changes(backend, "the store on Redis") if options.get("read_only") else backend


def _cluster_of(client: Any, options: Mapping[str, Any]) -> tuple[Address, dict[str, Any]]:
    """Return the address and the options that a cluster's client connects with."""
    from everturn.backends.redis.url import Address

    manager = client.nodes_manager
    given: Mapping[str, Any] = getattr(manager, "connection_kwargs", {})
    nodes: tuple[Node, ...] = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
    secure = {name: value for name, value in given.items() if name.startswith("ssl") and value is not None}
    return Address("cluster", nodes, given.get("username"), given.get("password")), dict(options) | secure
