"""Disks that fail on purpose: SQLite VFSes that lose power or are slow to sync.

Open a connection on the disk, then check the file.
"""

# SQLite chose the names and arguments of a VFS's methods.
# ruff: noqa: N802, FBT001

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer

_Filename: TypeAlias = str | apsw.URIFilename | None

_DEFAULT_VFS = ""
_SECTOR = 512
# The files whose first sync also syncs the directory, in SQLite's unix VFS.
_SYNCS_NAMES = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL


class _Disk(apsw.VFS):
    """The default VFS under a new name, registered until the end of a `with` block."""

    def __init__(self, name: str) -> None:
        super().__init__(name, base=_DEFAULT_VFS)
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def xSleep(self, microseconds: int) -> int:
        # The busy handler waits here. apsw's own xSleep keeps the GIL, which stops the one waited for.
        time.sleep(microseconds / 1e6)
        return microseconds


class SlowSyncVFS(_Disk):
    """The real disk, with `seconds` added to every sync of a file. `syncs` counts them.

        with SlowSyncVFS("slow", seconds=0.001) as disk:
            connection = apsw.Connection(path, vfs=disk.name)

    The wait releases the GIL, so other threads work meanwhile. The real sync that follows does not (apsw
    keeps the GIL in an inherited xSync): on a slow disk, measure on a memory file system.
    """

    def __init__(self, name: str, *, seconds: float = 0.001) -> None:
        super().__init__(name)
        self.seconds = seconds
        self.syncs = 0
        self._counting = threading.Lock()

    def xOpen(self, name: _Filename, flags: list[int]) -> apsw.VFSFile:
        return _SlowSyncFile(self, name, flags)

    def delay(self) -> None:
        """Count a sync and take the time for it."""
        with self._counting:
            self.syncs += 1
        time.sleep(self.seconds)


