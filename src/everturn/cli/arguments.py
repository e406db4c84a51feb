"""Opens the store of a command, and finds the session, snapshot or version that its arguments name.

A mistyped path never creates a store: a SQLite file must exist, except for commands that fill one.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

import everturn
from everturn.cli.output import clean
from everturn.core.masking import masked, masked_url
from everturn.errors import InvalidInput, SessionNotFound, SnapshotNotFound
from everturn.model import SessionInfo, Snapshot
from everturn.store.sync import MemoryStore

MOST_NAMES = 1000  # session ids that are searched for similar ones
DIGITS = 19  # of the largest version; int() refuses more than 4,300

URL = Annotated[str, typer.Argument(metavar="URL", help="The store: sqlite:///memory.db, redis://host, ...")]
SESSION = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]
JSON = Annotated[bool, typer.Option("--json", help="Print one JSON value per line, for scripts.")]
WHERE = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="NAME=TEXT", help="Only sessions with this fact; may be given several times."),
]
READ_ONLY = ("sqlite:", "redis", "postgres", "dynamodb")  # the schemes of our backends, which all have that option
TIMEOUT = 30.0  # a person waits longer than a request


@contextmanager
def opened(url: str, *, create: bool = False, for_reading: bool = False, **options: Any) -> Iterator[MemoryStore]:
    """Open the store. With `for_reading`, it is opened read-only; `create` allows a new file.

    Warnings about its settings go to stderr, a line each. Raises InvalidInput for a file that does not exist.
    """
    url = as_url(url)
    if not create:
        refuse_absent_file(url)
    if for_reading:
        options |= only_looking(url)
    if "timeout=" not in url:
        options.setdefault("timeout", TIMEOUT)
    with warnings_on_stderr(), everturn.open(url, **options) as store:
        yield store


def only_looking(url: str) -> dict[str, Any]:
    """Options of a command that looks: it needs no permission to write, and creates nothing."""
    return {"read_only": True} if url.startswith(READ_ONLY) else {}


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Send warnings about a store's settings to stderr, a line each, for a block."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.simplefilter("always")
        yield


def as_url(url: str) -> str:
    """The URL of a store; a path becomes the URL of a SQLite file."""
    return url if "://" in url else f"sqlite:///{quote(url)}"


def file_of(url: str) -> Path | None:
    """The file of a SQLite URL; None for another backend, and for memory."""
    if not url.startswith("sqlite://"):
        return None
    from everturn.backends.sqlite import path_in

    path = path_in(url.partition("?")[0])
    return Path(path) if path else None


def refuse_absent_file(url: str) -> None:
    """Check that the file of a SQLite URL exists. Raises InvalidInput."""
    path = file_of(url)
    if url.startswith("sqlite://") and path is None:
        raise InvalidInput(
            "a store in memory is empty, and is gone when the command ends; give the path of a file", path="url"
        )
    if path is not None and not path.exists():
        near = sorted(str(other) for other in path.parent.glob(f"*{path.suffix or '.db'}") if other.is_file())[:5]
        hint = f"; there is {', '.join(near)}" if near else ""
        # `redis:/me:secret@host`, with a slash too few, is a path as well.
        shown = masked_url(str(path)) if ":" in str(path) and "@" in str(path) else masked(str(path))
        raise InvalidInput(f"there is no file {shown}{hint}", path="url")


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"everturn: warning: {clean(str(message))}\n")


# --- sessions, snapshots, versions ------------------------------------------------------------------------------------


def session_in(store: MemoryStore, session_id: str) -> SessionInfo:
    """The facts of a session. Raises SessionNotFound, with similar ids in its message, or with some that are there."""
    try:
        return store.info(session_id)
    except SessionNotFound as error:
        near, others = _similar(store, session_id)
        if not near and not others:
            raise
        told = "similar" if near else "there are others, as"
        names = ", ".join(repr(name) for name in near or others)
        raise SessionNotFound(f"there is no session {session_id!r}; {told}: {names}", session_id=session_id) from error


def _similar(store: MemoryStore, session_id: str) -> tuple[list[str], list[str]]:
    """Find ids that are like this one, and the first of those that are there."""
    names: dict[str, None] = {}
    for prefix in (session_id[:3], ""):
        page = store.sessions(prefix, limit=MOST_NAMES)
        names.update(dict.fromkeys(session.session_id for session in page.sessions))
    folded = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(session_id.casefold(), folded, n=3, cutoff=0.6)
    begin = [name for name in names if name.startswith(session_id)][:3]
    return list(dict.fromkeys([*begin, *(folded[name] for name in close)]))[:5], list(names)[:3]


def snapshot_in(store: MemoryStore, session_id: str, name: str, option: str = "") -> Snapshot:
    """The snapshot with this id, or with this label, or whose id begins so. Raises InvalidInput if several match.

    `option` is the command's option that takes a version: the error names it if the name looks like one.
    """
    snapshots = store.list_snapshots(session_id)
    for found in (
        [snapshot for snapshot in snapshots if snapshot.id == name],
        [snapshot for snapshot in snapshots if snapshot.label == name],
        [snapshot for snapshot in snapshots if len(name) >= 4 and snapshot.id.startswith(name)],
    ):
        if found:
            if len(found) > 1:
                ids = ", ".join(f"{snapshot.id} (version {snapshot.version:,})" for snapshot in found)
                raise InvalidInput(f"{len(found)} snapshots match {name!r}; name one by its id: {ids}", path="snapshot")
            return found[-1]
    labels = ", ".join(repr(snapshot.label or snapshot.id) for snapshot in snapshots[-5:])
    have = f"it has {labels}" if snapshots else "it has none"
    if option and name.isdecimal():
        have += f"; for a version: {option} {name}"
    raise SnapshotNotFound(
        f"session {session_id!r} has no snapshot {name!r}; {have}", session_id=session_id, snapshot=name
    )


def point_in(store: MemoryStore, session_id: str, name: str | None) -> Snapshot | int | None:
    """A state of the session by a version (a number) or a snapshot (its id or label); None for the present state."""
    if name is None or name == "now":
        return None
    if name.isdecimal() and len(name) <= DIGITS:
        return int(name)
    return snapshot_in(store, session_id, name)


def seconds_in(text: str, path: str, also: str = "") -> float:
    """Read a duration: seconds, or 30min, 12h, 7d. Raises InvalidInput; `also` names other words that are taken."""
    number, unit = text.rstrip("smindh"), text.lstrip("0123456789.")
    lengths = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
    try:
        return float(number) * lengths[unit]
    except (ValueError, KeyError):
        raise InvalidInput(f"is seconds, or 30min, 12h, 7d{also}; not {text!r}", path=path) from None


def facts_in(where: list[str] | None) -> dict[str, str]:
    """Read the values of --where. Raises InvalidInput."""
    facts: dict[str, str] = {}
    for each in where or ():
        name, equals, value = each.partition("=")
        if not name or not equals or name in facts:
            raise InvalidInput(f"is a name and a text, as user=42, each name once; not {each!r}", path="--where")
        facts[name] = value
    return facts
