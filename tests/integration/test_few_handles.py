"""SQLite with few file handles left: whichever file cannot be opened, the error is everturn's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import asyncio, os, resource, sys, time
import everturn
from everturn import ChatMessage
from everturn.backend import drive

url, what, free = sys.argv[1], sys.argv[2], int(sys.argv[3])
opener = everturn.open, everturn.open_async  # importing everturn itself needs files, too
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

def starve():
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for handle in held[len(held) - free:]:
        os.close(handle)

def use(store):
    store.add_messages("a", [ChatMessage("user", "1")])
    store.get_history("a")
    store.verify()
    drive(store._operations.backend.examine(time.monotonic() + 5))
    store.erase("a")

async def use_async():
    starve()
    async with await opener[1](url) as store:
        await store.add_messages("a", [ChatMessage("user", "1")])
        await store.get_history("a")

try:
    if what == "new":
        starve()
        use(opener[0](url))
    elif what == "open":
        store = opener[0](url)
        starve()
        use(store)
    else:
        asyncio.run(use_async())
except everturn.MemoryStoreBackendError as exc:
    os.write(1, b"ours: " + str(exc).encode())
else:
    os.write(1, b"fine")
os._exit(0)
"""


@pytest.mark.parametrize("what", ["new", "open", "async"])
def test_with_few_handles_left_the_error_is_ours(what: str, tmp_path: Path) -> None:
    said = []
    for free in range(8 if what != "async" else 1, -1, -1):
        url = f"sqlite:///{tmp_path / f'{what}-{free}.db'}"
        given = ["-c", CHILD, url, what, str(free + 3 if what == "async" else free)]
        ran = subprocess.run([sys.executable, *given], capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout)
    assert said[-1].startswith("ours: "), "it was not starved"
    assert all("open files" in text or "files are open" in text for text in said if text != "fine")
