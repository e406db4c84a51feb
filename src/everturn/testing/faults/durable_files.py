"""Files as a power cut would leave them: contents that were synced, under names that were synced.

`DurableFiles` follows a process by its system calls and keeps every state that the disk was in. The rules are those of
common file systems: a sync of a file saves its content and its name, a sync of a directory saves the names in it. A
rename or a new name that was not synced is lost, and what was written since the last sync is lost. Files that were
removed are gone: the disk may have done that at any time.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import msgspec

from everturn.testing.faults.system_calls import REMOVES, SENDS, SYNCS, Ended, SystemCall

_DATA_SYNC = 0o10000  # O_DSYNC, which O_SYNC includes
_SHARED_MEMORY = "-shm"  # of SQLite: no part of its data


class DiskState(msgspec.Struct, frozen=True):
    """The files on a disk at one moment (monotonic): contents by name."""

    at: float
    files: dict[str, bytes]


class DurableFiles:
    """The files below one directory. All that is there at the beginning counts as synced."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._names = self._now()  # by path: the inode that a power cut leaves there
        self._contents = {inode: (place / name).read_bytes() for name, inode in self._names.items()}
        self.writes = 0  # calls that wrote to a file below the directory
        self.sent = 0  # calls that sent something to another process or machine
        self.synced: list[float] = []  # when a file or directory below it was synced
        self.states: list[DiskState] = []  # just before and just after each of these

    def begun(self, call: SystemCall) -> Ended | None:
        """Follow one system call: `SystemCallWatch` calls it."""
        if call.name in REMOVES:
            return self._removed
        if call.name in SENDS:
            self.sent += 1
            return None
        if call.name in SYNCS - {"fsync", "fdatasync"}:
            return self._all_synced
        place = Path(f"/proc/{call.thread}/fd/{call.file}")
        try:
            path, found = place.readlink(), place.stat()
        except OSError:
            return None
        if self._place not in (path, *path.parents):
            return None
        if stat.S_ISDIR(found.st_mode):
            return lambda: self._directory_synced(path)
        if not stat.S_ISREG(found.st_mode):
            return None
        inode = found.st_ino
        if call.name in SYNCS:
            content = _content(place)  # before the call: what another thread writes during it may not be saved
            return lambda: self._file_synced(inode, content)
        self.writes += 1
        if _syncs_itself(call):
            return lambda: self._file_synced(inode, _content(place))
        return None

    def lost(self) -> str:
        """Name the first file of which a power cut would now take something; empty if there is none."""
        for name, inode in self._now().items():
            if name.endswith(_SHARED_MEMORY):
                continue
            shown = name if len(name) <= 40 else f"...{name[-37:]}"
            if self._names.get(name) != inode:
                return f"{shown} was made or renamed, and neither it nor its directory was synced since"
            if (saved := self._contents.get(inode, b"")) != (there := _content(self._place / name)):
                return f"{shown} has {len(there)} bytes, and it was last synced with {len(saved)}, or with others"
        return ""

    def _now(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for folder, _, names in os.walk(self._place):
            for name in names:
                path = Path(folder, name)
                try:
                    found[str(path.relative_to(self._place))] = path.stat().st_ino
                except OSError:
                    continue  # it was removed meanwhile
        return found

    def _file_synced(self, inode: int, content: bytes) -> None:
        self.states.append(self.cut())
        self._contents[inode] = content
        now = self._now()
        self._names = {name: one for name, one in self._names.items() if one != inode or now.get(name) == inode}
        self._names |= {name: one for name, one in now.items() if one == inode}
        self._note()

    def _directory_synced(self, path: Path) -> None:
        self.states.append(self.cut())
        inside = path.relative_to(self._place)
        others = {name: inode for name, inode in self._names.items() if Path(name).parent != inside}
        self._names = others | {name: inode for name, inode in self._now().items() if Path(name).parent == inside}
        self._note()

    def _all_synced(self) -> None:
        self.states.append(self.cut())
        self._names = self._now()
        for name, inode in self._names.items():
            self._contents[inode] = _content(self._place / name)
        self._note()

    def _removed(self) -> None:
        now = self._now()
        self._names = {name: inode for name, inode in self._names.items() if name in now}

    def _note(self) -> None:
        self.synced.append(time.monotonic())
        self.states.append(self.cut())

    def cut(self) -> DiskState:
        """Return the files that a power cut would leave now."""
        now = self._now()
        files = {
            name: self._contents.get(inode, b"")
            for name, inode in self._names.items()
            if name in now and not name.endswith(_SHARED_MEMORY)
        }
        return DiskState(time.monotonic(), files)


def restore(place: Path, state: DiskState) -> None:
    """Make the files of a directory those of a state. No process may have them open."""
    for folder, _, names in os.walk(place):
        for name in names:
            Path(folder, name).unlink()
    for name, content in state.files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def is_file_below(place: Path, call: SystemCall) -> bool:
    """Whether the call is about a regular file below this directory. Ask while its thread is stopped."""
    descriptor = Path(f"/proc/{call.thread}/fd/{call.file}")
    try:
        return place in descriptor.readlink().parents and stat.S_ISREG(descriptor.stat().st_mode)
    except OSError:
        return False


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _syncs_itself(call: SystemCall) -> bool:
    """Whether the file was opened so that every write is synced (O_SYNC, O_DSYNC)."""
    try:
        lines = Path(f"/proc/{call.thread}/fdinfo/{call.file}").read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return bool(int(flags, 8) & _DATA_SYNC)
