"""Redis and Valkey: the engine of the schemes `redis`, `rediss`, `redis+cluster` and `redis+sentinel`.

    __init__.py    this: URLs, options, clients that are given to us
    backend.py     the protocol's operations, written once for both faces
    changes.py     a change as a call of a script; forks.py, upkeep.py the larger ones
    looks.py       a session's facts and state; reads.py its entries; listing.py and verify.py across
                   sessions; reach.py what states show
    records.py     the stored form as values; names.py the names of keys
    sending.py     the right node, scripts, replicas; topology.py which nodes there are
    lines.py       connections that block, loop_lines.py those of an event loop; address.py makes them
    faults.py      Redis's errors as ours; checks.py settings that lose turns
    lua/           the scripts: every change is one of them

redis-py is imported when a store is opened.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from everturn.errors import InvalidInput

if TYPE_CHECKING:
    from everturn.backends.redis.address import Address, Node
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.lines import Lines
    from everturn.backends.redis.topology import Topology

DRIVERS = ("redis", "valkey", "fakeredis")


def _namespace(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or len(value.encode(errors="replace")) > 512:
        raise InvalidInput(f"is a string of up to 512 bytes without NUL, not {value!r}", path="namespace")
    return value


def _count(path: str, least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        try:
            number = int(value)  # type: ignore[call-overload]  # whatever it is, int says whether it is a number
        except (TypeError, ValueError):
            number = least - 1
        if number < least:
            raise InvalidInput(f"is a whole number of at least {least}, not {value!r}", path=path)
        return int(number)

    return read


def _switch(path: str) -> Callable[[object], bool]:
    def read(value: object) -> bool:
        if str(value).lower() not in ("true", "false", "1", "0", "on", "off"):
            raise InvalidInput(f"is on or off, not {value!r}", path=path)
        return str(value).lower() in ("true", "1", "on")

    return read


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "namespace": _namespace,
    "wait_replicas": _count("wait_replicas", 0),
    "max_connections": _count("max_connections", 1),
    "warnings": _switch("warnings"),
    "sentinel_username": str,
    "sentinel_password": str,
    "ssl": _switch("ssl"),
    "ssl_ca_certs": str,
    "ssl_cert_reqs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
}
CONNECTIONS = 50


def open(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:  # noqa: A001 - the protocol's name
    """Connect to the servers a URL names. Raises InvalidInput, MemoryStoreBackendError.

    Warns of settings under which turns can be lost, once for each, unless told `warnings=off`.
    """
    from everturn.backend import drive
    from everturn.backends.redis.address import blocking_maker, driver_options, is_secure, parse
    from everturn.backends.redis.lines import BlockingLines, Pool

    address = parse(url)

    def lines(*, sentinel: bool = False) -> Lines:
        given = driver_options(address, options, sentinel=sentinel)
        make = blocking_maker(is_secure(address, options), given)
        return BlockingLines(lambda node: Pool(node, make, options.get("max_connections", CONNECTIONS)))

    backend = _backend(address, lines, options)
    drive(_greet(backend, options, deadline))
    return backend


async def open_async(url: str, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """The same for an event loop."""
    from everturn.backends.redis.address import async_maker, driver_options, is_secure, parse
    from everturn.backends.redis.loop_lines import LoopLines, LoopPool

    address = parse(url)

    def lines(*, sentinel: bool = False) -> Lines:
        given = driver_options(address, options, sentinel=sentinel)
        make = async_maker(is_secure(address, options), given)
        return LoopLines(lambda node: LoopPool(node, make, options.get("max_connections", CONNECTIONS)))

    backend = _backend(address, lines, options)
    await _greet(backend, options, deadline)
    return backend


def _backend(address: Address, lines: Callable[..., Lines], options: Mapping[str, Any]) -> RedisBackend:
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.sending import Sender
    from everturn.backends.redis.topology import Cluster, Single, Watched

    carrying = lines()
    asking: tuple[Lines, ...] = ()
    topology: Topology
    if address.kind == "cluster":
        topology = Cluster(address.nodes, carrying)
    elif address.kind == "sentinel":
        asking = (lines(sentinel=True),)
        topology = Watched(address.nodes, address.service, asking[0])
    else:
        topology = Single(address.nodes[0])
    sender = Sender(carrying, topology, options.get("wait_replicas", 0))
    return RedisBackend(sender, options.get("namespace", ""), asking)


async def _greet(backend: RedisBackend, options: Mapping[str, Any], deadline: float) -> None:
    """Make sure that the servers answer, and say what is wrong with them."""
    from everturn.backends.redis.checks import check

    try:
        findings = await check(backend.sender, deadline)
    except BaseException:
        await backend.close()
        raise
    if options.get("warnings", True):
        for finding in findings:
            warnings.warn(f"{finding.what}. To mend it: {finding.fix}", RuntimeWarning, stacklevel=2)


# --- clients that are given to us ------------------------------------------------------------------------------------


def adopts(client: object) -> Literal["blocking", "async"] | None:
    """Whether this is a client of redis-py, valkey-py or fakeredis, and of which kind. Imports none of them."""
    modules = [kind.__module__ for kind in type(client).__mro__]
    if not any(module.partition(".")[0] in DRIVERS for module in modules):
        return None
    return "async" if any(".asyncio" in module or "aioredis" in module for module in modules) else "blocking"


def adopt(client: Any, options: Mapping[str, Any], deadline: float) -> RedisBackend:
    """A backend over a client, whose connections it borrows and which stays open when the store is closed.

    A cluster's client lends its address and credentials only: the store then has connections of its own.
    """
    from everturn.backend import drive
    from everturn.backends.redis.backend import RedisBackend
    from everturn.backends.redis.lines import BlockingLines, Borrowed
    from everturn.backends.redis.loop_lines import LoopBorrowed, LoopLines
    from everturn.backends.redis.sending import Sender
    from everturn.backends.redis.topology import Single

    blocking = adopts(client) == "blocking"
    if not hasattr(client, "connection_pool"):
        return _adopt_cluster(client, options, blocking=blocking)
    pool = client.connection_pool
    lines: Lines = BlockingLines(lambda _: Borrowed(pool)) if blocking else LoopLines(lambda _: LoopBorrowed(pool))
    sender = Sender(lines, Single(("", 0)), options.get("wait_replicas", 0))
    backend = RedisBackend(sender, options.get("namespace", ""))
    if blocking:
        drive(_greet(backend, options, deadline))
    return backend


def _adopt_cluster(client: Any, options: Mapping[str, Any], *, blocking: bool) -> RedisBackend:
    from everturn.backends.redis.address import Address, async_maker, blocking_maker, driver_options, is_secure
    from everturn.backends.redis.lines import BlockingLines, Pool
    from everturn.backends.redis.loop_lines import LoopLines, LoopPool

    manager = client.nodes_manager
    given: Mapping[str, Any] = getattr(manager, "connection_kwargs", {})
    nodes: tuple[Node, ...] = tuple((node.host, int(node.port)) for node in manager.startup_nodes.values())
    address = Address("cluster", nodes, given.get("username"), given.get("password"))
    options = dict(options) | {name: value for name, value in given.items() if name.startswith("ssl")}
    driver = driver_options(address, options)
    secure, size = is_secure(address, options), options.get("max_connections", CONNECTIONS)

    def lines() -> Lines:
        if blocking:
            make = blocking_maker(secure, driver)
            return BlockingLines(lambda node: Pool(node, make, size))
        make = async_maker(secure, driver)
        return LoopLines(lambda node: LoopPool(node, make, size))

    return _backend(address, lines, options)
