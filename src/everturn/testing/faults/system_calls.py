"""Watches the system calls of a process from outside by which it writes, syncs, removes and sends (ptrace, Linux only).

Every thread and child of the process is watched: Python code, C drivers and extensions alike. Out of reach: memory maps
that are written without `msync`, io_uring, and processes that the watched one only talks to.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

_SEIZE, _INTERRUPT, _LISTEN, _SYSCALL, _SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 24, 0x420E
_GET_REGISTERS, _SET_REGISTERS, _GENERAL = 0x4204, 0x4205, 1
_RESULT_AT = {"x86_64": 10, "aarch64": 0}  # the place of the register that holds a call's result
_REGISTERS = 64  # more than any of these machines has, of 8 bytes each
_OPTIONS = 0x01 | 0x02 | 0x04 | 0x08  # mark system calls; follow fork, vfork and clone
_WAIT_ALL = 0x40000000 | 0x20000000  # __WALL, and only those that this thread watches: no child of another's is taken
_INFO = struct.Struct("<B7x16xq6Q")  # of an entry: what, number, arguments; of an exit: what, result
_ENTRY, _EXIT = 1, 2
_STOP_EVENT = 128

# By machine: number -> name. The first argument of these calls is the file, but for those in _FILE_AT.
_NUMBERS: dict[str, dict[int, str]] = {
    "x86_64": {
        1: "write",
        18: "pwrite64",
        20: "writev",
        40: "sendfile",
        77: "ftruncate",
        285: "fallocate",
        296: "pwritev",
        328: "pwritev2",
        326: "copy_file_range",
        275: "splice",
        74: "fsync",
        75: "fdatasync",
        162: "sync",
        306: "syncfs",
        26: "msync",
        87: "unlink",
        263: "unlinkat",
        44: "sendto",
        46: "sendmsg",
        307: "sendmmsg",
    },
    "aarch64": {
        64: "write",
        68: "pwrite64",
        66: "writev",
        71: "sendfile",
        46: "ftruncate",
        47: "fallocate",
        70: "pwritev",
        287: "pwritev2",
        285: "copy_file_range",
        76: "splice",
        82: "fsync",
        83: "fdatasync",
        81: "sync",
        267: "syncfs",
        227: "msync",
        35: "unlinkat",
        206: "sendto",
        211: "sendmsg",
        269: "sendmmsg",
    },
}
_FILE_AT = {"copy_file_range": 2, "splice": 2}
REMOVES = frozenset({"unlink", "unlinkat"})  # `file` has no meaning for these
SENDS = frozenset({"sendto", "sendmsg", "sendmmsg"})  # `file` is a socket
SYNCS = frozenset({"fsync", "fdatasync", "sync", "syncfs", "msync"})


class SystemCall(msgspec.Struct, frozen=True):
    """One call that writes, syncs, removes or sends, at its begin: its thread, and the descriptor of the file."""

    name: str
    thread: int
    file: int


Ended = Callable[[], None]
Begun = Callable[[SystemCall], Ended | None]
"""Gets a call before the kernel runs it, while its thread is stopped. Returns what to do when it has succeeded."""

Fails = Callable[[SystemCall], int]
"""Gets a call like `Begun`. Returns the number of the error that the process is to be told, whatever the kernel did; 0
for none."""


class _Vector(ctypes.Structure):
    """A piece of memory: `struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@cache
def can_watch() -> bool:
    """Whether system calls of other processes can be watched here."""
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return False
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    child = os.posix_spawn(sys.executable, sleep, {}, file_actions=_quiet())
    try:
        with SystemCallWatch(child, lambda _: None):
            pass
    except OSError:
        return False
    finally:
        with suppress(ProcessLookupError, ChildProcessError):  # if it was watched, its end was waited for
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return True


def _quiet() -> list[tuple[int, int, str, int, int]]:
    return [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (1, 2)]


class SystemCallWatch:
    """Watches a process from the begin of a `with` block until the process ends. Kill it before the end of the block.

    `begun` is called in a thread of its own. Raises OSError if the process may not be watched.
    """

    def __init__(self, pid: int, begun: Begun, fails: Fails = lambda _: 0) -> None:
        self._pid = pid
        self._begun = begun
        self._fails = fails
        self._failing: dict[int, int] = {}  # by thread: the error that its call ends with
        self._names = _NUMBERS.get(platform.machine(), {})
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long
        self._under_way: dict[int, Ended | None] = {}
        self._attached = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="everturn-system-calls", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._attached.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._thread.join()
        if self._error is not None and kind is None:
            raise self._error

    def _run(self) -> None:
        try:
            try:
                threads = [int(entry.name) for entry in Path(f"/proc/{self._pid}/task").iterdir()]
                for thread in threads:
                    self._ptrace(_SEIZE, thread, _OPTIONS)
                    self._ptrace(_INTERRUPT, thread)
            finally:
                self._attached.set()
            while True:
                try:
                    thread, status = os.waitpid(-1, _WAIT_ALL)
                except ChildProcessError:
                    return  # the process and all its threads are gone
                if os.WIFSTOPPED(status):
                    self._stopped(thread, status)
        except BaseException as exc:  # noqa: BLE001 - raised at the end of the block
            self._error = exc

    def _stopped(self, thread: int, status: int) -> None:
        sent = os.WSTOPSIG(status)
        event = status >> 16
        request = _SYSCALL
        if sent == signal.SIGTRAP | 0x80:
            self._called(thread)
            sent = 0
        elif event == _STOP_EVENT and sent in {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}:
            request, sent = _LISTEN, 0  # the process as a whole is stopped, and stays so until SIGCONT
        elif event or sent == signal.SIGTRAP:
            sent = 0
        with suppress(ProcessLookupError):  # it was killed meanwhile, and its end is still to come
            self._ptrace(request, thread, sent)

    def _called(self, thread: int) -> None:
        info = ctypes.create_string_buffer(_INFO.size)
        if self._libc.ptrace(_SYSCALL_INFO, thread, _INFO.size, ctypes.addressof(info)) < 0:
            return
        what, number, *arguments = _INFO.unpack(info.raw)
        if what == _ENTRY:
            name = self._names.get(number)
            if name is not None:
                descriptor = arguments[_FILE_AT.get(name, 0)] & 0xFFFFFFFF
                call = SystemCall(name, thread, descriptor)
                self._under_way[thread] = self._begun(call)
                self._failing[thread] = self._fails(call)
        elif what == _EXIT:
            ended, error = self._under_way.pop(thread, None), self._failing.pop(thread, 0)
            if error:
                self._answer(thread, -error)
            elif ended is not None and number >= 0:
                ended()

    def _answer(self, thread: int, result: int) -> None:
        """Let the call that ends have this result."""
        registers = (ctypes.c_int64 * _REGISTERS)()
        vector = _Vector(ctypes.addressof(registers), ctypes.sizeof(registers))
        for request in (_GET_REGISTERS, _SET_REGISTERS):
            if self._libc.ptrace(request, thread, _GENERAL, ctypes.addressof(vector)) < 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            registers[_RESULT_AT[platform.machine()]] = result

    def _ptrace(self, request: int, thread: int, data: int = 0) -> None:
        if self._libc.ptrace(request, thread, None, data) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
