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


APPEND = _load("clock", "state", "keys", "change", "append")
TURN = _load("clock", "turn", "state", "keys", "change", "append")
SET_FLOOR = _load("clock", "state", "keys", "change", "set_floor")
CLEAR = _load("clock", "state", "keys", "change", "clear")
SNAPSHOT = _load("clock", "state", "keys", "change", "snapshot")
DELETE_SNAPSHOT = _load("clock", "state", "keys", "change", "delete_snapshot")
ROLLBACK = _load("clock", "state", "keys", "change", "rollback")
UNDO = _load("clock", "state", "keys", "change", "undo")
TTL = _load("clock", "state", "keys", "change", "ttl")
FORK = _load("clock", "state", "keys", "change", "fork")
STAGE = _load("clock", "rows", "stage")
LOOK = _load("state", "look")
PORTION = _load("portion")
RESTORE = _load("clock", "state", "rows", "restore")
RECLAIM = _load("state", "keys", "reclaim")
ERASE = _load("clock", "state", "erase")
