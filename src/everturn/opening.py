"""Opens stores: a URL and options to an engine's backend, by way of the entry-point group `everturn.backends`.

Of an engine it knows the scheme and nothing else; which there are beside ours is decided by what is installed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from errno import EMFILE, ENFILE
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from everturn.aio import AsyncMemoryStore
from everturn.backend import Opener
from everturn.engine import Settings
from everturn.errors import InvalidInput, MemoryStoreBackendError, Unsupported
from everturn.masking import ESCAPES, masked_url
from everturn.store import MemoryStore

GROUP = "everturn.backends"
OURS = {
    "sqlite": "everturn.backends.sqlite",
    "redis": "everturn.backends.redis",
    "rediss": "everturn.backends.redis",
    "redis+cluster": "everturn.backends.redis",
    "redis+sentinel": "everturn.backends.redis",
    "postgresql": "everturn.backends.postgres",
    "postgres": "everturn.backends.postgres",
}
"""As pyproject.toml registers them, and nobody else's: to look through all that is installed takes a process 50 ms."""
LONGEST = 10**11  # seconds: three thousand years


def open(url: str, **options: Any) -> MemoryStore:  # noqa: A001 - everturn.open is the public name
    """Open the store that a URL names: `sqlite:///memory.db`, `sqlite://` (in memory), ...

    Options, as keywords or in the URL's query: `ttl` (seconds; of new sessions), `timeout` (seconds a call may take;
    5), `max_message_bytes` (16 MiB), and the engine's own, such as `namespace`. Raises InvalidInput for what it does
    not know, Unsupported if an engine is not installed, SchemaTooNew, MemoryStoreBackendError if it cannot be had.
    """
    engine, address, settings, own = _resolve(url, options)
    with _drivers(address.partition(":")[0]):
        return MemoryStore(engine.open(address, own, time.monotonic() + settings.timeout), settings)


async def open_async(url: str, **options: Any) -> AsyncMemoryStore:
    """The same, as a store whose methods are awaited. It belongs to the running event loop."""
    engine, address, settings, own = _resolve(url, options)
    with _drivers(address.partition(":")[0]):
        backend = await engine.open_async(address, own, time.monotonic() + settings.timeout)
    return AsyncMemoryStore(backend, settings)


def from_client(client: Any, **options: Any) -> Any:
    """A store over a client you have: redis-py, valkey-py or fakeredis, sync or async; psycopg, a pool or connection.

    A MemoryStore over a blocking client; an AsyncMemoryStore over an asynchronous one, within its event loop. The
    client stays yours: closing the store leaves it open. Options as for `open`. Raises InvalidInput for what no engine
    takes.
    """
    for loader in _every():
        try:
            engine: Any = _loaded("an installed engine", loader)
        except ImportError:
            continue  # its driver is not installed, so this is not its client
        adopts = getattr(engine, "adopts", None)
        face = adopts(client) if adopts else None
        if face is not None:
            settings, own = _read_options(engine, options)
            backend = engine.adopt(client, own, time.monotonic() + settings.timeout)
            return (AsyncMemoryStore if face == "async" else MemoryStore)(backend, settings)
    raise InvalidInput(
        f"a {type(client).__module__}.{type(client).__qualname__} is no client that an installed engine takes; "
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
            f"{shown!r} does not begin with a scheme there is an engine for: "
            + ", ".join(f"{name}://" for name in sorted(known))
            + ("" if "://" in url else f"; for a file, write sqlite:///{shown.removeprefix('sqlite:')}"),
            path="url",
        )
    engine = _engine_of(scheme, known[scheme])
    address, _, query = url.partition("?")
    if "@" in query:
        _refuse_unescaped(engine, query)
    settings, own = _read_options(engine, dict(parse_qsl(query, keep_blank_values=True)) | dict(options))
    return engine, address, settings, own


def _refuse_unescaped(engine: Opener, query: str) -> None:
    """Raise InvalidInput if an @ behind a ? is not in an option's value: then the ? is one of a password.

    Without a word of it: what would be called an unknown option is a part of the password.
    """
    if any(name not in _COMMON and name not in engine.OPTIONS for name, _ in parse_qsl(query, keep_blank_values=True)):
        raise InvalidInput(f"has an @ behind a ?; {ESCAPES}", path="url")


_Loader: TypeAlias = Callable[[], Any]
_ours: dict[str, _Loader] = {scheme: partial(import_module, name) for scheme, name in OURS.items()}
_known_installed: dict[str, _Loader] = {}


def _installed() -> dict[str, _Loader]:
    """All engines that are installed, ours among them."""
    from importlib.metadata import MetadataPathFinder, entry_points

    if not _known_installed:
        try:
            _known_installed.update((found.name, found.load) for found in entry_points(group=GROUP))
        except OSError as exc:
            raise _unread("the list of installed engines", exc) from exc
        if not _known_installed:  # ours are always there: so they could not be read, and the reader remembers none
            MetadataPathFinder().invalidate_caches()
            raise _unread("the list of installed engines", "it came out empty")
    return _known_installed


def _every() -> Iterator[_Loader]:
    """Ours, then the others, which are only looked for by who gets so far."""
    yield from _ours.values()
    yield from (loader for scheme, loader in _installed().items() if scheme not in _ours)


def _unread(what: str, why: object) -> MemoryStoreBackendError:
    return MemoryStoreBackendError(
        f"{what} could not be read ({why}); are there open files left?", outcome="not_written"
    )


def _engine_of(scheme: str, loader: _Loader) -> Opener:
    what = f"the engine of {scheme}://"
    with _drivers(scheme):
        engine: Opener = _loaded(what, loader)
        load_driver = getattr(engine, "load_driver", None)
        if load_driver:  # now, since no time-out has begun: a first import may take longer than one
            _loaded(what, load_driver)
    return engine


def _loaded(what: str, loader: _Loader) -> Any:
    try:
        return loader()
    except OSError as exc:
        if exc.errno not in (EMFILE, ENFILE):
            raise
        raise _unread(what, exc) from exc


@contextmanager
def _drivers(scheme: str) -> Iterator[None]:
    """Say which extra to install where an engine's driver is missing."""
    try:
        yield
    except ImportError as exc:
        extra = next((name for name in ("redis", "postgres") if scheme.startswith(name)), scheme)
        raise Unsupported(f"{scheme}:// needs {exc.name}: pip install 'everturn[{extra}]'") from exc


# --- options ---------------------------------------------------------------------------------------------------------


def _positive(path: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]  # whatever it is, float says whether it is a number
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not 0 < number <= LONGEST:
            raise InvalidInput(f"is a number above 0 and up to {LONGEST:,}, not {value!r}", path=path)
        return number

    return read


def _ttl(value: object) -> float | None:
    return None if value is None else _positive("ttl")(value)


def _bytes(value: object) -> int:
    return math.ceil(_positive("max_message_bytes")(value))


_COMMON: Mapping[str, Callable[[Any], Any]] = {
    "ttl": _ttl,
    "timeout": _positive("timeout"),
    "max_message_bytes": _bytes,
}


def _read_options(engine: Opener, options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The options that every store has, and the engine's own, each read from what was given."""
    known = dict(_COMMON) | dict(engine.OPTIONS)
    for name in options:
        if name not in known:
            raise InvalidInput(f"is not an option here; these are: {', '.join(sorted(known))}", path=name)
    read = {name: known[name](value) for name, value in options.items()}
    settings = Settings(**{name: value for name, value in read.items() if name in _COMMON})
    return settings, {name: value for name, value in read.items() if name not in _COMMON}