class _SlowSyncFile(apsw.VFSFile):
    def __init__(self, disk: SlowSyncVFS, name: _Filename, flags: list[int]) -> None:
        super().__init__(_DEFAULT_VFS, name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:
        self._disk.delay()
        super().xSync(flags)


class PowerLossVFS(_Disk):
    """A disk whose power can go: its files are then left as they were last synced.

        with PowerLossVFS("disk") as disk:
            disk.cut_at(7)
            connection = apsw.Connection(path, vfs=disk.name)
            ...                  # apsw.IOError at the 7th sync, and at all IO from then on
        apsw.Connection(path)    # the survivor, through the ordinary VFS

    While the power is on, the real files hold everything that was written, so every connection of the process
    reads it; the content of a platter is kept in memory beside them. The cut replaces the files by the
    platter's. These are new inodes, without a -shm, so connections that died with the power cannot touch the
    survivor, closed or not.

    Names are synced apart from content. A file's name is durable once the file was synced. The first sync of
    a journal or WAL, and a delete that asks for it (`synchronous=EXTRA`), sync the directory: all names
    created and deleted so far are then durable, in other directories too. A delete that was not synced is
    undone by the cut. So a DELETE journal at FULL may lose the latest commit, as SQLite documents.

    Syncs are simulated and take no time. For one process: let nothing else change the files while the power
    is on. Temporary files are not tracked. To close a connection that is inside a transaction is IO too, and
    raises after the cut.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._platter = _SyncedState()

    @property
    def syncs(self) -> int:
        """The sync points reached so far, the one that was cut included. Never set back."""
        return self._platter.syncs

    @property
    def is_on(self) -> bool:
        """Whether there is power: false from the cut until `power_on`."""
        return self._platter.is_on

    def cut_at(self, sync: int, *, moment: Literal["before", "after"] = "before", torn: int | None = None) -> None:
        """Cut the power when `syncs` reaches `sync`, just before or just after that sync takes effect.

        After it, the change is on the disk and yet was never acknowledged. `torn` is as for `cut`.
        Replaces an earlier call. Raises ValueError if that sync has passed.
        """
        if sync <= self.syncs:
            raise ValueError(f"sync {sync} has passed; the next one is {self.syncs + 1}")
        self._platter.cut = _PlannedCut(sync, moment, torn)

    def cut(self, *, torn: int | None = None) -> None:
        """Cut the power now. All IO raises `apsw.IOError` until `power_on`.

        The files keep synced writes, or, with a seed in `torn`, also a random part of the rest: a disk is
        free to have written any 512-byte sector, and any creation or delete of a file, in any order.
        """
        with self._platter.lock:
            self._platter.lose_power(torn)

    def power_on(self) -> None:
        """Admit new connections, with no cut to come. Those from before the cut stay dead."""
        self._platter.cut = None
        self._platter.is_on = True

    def xOpen(self, name: _Filename, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._platter.changing(self._platter.boot, apsw.SQLITE_IOERR):
            if path is None:
                return apsw.VFSFile(_DEFAULT_VFS, name, flags)
            return _PowerLossFile(self._platter, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self._platter.changing(self._platter.boot, apsw.SQLITE_IOERR_DELETE):
            super().xDelete(filename, syncdir=False)
            self._platter.names.pop(filename, None)
            if syncdir:
                with self._platter.sync_point():
                    self._platter.sync_names()

    def xAccess(self, pathname: str, flags: int) -> bool:
        self._platter.need_power(self._platter.boot, apsw.SQLITE_IOERR_ACCESS)
        return super().xAccess(pathname, flags)


class _PowerLossFile(apsw.VFSFile):
    """The real file, its locks and shared memory. Every change is also noted in the platter."""

    def __init__(self, platter: _SyncedState, path: str, name: _Filename, flags: list[int]) -> None:
        existed = Path(path).exists()
        super().__init__(_DEFAULT_VFS, name, flags)
        if path not in platter.names:
            platter.add(path, self._content(), durable=existed)
        self._platter = platter
        self._boot = platter.boot
        self._path = path
        self._inode = platter.names[path]
        self._syncs_names = bool(flags[0] & _SYNCS_NAMES)

    def _content(self) -> bytes:
        # Through SQLite's own descriptor: to close another would drop the locks this process has on the file.
        size = super().xFileSize()
        return super().xRead(size, 0) if size else b""

    def xRead(self, amount: int, offset: int) -> bytes:
        self._platter.need_power(self._boot, apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xFileSize(self) -> int:
        self._platter.need_power(self._boot, apsw.SQLITE_IOERR_FSTAT)
        return super().xFileSize()

    def xWrite(self, data: Buffer, offset: int) -> None:
        with self._platter.changing(self._boot, apsw.SQLITE_IOERR_WRITE):
            super().xWrite(data, offset)
            self._inode.unsynced.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        with self._platter.changing(self._boot, apsw.SQLITE_IOERR_TRUNCATE):
            super().xTruncate(newsize)
            self._inode.unsynced.append((newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: ARG002 (all syncs are full ones)
        platter = self._platter
        with platter.changing(self._boot, apsw.SQLITE_IOERR_FSYNC), platter.sync_point():
            platter.sync(self._path, self._inode)
            if self._syncs_names:
                platter.sync_names()
                self._syncs_names = False

    def xLock(self, level: int) -> None:
        self._platter.need_power(self._boot, apsw.SQLITE_IOERR_LOCK)
        super().xLock(level)


@dataclass(frozen=True)
class _PlannedCut:
    sync: int
    moment: Literal["before", "after"]
    torn: int | None


@dataclass(eq=False)
class _Inode:
    """One file: its synced bytes, and the writes (offset, bytes) and truncates (size, None) since."""

    synced: bytearray
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for offset, written in self.unsynced:
            _apply(self.synced, offset, written)
        self.unsynced.clear()

    def survivor(self, dice: Random | None) -> bytes:
        """The content after the cut: synced writes, and with dice a random part of the others."""
        image = bytearray(self.synced)
        if dice:
            odds = dice.random()
            for write in self.unsynced:
                for offset, written in _sectors(*write):
                    if dice.random() < odds:
                        _apply(image, offset, written)
        return bytes(image)


class _SyncedState:
    """The content that files would have after a power cut, and whether the power is on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_on = True
        self.boot = 0
        self.syncs = 0
        self.cut: _PlannedCut | None = None
        self.names: dict[str, _Inode] = {}  # the directory that running connections see
        self.synced_names: dict[str, _Inode] = {}  # the directory that a cut would leave

    def need_power(self, boot: int, code: int) -> None:
        """Raise the error `code` unless there is power now and has been since `boot`."""
        if not self.is_on or self.boot != boot:
            raise _power_loss(code)

    @contextmanager
    def changing(self, boot: int, code: int) -> Iterator[None]:
        """Make one change at a time, so that a cut falls between two."""
        with self.lock:
            self.need_power(boot, code)
            yield

    @contextmanager
    def sync_point(self) -> Iterator[None]:
        """Count the sync that is the body, and cut the power before or after it if that is due."""
        self.syncs += 1
        cut = self.cut if self.cut and self.cut.sync == self.syncs else None
        if not (cut and cut.moment == "before"):
            yield
        if cut:
            self.lose_power(cut.torn)
            raise _power_loss(apsw.SQLITE_IOERR_FSYNC)

    def add(self, path: str, content: bytes, *, durable: bool) -> None:
        self.names[path] = _Inode(bytearray(content))
        if durable:
            self.synced_names[path] = self.names[path]

    def sync(self, path: str, inode: _Inode) -> None:
        inode.sync()
        if self.names.get(path) is inode:
            self.synced_names[path] = inode

    def sync_names(self) -> None:
        self.synced_names = dict(self.names)

    def lose_power(self, torn: int | None) -> None:
        """Put the platter's files in place of the real ones and forget them all."""
        dice = None if torn is None else Random(torn)  # noqa: S311 (repeatable, not secret)
        for path in sorted({*self.names, *self.synced_names}):
            is_name_synced = not dice or dice.random() < 0.5
            inode = (self.synced_names if is_name_synced else self.names).get(path)
            Path(path).unlink(missing_ok=True)
            Path(path + "-shm").unlink(missing_ok=True)
            if inode:
                Path(path).write_bytes(inode.survivor(dice))
        self.names, self.synced_names = {}, {}
        self.is_on = False
        self.boot += 1


def _apply(image: bytearray, offset: int, written: bytes | None) -> None:
    """Write at an offset, or truncate there. A gap before it is zeros."""
    image.extend(bytes(max(0, offset - len(image))))
    if written is None:
        del image[offset:]
    else:
        image[offset : offset + len(written)] = written


def _sectors(offset: int, written: bytes | None) -> Iterator[tuple[int, bytes | None]]:
    """The parts of a write that reach the platter whole or not at all. A truncate is one part."""
    if written is None:
        yield offset, None
        return
    start = 0
    while start < len(written):
        end = start + _SECTOR - (offset + start) % _SECTOR
        yield offset + start, written[start:end]
        start = end


def _power_loss(code: int) -> Exception:
    error = apsw.exception_for(code)
    error.args = ("the power is off",)
    return error
