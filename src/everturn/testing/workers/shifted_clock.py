"""A wall clock of its own for this process: `ShiftedClock().shift(60)` lets it run a minute ahead.

On Linux on x86-64 the functions of the vDSO are replaced, by which libc asks the kernel for the time: Python, C
extensions and drivers all see the shifted clock (`time.time`, `datetime.now`, SQLite's `now`). Elsewhere only
`time.time` and `time.time_ns` are replaced. Out of reach everywhere: servers, other processes, times that the file
system writes, code that enters the kernel without libc. Clocks that only go forward (`time.monotonic`) are left alone.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import struct
import sys
import time
from pathlib import Path

_SECOND = 10**9
_MEMORY = Path("/proc/self/mem")


class ShiftedClock:
    """The clock of this process. It is not shifted before the first call of `shift`."""

    def __init__(self) -> None:
        self._offset = (ctypes.c_int64 * 3)()  # seconds, then nanoseconds and microseconds from 0 to a second
        self._code: mmap.mmap | None = None
        self._installed = False

    def shift(self, seconds: float) -> None:
        """Let the clock differ by so much from the machine's, from now on; 0 sets it right."""
        nanoseconds = round(seconds * _SECOND)
        self._offset[0], self._offset[1] = divmod(nanoseconds, _SECOND)
        self._offset[2] = self._offset[1] // 1000
        if not self._installed:
            self._installed = True
            if not self._replace_vdso():
                self._replace_functions()

    def _replace_functions(self) -> None:
        real = time.time_ns

        def time_ns() -> int:
            return real() + self._offset[0] * _SECOND + self._offset[1]

        time.time_ns = time_ns
        time.time = lambda: time_ns() / _SECOND

    def _replace_vdso(self) -> bool:
        """Let the functions of the vDSO begin with a jump to ours. Returns False where that cannot be done."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return False
        try:
            place, functions = _vdso()
            self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            start = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
            offset = ctypes.addressof(self._offset)
            for needed in (self._code, self._offset):  # the vDSO needs them until the process ends
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(needed))
            with _MEMORY.open("r+b", buffering=0) as memory:
                for name, code in _machine_code(offset).items():
                    at = self._code.tell()
                    self._code.write(code)
                    memory.seek(place + functions[name])
                    memory.write(b"\x48\xb8" + struct.pack("<Q", start + at) + b"\xff\xe0")  # mov rax, ...; jmp rax
        except (OSError, KeyError, ValueError, struct.error):
            return False
        return True


def _machine_code(offset: int) -> dict[str, bytes]:
    """Assemble the three functions: ask the kernel by a system call, and add the offset that is stored at `offset`."""
    load = b"\x48\xba" + struct.pack("<Q", offset)  # mov rdx, offset
    return {
        # clock_gettime(edi: clock, rsi: timespec). Clocks 0 and 5 are CLOCK_REALTIME and CLOCK_REALTIME_COARSE.
        "__vdso_clock_gettime": b"".join(
            (
                b"\xb8" + struct.pack("<I", 228) + b"\x0f\x05",  # mov eax, 228; syscall
                b"\x85\xc0\x75\x3a",  # test eax, eax; jnz end
                b"\x85\xff\x74\x05\x83\xff\x05\x75\x2f",  # test edi, edi; jz add; cmp edi, 5; jnz done
                load,  # add:
                b"\x48\x8b\x0a\x48\x01\x0e",  # mov rcx, [rdx]; add [rsi], rcx
                b"\x48\x8b\x4a\x08\x48\x03\x4e\x08",  # mov rcx, [rdx+8]; add rcx, [rsi+8]
                b"\x48\x81\xf9" + struct.pack("<I", _SECOND) + b"\x7c\x0a",  # cmp rcx, a second; jl store
                b"\x48\x81\xe9" + struct.pack("<I", _SECOND) + b"\x48\xff\x06",  # sub rcx, a second; inc [rsi]
                b"\x48\x89\x4e\x08",  # store: mov [rsi+8], rcx
                b"\x31\xc0\xc3",  # done: xor eax, eax; end: ret
            )
        ),
        # gettimeofday(rdi: timeval, rsi: timezone)
        "__vdso_gettimeofday": b"".join(
            (
                b"\xb8" + struct.pack("<I", 96) + b"\x0f\x05",
                b"\x85\xc0\x75\x36\x48\x85\xff\x74\x31",  # test eax, eax; jnz end; test rdi, rdi; jz end
                load,
                b"\x48\x8b\x0a\x48\x01\x0f",  # mov rcx, [rdx]; add [rdi], rcx
                b"\x48\x8b\x4a\x10\x48\x03\x4f\x08",  # mov rcx, [rdx+16]; add rcx, [rdi+8]
                b"\x48\x81\xf9" + struct.pack("<I", 10**6) + b"\x7c\x0a",
                b"\x48\x81\xe9" + struct.pack("<I", 10**6) + b"\x48\xff\x07",
                b"\x48\x89\x4f\x08",
                b"\x31\xc0\xc3",
            )
        ),
        # time(rdi: seconds, or 0)
        "__vdso_time": b"".join(
            (
                b"\xb8" + struct.pack("<I", 201) + b"\x0f\x05",
                load,
                b"\x48\x03\x02",  # add rax, [rdx]
                b"\x48\x85\xff\x74\x03\x48\x89\x07\xc3",  # test rdi, rdi; jz end; mov [rdi], rax; end: ret
            )
        ),
    }


def _vdso() -> tuple[int, dict[str, int]]:
    """Find the vDSO in this process. Returns its address, and the distance of each of its functions from there."""
    found = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    if found is None:
        raise OSError("this process has no vDSO")
    place, end = (int(number, 16) for number in found.groups())
    with _MEMORY.open("rb", buffering=0) as memory:
        memory.seek(place)
        image = memory.read(end - place)
    (headers,), (size, number) = struct.unpack_from("<Q", image, 32), struct.unpack_from("<HH", image, 54)
    dynamic = next(
        offset
        for kind, _, offset in (struct.unpack_from("<IIQ", image, headers + size * index) for index in range(number))
        if kind == 2  # PT_DYNAMIC
    )
    table: dict[int, int] = {}
    while 0 not in table:
        tag, value = struct.unpack_from("<QQ", image, dynamic)
        table[tag] = value
        dynamic += 16
    strings, symbols = table[5], table[6]  # DT_STRTAB, DT_SYMTAB: the one ends where the other begins
    functions = {}
    for at in range(symbols, strings - 23, 24):
        name, value = struct.unpack_from("<I", image, at)[0], struct.unpack_from("<Q", image, at + 8)[0]
        text = image[strings + name : image.index(b"\0", strings + name)].decode()
        functions[text] = value
    return place, functions
