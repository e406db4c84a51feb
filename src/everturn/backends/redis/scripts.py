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
_CHANGE = ("clock", *_SHARED, "keys", "change")

APPEND = _load(*_CHANGE, "append")
TURN = _load("clock", "check", "turn", "state", "path", "keys", "change", "append")
SET_FLOOR = _load(*_CHANGE, "set_floor")
CLEAR = _load(*_CHANGE, "clear")
SNAPSHOT = _load(*_CHANGE, "snapshot")
DELETE_SNAPSHOT = _load(*_CHANGE, "delete_snapshot")
ROLLBACK = _load(*_CHANGE, "rollback")
UNDO = _load(*_CHANGE, "undo")
TTL = _load(*_CHANGE, "ttl")
FORK = _load(*_CHANGE, "fork")
STAGE = _load("clock", *_SHARED, "rows", "stage")
LOOK = _load(*_SHARED, "look")
WALK = _load(*_SHARED, "walk")
PAGE = _load(*_SHARED, "page")
PORTION = _load("portion")
RESTORE = _load("clock", *_SHARED, "rows", "restore")
RECLAIM = _load(*_SHARED, "keys", "reclaim")
ERASE = _load("clock", "check", "state", "erase")
