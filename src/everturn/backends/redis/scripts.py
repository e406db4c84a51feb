"""The Lua scripts, and which of them carries out a change. Each script is one .lua file of lua/ behind shared texts.

A file whose name begins with `_` is shared: it is the beginning of many scripts, and none by itself.

_late_requests.lua  the time, and whether a request is too late
_check.lua          checks that find damage
_state.lua          the keys and the state of a session
_sealed.lua         texts that carry a check of their own: undo steps, snapshots, forgotten versions
_path.lua           the entries that lead to a head: jumps
_others.lua         entries that are no messages
_window.lua         the ranges of a path that a read asks for
_keys.lua           idempotency keys of callers
_version.lua        the state after a version
_lease.lua          leases, and whether one is in force
_effects.lua        which effects there are, and their marks
_effect.lua         one effect, that a change begins or ends
_change.lua         before every change: replays, conflicts
_entry.lua          the place of an entry
_planned.lua        whether a trim or fold may be carried out as it was planned
_commit.lua         after every change: what it writes, and the receipt
_rows.lua           rows of a copy, written as they are

A script is run as a whole for every call, so every function of its text is made anew, and most calls use few of them.
Functions that are seldom used are therefore made by a function of their own (`path_functions`), where they are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.resources import files

import msgspec

from everturn.backend import (
    Action,
    Append,
    BeginEffect,
    Clear,
    DeleteSnapshot,
    EndEffect,
    Fold,
    Rollback,
    SetFacts,
    SetTTL,
    TakeSnapshot,
    Trim,
    Undo,
)

RETRY = 7  # the argument of a change that says whether it is a retry; changes.py makes it, _change.lua reads it


class Script(msgspec.Struct, frozen=True, gc=False):
    """A script: its text, and the hash by which a server knows it once it has run it.

    `is_change` says that it has the arguments of _change.lua, RETRY among them.
    """

    text: bytes
    sha: bytes
    is_change: bool = False


def _load(*names: str, is_change: bool = False) -> Script:
    folder = files(__package__).joinpath("lua")
    text = b"\n".join(folder.joinpath(f"{name}.lua").read_bytes() for name in names)
    # Redis names a script by its SHA-1. It is a name here, no protection.
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode(), is_change)


_SESSION = ("_check", "_state", "_sealed")
_PATH = (*_SESSION, "_path", "_others")


def _change(*names: str) -> Script:
    return _load("_late_requests", *_PATH, "_keys", "_lease", "_change", *names, "_commit", is_change=True)


# --- changes: one script each, atomic --------------------------------------------------------------------------------
APPEND = _change("_entry", "append")
TRIM = _change("_planned", "trim")
FOLD = _change("_entry", "_planned", "fold")
CLEAR = _change("clear")
SNAPSHOT = _change("snapshot")
DELETE_SNAPSHOT = _change("delete_snapshot")
ROLLBACK = _change("_version", "rollback")
UNDO = _change("undo")
TTL = _change("ttl")
FACTS = _change("facts")
BEGIN_EFFECT = _change("_effects", "_effect", "begin_effect")
END_EFFECT = _change("_effects", "_effect", "end_effect")
FORK = _change("fork")
ERASE = _load("_late_requests", "_check", "_state", "erase")
LEASE = _load("_late_requests", "_check", "_state", "_lease", "lease")
DROP_UNDO = _load("_late_requests", *_SESSION, "drop_undo")
# --- reads -----------------------------------------------------------------------------------------------------------
SESSION_STATE = _load(*_PATH, "_window", "session_state")
WALK = _load(*_PATH, "_window", "walk")
EFFECTS = _load("_check", "_state", "_lease", "_effects", "effects")
HELD_LEASE = _load("_check", "_state", "_lease", "held_lease")
PAGE = _load("_state", "page")
PORTION = _load("portion")
# --- steps of longer operations, each of bounded length --------------------------------------------------------------
STAGE = _load("_late_requests", *_PATH, "_rows", "stage")
RESTORE = _load("_late_requests", *_PATH, "_rows", "_effects", "restore")
RECLAIM = _load(*_SESSION, "_keys", "reclaim")

OF_ACTION: Mapping[type[Action], Script] = {
    Append: APPEND,
    Trim: TRIM,
    Fold: FOLD,
    Clear: CLEAR,
    TakeSnapshot: SNAPSHOT,
    DeleteSnapshot: DELETE_SNAPSHOT,
    Rollback: ROLLBACK,
    Undo: UNDO,
    SetTTL: TTL,
    SetFacts: FACTS,
    BeginEffect: BEGIN_EFFECT,
    EndEffect: END_EFFECT,
}
"""The script that carries out a change."""
