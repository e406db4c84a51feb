"""The Lua scripts, and which of them carries out a change. Each script is one .lua file of lua/ behind shared texts.

A file whose name begins with `_` is shared: it is the beginning of many scripts, and none by itself.

_clock.lua    the time, and whether a request is too late
_check.lua    checks that find damage
_state.lua    the keys and the state of a session
_path.lua     the entries that lead to a head
_keys.lua     idempotency keys of callers
_version.lua  the state after a version
_lease.lua    leases, and whether one is in force
_effect.lua   effects
_change.lua   before and after every change: replays, conflicts, the receipt
_rows.lua     rows of a copy, written as they are
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files

import msgspec

from everturn.backend import (
    Append,
    BeginEffect,
    Clear,
    DeleteSnapshot,
    Effect,
    EndEffect,
    Fold,
    Rollback,
    SetTTL,
    TakeSnapshot,
    Trim,
    Undo,
)


class Script(msgspec.Struct, frozen=True, gc=False):
    """A script: its text, and the hash by which a server knows it once it has run it."""

    text: bytes
    sha: bytes


def _load(*names: str) -> Script:
    folder = files(__package__).joinpath("lua")
    text = b"\n".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names)
    # Redis names a script by its SHA-1. It is a name here, no protection.
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())


_READ = ("_check", "_state", "_path")
_CHANGE = ("_clock", *_READ, "_keys", "_lease", "_change")

# --- changes: one script each, atomic --------------------------------------------------------------------------------
APPEND = _load(*_CHANGE, "append")
TRIM = _load(*_CHANGE, "trim")
FOLD = _load(*_CHANGE, "fold")
CLEAR = _load(*_CHANGE, "clear")
SNAPSHOT = _load(*_CHANGE, "snapshot")
DELETE_SNAPSHOT = _load(*_CHANGE, "delete_snapshot")
ROLLBACK = _load(*_CHANGE, "_version", "rollback")
UNDO = _load(*_CHANGE, "undo")
TTL = _load(*_CHANGE, "ttl")
BEGIN_EFFECT = _load(*_CHANGE, "_effect", "begin_effect")
END_EFFECT = _load(*_CHANGE, "_effect", "end_effect")
FORK = _load(*_CHANGE, "fork")
ERASE = _load("_clock", "_check", "_state", "erase")
LEASE = _load("_clock", "_check", "_state", "_lease", "lease")
DROP_UNDO = _load("_clock", "_check", "_state", "drop_undo")
# --- reads -----------------------------------------------------------------------------------------------------------
SESSION_STATE = _load(*_READ, "session_state")
WALK = _load(*_READ, "walk")
EFFECTS = _load("_check", "_state", "_lease", "effects")
PAGE = _load(*_READ, "page")
PORTION = _load("portion")
# --- steps of longer operations, each of bounded length --------------------------------------------------------------
STAGE = _load("_clock", *_READ, "_rows", "stage")
RESTORE = _load("_clock", *_READ, "_rows", "restore")
RECLAIM = _load(*_READ, "_keys", "reclaim")

OF_EFFECT: Mapping[type[Effect], Script] = {
    Append: APPEND,
    Trim: TRIM,
    Fold: FOLD,
    Clear: CLEAR,
    TakeSnapshot: SNAPSHOT,
    DeleteSnapshot: DELETE_SNAPSHOT,
    Rollback: ROLLBACK,
    Undo: UNDO,
    SetTTL: TTL,
    BeginEffect: BEGIN_EFFECT,
    EndEffect: END_EFFECT,
}
"""The script that carries out a change."""
