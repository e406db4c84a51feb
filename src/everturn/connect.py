"""Opens stores by URL or client. The scheme of a URL names a backend of the entry-point group `everturn.backends`.

The options of our own backends are keywords here, for editors and type checkers; a test compares them with OPTIONS. Any
installed package can register more backends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from errno import EMFILE, ENFILE
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl

import msgspec

from everturn import events, telemetry
from everturn.backend import Backend, Opener
from everturn.core.masking import ESCAPES, MASK, is_secret, masked_url
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported
from everturn.store.aio import AsyncMemoryStore
from everturn.store.options import COMMON, NOT_GIVEN, Settings, given, read_options
from everturn.store.retries import source_of
from everturn.store.sync import MemoryStore

GROUP = "everturn.backends"
OURS = {
    "sqlite": "everturn.backends.sqlite",
    "redis": "everturn.backends.redis",
    "rediss": "everturn.backends.redis",
    "redis+cluster": "everturn.backends.redis",
    "redis+sentinel": "everturn.backends.redis",
    "postgresql": "everturn.backends.postgres",
    "postgres": "everturn.backends.postgres",
    "dynamodb": "everturn.backends.dynamodb",
}
"""Our backends, as pyproject.toml registers them. Looking through all installed packages would take a process 50 ms."""


def open(  # noqa: A001 - everturn.open is the public name
    url: str,
    *,
    ttl: float | None = NOT_GIVEN,
    timeout: float = NOT_GIVEN,
    max_message_bytes: int = NOT_GIVEN,
    namespace: str = NOT_GIVEN,
    synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"] = NOT_GIVEN,
    page_checksums: bool = NOT_GIVEN,
    file_mode: int | str = NOT_GIVEN,
    read_only: bool = NOT_GIVEN,
    vfs: str | None = NOT_GIVEN,
    warnings: bool = NOT_GIVEN,
    wait_replicas: int = NOT_GIVEN,
    max_connections: int = NOT_GIVEN,
    sentinel_username: str = NOT_GIVEN,
    sentinel_password: str = NOT_GIVEN,
    ssl: bool = NOT_GIVEN,
    ssl_ca_certs: str = NOT_GIVEN,
    ssl_cert_reqs: Literal["none", "optional", "required"] = NOT_GIVEN,
    ssl_certfile: str = NOT_GIVEN,
    ssl_keyfile: str = NOT_GIVEN,
    ssl_check_hostname: bool = NOT_GIVEN,
    schema: str = NOT_GIVEN,
    pool_size: int = NOT_GIVEN,
    region: str = NOT_GIVEN,
    endpoint: str = NOT_GIVEN,
    create: bool = NOT_GIVEN,
    **options: Any,
) -> MemoryStore:
    """Open the store that a URL names. A SQLite file, or the tables of a database, are created if there are none.

    An option may stand in the URL's query instead (`sqlite:///memory.db?ttl=3600`). A keyword goes before it.

    ```python
    with everturn.open("sqlite:///memory.db", ttl=30 * 86400) as store:
        store.add_messages("customer-42", [everturn.ChatMessage("user", "Hi!")])
    ```

    Args:
        url: The backend and the place: `sqlite:///memory.db` (three slashes for a relative path, four for an absolute
            one), `sqlite://` (in memory), `redis://host`, `rediss://`, `redis+cluster://`, `redis+sentinel://`,
            `postgresql://user@host/db`, `dynamodb://table`, or a scheme that an installed package registers.
        ttl: Every backend: seconds after its latest change that a new session lives. None, the default: for ever.
        timeout: Every backend: seconds that a call may take, retries included; 5 by default.
        max_message_bytes: Every backend: the largest entry that is taken; 16 MiB by default.
        namespace: Every backend: keeps the sessions of several applications apart in one database; "" by default.
        synchronous: SQLite: how a change is synced to the disk. "FULL", the default, survives a power loss.
        page_checksums: SQLite: whether a new file has a checksum on every page; on by default.
        file_mode: SQLite: the permissions of a new file; 0o600 by default.
        read_only: Every backend: read, and never write: nothing is created or migrated; off by default.
        vfs: SQLite: the name of a file system of your own, for tests.
        warnings: Redis and PostgreSQL: warn when opening of settings of the server that can lose turns; on by default.
        wait_replicas: Redis: the number of replicas that must have a change before the call returns; 0 by default.
        max_connections: Redis: the most connections to each server; 50 by default. DynamoDB: the most requests at a
            time; 32 by default.
        sentinel_username: Redis: the user at the sentinels, where they have their own.
        sentinel_password: Redis: the password at the sentinels, where they have their own.
        ssl: Redis: use TLS, as `rediss://` does; off by default.
        ssl_ca_certs: Redis: a file with the certificates to trust.
        ssl_cert_reqs: Redis: whether the server's certificate is checked; "required" by default.
        ssl_certfile: Redis: a file with the client's own certificate.
        ssl_keyfile: Redis: a file with the key of that certificate.
        ssl_check_hostname: Redis: whether the certificate must name the server's host; on by default.
        schema: PostgreSQL: the schema that holds the tables; "everturn" by default.
        pool_size: PostgreSQL: the most connections of this store; 10 by default.
        region: DynamoDB: the region of the table; by default that of the environment or of ~/.aws/config.
        endpoint: DynamoDB: the URL of a stand-in, or of a VPC endpoint; AWS's own by default.
        create: DynamoDB: create the table if it is not there; off by default.
        options: PostgreSQL: the parameters of libpq, such as `sslmode`. Of another package's backend: its own options.

    Returns:
        A store that blocks the calling thread. Threads may share it.

    Raises:
        InvalidInput: The URL or an option is not known, or does not belong to this backend. The message lists those
            that do.
        Unsupported: The backend's driver is not installed. The message names the extra to install.
        SchemaTooNew: The data was written by a newer everturn. It was left untouched.
        MemoryStoreBackendError: The backend cannot be reached, or the file cannot be read.
    """
    opener, address, settings, own = _resolve(url, given(locals()))
    with _drivers(address.partition(":")[0]):
        backend = opener.open(address, own, time.monotonic() + settings.timeout)
    return MemoryStore(backend, _told(backend, settings, own))


async def open_async(
    url: str,
    *,
    ttl: float | None = NOT_GIVEN,
    timeout: float = NOT_GIVEN,  # noqa: ASYNC109 - of the calls on the store, too
    max_message_bytes: int = NOT_GIVEN,
    namespace: str = NOT_GIVEN,
    synchronous: Literal["OFF", "NORMAL", "FULL", "EXTRA"] = NOT_GIVEN,
    page_checksums: bool = NOT_GIVEN,
    file_mode: int | str = NOT_GIVEN,
    read_only: bool = NOT_GIVEN,
    vfs: str | None = NOT_GIVEN,
    warnings: bool = NOT_GIVEN,
    wait_replicas: int = NOT_GIVEN,
    max_connections: int = NOT_GIVEN,
    sentinel_username: str = NOT_GIVEN,
    sentinel_password: str = NOT_GIVEN,
    ssl: bool = NOT_GIVEN,
    ssl_ca_certs: str = NOT_GIVEN,
    ssl_cert_reqs: Literal["none", "optional", "required"] = NOT_GIVEN,
    ssl_certfile: str = NOT_GIVEN,
    ssl_keyfile: str = NOT_GIVEN,
    ssl_check_hostname: bool = NOT_GIVEN,
    schema: str = NOT_GIVEN,
    pool_size: int = NOT_GIVEN,
    region: str = NOT_GIVEN,
    endpoint: str = NOT_GIVEN,
    create: bool = NOT_GIVEN,
    **options: Any,
) -> AsyncMemoryStore:
    """Open the store that a URL names, as one whose methods are awaited. It belongs to the running event loop.

    An option may stand in the URL's query instead (`sqlite:///memory.db?ttl=3600`). A keyword goes before it.

    ```python
    async with await everturn.open_async("redis://localhost", wait_replicas=1) as store:
        await store.add_messages("customer-42", [everturn.ChatMessage("user", "Hi!")])
    ```

    Args:
        url: The backend and the place: `sqlite:///memory.db` (three slashes for a relative path, four for an absolute
            one), `sqlite://` (in memory), `redis://host`, `rediss://`, `redis+cluster://`, `redis+sentinel://`,
            `postgresql://user@host/db`, `dynamodb://table`, or a scheme that an installed package registers.
        ttl: Every backend: seconds after its latest change that a new session lives. None, the default: for ever.
        timeout: Every backend: seconds that a call may take, retries included; 5 by default.
        max_message_bytes: Every backend: the largest entry that is taken; 16 MiB by default.
        namespace: Every backend: keeps the sessions of several applications apart in one database; "" by default.
        synchronous: SQLite: how a change is synced to the disk. "FULL", the default, survives a power loss.
        page_checksums: SQLite: whether a new file has a checksum on every page; on by default.
        file_mode: SQLite: the permissions of a new file; 0o600 by default.
        read_only: Every backend: read, and never write: nothing is created or migrated; off by default.
        vfs: SQLite: the name of a file system of your own, for tests.
        warnings: Redis and PostgreSQL: warn when opening of settings of the server that can lose turns; on by default.
        wait_replicas: Redis: the number of replicas that must have a change before the call returns; 0 by default.
        max_connections: Redis: the most connections to each server; 50 by default. DynamoDB: the most requests at a
            time; 32 by default.
        sentinel_username: Redis: the user at the sentinels, where they have their own.
        sentinel_password: Redis: the password at the sentinels, where they have their own.
        ssl: Redis: use TLS, as `rediss://` does; off by default.
        ssl_ca_certs: Redis: a file with the certificates to trust.
        ssl_cert_reqs: Redis: whether the server's certificate is checked; "required" by default.
        ssl_certfile: Redis: a file with the client's own certificate.
        ssl_keyfile: Redis: a file with the key of that certificate.
        ssl_check_hostname: Redis: whether the certificate must name the server's host; on by default.
        schema: PostgreSQL: the schema that holds the tables; "everturn" by default.
        pool_size: PostgreSQL: the most connections of this store; 10 by default.
        region: DynamoDB: the region of the table; by default that of the environment or of ~/.aws/config.
        endpoint: DynamoDB: the URL of a stand-in, or of a VPC endpoint; AWS's own by default.
        create: DynamoDB: create the table if it is not there; off by default.
        options: PostgreSQL: the parameters of libpq, such as `sslmode`. Of another package's backend: its own options.

    Returns:
        A store for this event loop. Its tasks may share it.

    Raises:
        InvalidInput: The URL or an option is not known, or does not belong to this backend. The message lists those
            that do.
        Unsupported: The backend's driver is not installed. The message names the extra to install.
        SchemaTooNew: The data was written by a newer everturn. It was left untouched.
        MemoryStoreBackendError: The backend cannot be reached, or the file cannot be read.
    """
    opener, address, settings, own = _resolve(url, given(locals()))
    with _drivers(address.partition(":")[0]):
        backend = await opener.open_async(address, own, time.monotonic() + settings.timeout)
    return AsyncMemoryStore(backend, _told(backend, settings, own))


def from_client(
    client: Any,
    *,
    ttl: float | None = NOT_GIVEN,
    timeout: float = NOT_GIVEN,
    max_message_bytes: int = NOT_GIVEN,
    namespace: str = NOT_GIVEN,
    warnings: bool = NOT_GIVEN,
    wait_replicas: int = NOT_GIVEN,
    max_connections: int = NOT_GIVEN,
    schema: str = NOT_GIVEN,
    **options: Any,
) -> Any:
    """Make a store over a client that you have. Closing the store leaves the client open.

    ```python
    store: everturn.MemoryStore = everturn.from_client(redis.Redis(), ttl=3600)
    ```

    Args:
        client: A client of redis-py, valkey-py or fakeredis, or a connection or pool of psycopg; blocking or
            asynchronous.
        ttl: Every backend: seconds after its latest change that a new session lives. None, the default: for ever.
        timeout: Every backend: seconds that a call may take, retries included; 5 by default.
        max_message_bytes: Every backend: the largest entry that is taken; 16 MiB by default.
        namespace: Every backend: keeps the sessions of several applications apart in one database; "" by default.
        warnings: Redis and PostgreSQL: warn when opening of settings of the server that can lose turns; on by default.
        wait_replicas: Redis: the number of replicas that must have a change before the call returns; 0 by default.
        max_connections: Redis: the most connections to each server; 50 by default. (Only a cluster's client needs it.)
        schema: PostgreSQL: the schema that holds the tables; "everturn" by default.
        options: Options of another package's backend.

    Returns:
        A MemoryStore over a blocking client; an AsyncMemoryStore over an asynchronous one, within its event loop. A
            type checker does not know which, so annotate the variable.

    Raises:
        InvalidInput: No installed backend takes this client, or an option is not known or belongs to the client.
        MemoryStoreBackendError: The server cannot be reached.
    """
    named = given(locals())
    for loader in _every():
        try:
            opener: Any = _loaded("an installed backend", loader)
        except ImportError:
            continue  # its driver is not installed, so this is not its client
        adopts = getattr(opener, "adopts", None)
        kind = adopts(client) if adopts else None  # None: it is no client of this backend
        if kind is not None:
            settings, own = read_options(opener, named)
            settings = msgspec.structs.replace(settings, place=f"a client of {type(client).__module__}")
            backend = opener.adopt(client, own, time.monotonic() + settings.timeout)
            return (AsyncMemoryStore if kind == "async" else MemoryStore)(backend, _told(backend, settings, own))
    raise InvalidInput(
        f"a {type(client).__module__}.{type(client).__qualname__} is no client that an installed backend takes; "
        "give one of redis-py, valkey-py, fakeredis or psycopg, or use everturn.open",
        path="client",
    )


def _resolve(url: object, options: Mapping[str, Any]) -> tuple[Opener, str, Settings, dict[str, Any]]:
    if not isinstance(url, str):
        raise InvalidInput(f"must be a string, not {type(url).__name__}", path="url")
    scheme, colon, _ = url.partition("://")
    known = _ours if scheme in _ours else {**_installed(), **_ours}
    if not colon or scheme not in known:
        shown = masked_url(url)
        raise InvalidInput(
            f"{shown!r} does not begin with a scheme there is a backend for: "
            + ", ".join(f"{name}://" for name in sorted(known))
            + ("" if "://" in url else f"; for a file, write sqlite:///{shown.removeprefix('sqlite:')}"),
            path="url",
        )
    opener = _opener_of(scheme, known[scheme])
    address, _, query = url.partition("?")
    if "@" in query:
        _refuse_unescaped(opener, query)
    settings, own = read_options(opener, dict(parse_qsl(query, keep_blank_values=True)) | dict(options))
    return opener, address, msgspec.structs.replace(settings, place=masked_url(address)), own


def _told(backend: Backend, settings: Settings, own: Mapping[str, Any]) -> Settings:
    """Tell that a store was opened, with its options. Returns the settings."""
    telemetry.look()  # most applications have set up their SDK by now
    common = {name: getattr(settings, name) for name in COMMON}
    source = source_of(backend, settings)
    is_ours = source.system in events.SYSTEMS  # which of a third party's options are secret is not known
    shown = {name: value if is_ours and not is_secret(name) else MASK for name, value in own.items()}
    options = " ".join(f"{name}={value}" for name, value in (common | shown).items())
    events.tell(events.OPENED, source, options=options)
    return settings


def _refuse_unescaped(opener: Opener, query: str) -> None:
    """Raise InvalidInput if an @ behind a ? is not in an option's value: then the ? belongs to a password.

    The message quotes nothing: the name of the unknown option is a part of the password.
    """
    if any(name not in COMMON and name not in opener.OPTIONS for name, _ in parse_qsl(query, keep_blank_values=True)):
        raise InvalidInput(f"has an @ behind a ?; {ESCAPES}", path="url")


_Loader: TypeAlias = Callable[[], Any]
_ours: dict[str, _Loader] = {scheme: partial(import_module, name) for scheme, name in OURS.items()}
_known_installed: dict[str, _Loader] = {}


def _installed() -> dict[str, _Loader]:
    """Find the backends of all installed packages, ours among them."""
    from importlib.metadata import MetadataPathFinder, entry_points

    if not _known_installed:
        try:
            _known_installed.update((found.name, found.load) for found in entry_points(group=GROUP))
        except OSError as exc:
            raise _unread("the list of installed backends", exc) from exc
        if not _known_installed:  # ours are always there: so they could not be read, and the reader remembers none
            MetadataPathFinder().invalidate_caches()
            raise _unread("the list of installed backends", "it came out empty")
    return _known_installed


def _every() -> Iterator[_Loader]:
    """Yield our backends, then those of other packages, which are only looked for if ours did not do."""
    yield from _ours.values()
    yield from (loader for scheme, loader in _installed().items() if scheme not in _ours)


def _unread(what: str, why: object) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(
        f"{what} could not be read ({why}); are there open files left?", outcome="not_written"
    )


def _opener_of(scheme: str, loader: _Loader) -> Opener:
    what = f"the backend of {scheme}://"
    with _drivers(scheme):
        opener: Opener = _loaded(what, loader)
        load_driver = getattr(opener, "load_driver", None)
        if load_driver:  # before a time-out begins: a first import may take longer than one
            _loaded(what, load_driver)
    return opener


def _loaded(what: str, loader: _Loader) -> Any:
    try:
        return loader()
    except OSError as exc:
        if exc.errno not in (EMFILE, ENFILE):
            raise
        raise _unread(what, exc) from exc


@contextmanager
def _drivers(scheme: str) -> Iterator[None]:
    """Turn a missing driver into Unsupported, which says which extra to install."""
    try:
        yield
    except ImportError as exc:
        extra = next((name for name in ("redis", "postgres") if scheme.startswith(name)), scheme)
        raise Unsupported(f"{scheme}:// needs {exc.name}: pip install 'everturn[{extra}]'") from exc
