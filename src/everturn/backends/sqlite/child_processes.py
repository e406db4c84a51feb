"""Closes SQLite's connections before an `os.fork`: the lock table belongs to the process, and would be copied."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ClosesForOsFork(Protocol):
    """A file whose connections are closed before an `os.fork`, and opened again in parent and child."""

    def before_os_fork(self) -> None: ...

    def after_os_fork_in_parent(self) -> None: ...

    def after_os_fork_in_child(self) -> None: ...


open_files: weakref.WeakSet[ClosesForOsFork] = weakref.WeakSet()
lock = threading.Lock()  # held from before an os.fork until after it: two threads may call it at once
_forking: list[ClosesForOsFork] = []


def _before() -> None:
    lock.acquire()
    _forking.extend(open_files)
    for file in _forking:
        file.before_os_fork()


def _after_in_parent() -> None:
    while _forking:
        _forking.pop().after_os_fork_in_parent()
    lock.release()


def _after_in_child() -> None:
    while _forking:
        _forking.pop().after_os_fork_in_child()
    lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
