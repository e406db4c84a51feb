"""Posts, retries and kills: whatever happens to workers, each question is stored once and has one answer.

The servers are real (`uvicorn --workers`), and so are the kills (SIGKILL).
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import everturn

HERE = Path(__file__).parent
PATIENCE = 60.0  # seconds: workers take a while to start on a busy machine

CRASHING = '''
"""The application, in which one worker kills itself, once, at the point that CRASH_AT names."""
import os, signal
from pathlib import Path

import app as chat
from everturn import AsyncMemoryStore

app = chat.app
ask, append = chat.ask_model, AsyncMemoryStore.add_messages


def crash(point):
    mark = Path(os.environ["CRASH_MARK"])
    if point == os.environ["CRASH_AT"] and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


async def ask_model(messages):
    crash("while the model answers")
    answer = await ask(messages)
    crash("before the turn is stored")
    return answer


async def add_messages(self, *args, **options):
    receipt = await append(self, *args, **options)
    crash("before the response is sent")
    return receipt


chat.ask_model, AsyncMemoryStore.add_messages = ask_model, add_messages
'''


@contextmanager
def served(
    application: str, workers: int, folder: Path, **environment: str
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Serve the application with so many workers. Yields its port and its process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", application, "--workers", str(workers), "--port", str(port)]
    paths = os.pathsep.join([str(folder), str(HERE)])
    environment = {**os.environ, "CHAT_STORE": f"sqlite:///{folder / 'memory.db'}", "PYTHONPATH": paths, **environment}
    server = subprocess.Popen(
        [*command, "--log-level", "critical"], cwd=folder, env=environment, start_new_session=True
    )
    try:
        yield port, server
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def post(port: int, chat: str, text: str, key: str) -> str:
    """Post a message as a client does: again and again with the same key, until there is an answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
            try:
                connection.request("POST", f"/chats/{chat}", json.dumps({"text": text}), headers)
                response = connection.getresponse()
                if response.status == 200:
                    return str(json.load(response)["answer"])
            finally:
                connection.close()
        time.sleep(0.05)
    raise AssertionError(f"no answer to {text!r} within {PATIENCE} seconds")


def stored(folder: Path, chat: str) -> list[tuple[Any, Any]]:
    """Read a chat as pairs of question and answer."""
    with everturn.open(f"sqlite:///{folder / 'memory.db'}") as store:
        texts = [message.content for message in store.get_history(chat)]
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize(
    "point", ["while the model answers", "before the turn is stored", "before the response is sent"]
)
def test_a_retry_after_a_crash_gets_the_one_answer(point: str, tmp_path: Path) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    mark = tmp_path / "crashed"
    with served("crashing:app", 2, tmp_path, CRASH_AT=point, CRASH_MARK=str(mark)) as (port, _):
        answer = post(port, "customer-42", "My order is 1234.", "request-1")
        assert mark.exists(), "no worker crashed"
        assert post(port, "customer-42", "My order is 1234.", "request-1") == answer
    assert stored(tmp_path, "customer-42") == [("My order is 1234.", answer)]


def test_workers_that_are_killed_at_random_lose_and_double_nothing(tmp_path: Path) -> None:
    chats, clients, messages = ["a", "b"], 4, 6
    given: dict[tuple[str, str], str] = {}
    with served("app:app", 4, tmp_path) as (port, server):
        post(port, "a", "first", "first")  # the workers are up
        done = threading.Event()
        killer = threading.Thread(target=kill_workers, args=(server.pid, done))
        killer.start()

        def talk(client: int) -> None:
            for number in range(messages):
                chat, text = random.choice(chats), f"question {client}.{number}"
                given[chat, text] = post(port, chat, text, key=text)

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(talk, range(clients)))
        done.set()
        killer.join()
    pairs = {(chat, question): answer for chat in chats for question, answer in stored(tmp_path, chat)}
    assert sum(len(stored(tmp_path, chat)) for chat in chats) == clients * messages + 1, "a question is stored twice"
    assert {question: pairs[question] for question in given} == given, "a client was given another answer"


def kill_workers(parent: int, done: threading.Event) -> None:
    """Kill a random worker of the server, three times a second, for a while. The server starts others."""
    end = time.monotonic() + 3
    while time.monotonic() < end and not done.wait(0.3):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        workers = [pid for pid in children if b"spawn_main" in _command_line(pid)]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(int(random.choice(workers)), signal.SIGKILL)


def _command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended just now
