"""Loads the .lua files: each script is the shared text, and its own. What they do is said in them."""

from __future__ import annotations

import hashlib
from importlib.resources import files

import msgspec


class Script(msgspec.Struct, frozen=True, gc=False):
    """A script's text, and the hash the server knows it by once it has seen it."""

    text: bytes
    sha: bytes


def _load(*names: str) -> Script:
    folder = files(__package__).joinpath("lua")
    text = b"\n".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names)
    # The server names a script by its SHA-1: a name, not a proof.
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


_SHARED = ("check", "state", "path")

APPEND = _load(*_SHARED, "change", "append")
TURN = _load("check", "turn", "state", "path", "change", "append")
SET_FLOOR = _load(*_SHARED, "change", "set_floor")
CLEAR = _load(*_SHARED, "change", "clear")
SNAPSHOT = _load(*_SHARED, "change", "snapshot")
DELETE_SNAPSHOT = _load(*_SHARED, "change", "delete_snapshot")
ROLLBACK = _load(*_SHARED, "change", "rollback")
UNDO = _load(*_SHARED, "change", "undo")
TTL = _load(*_SHARED, "change", "ttl")
FORK = _load(*_SHARED, "change", "fork")
STAGE = _load(*_SHARED, "rows", "stage")
LOOK = _load(*_SHARED, "look")
WALK = _load(*_SHARED, "walk")
PAGE = _load(*_SHARED, "page")
PORTION = _load("portion")
RESTORE = _load(*_SHARED, "rows", "restore")
RECLAIM = _load(*_SHARED, "reclaim")
ERASE = _load("check", "state", "erase")
