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


APPEND = _load("state", "change", "append")
TURN = _load("turn", "state", "change", "append")
SET_FLOOR = _load("state", "change", "set_floor")
CLEAR = _load("state", "change", "clear")
SNAPSHOT = _load("state", "change", "snapshot")
DELETE_SNAPSHOT = _load("state", "change", "delete_snapshot")
ROLLBACK = _load("state", "change", "rollback")
UNDO = _load("state", "change", "undo")
TTL = _load("state", "change", "ttl")
FORK = _load("state", "change", "fork")
STAGE = _load("rows", "stage")
LOOK = _load("state", "look")
PORTION = _load("portion")
RESTORE = _load("state", "rows", "restore")
RECLAIM = _load("state", "reclaim")
ERASE = _load("state", "erase")
