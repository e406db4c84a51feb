"""Closes SQLite's connections before the process forks: its lock table is the process's, and a fork would copy it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """A file with connections: shut before a fork, opened again on both sides."""

    def shut_for_fork(self) -> None: ...

    def open_in_parent(self) -> None: ...

    def open_in_child(self) -> None: ...


open_files: weakref.WeakSet[Forked] = weakref.WeakSet()
lock = threading.Lock()  # held from before a fork until after it: two threads may fork at once
_forking: list[Forked] = []


def _before() -> None:
    lock.acquire()
    _forking.extend(open_files)
    for file in _forking:
        file.shut_for_fork()


def _after_in_parent() -> None:
    while _forking:
        _forking.pop().open_in_parent()
    lock.release()


def _after_in_child() -> None:
    while _forking:
        _forking.pop().open_in_child()
    lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
