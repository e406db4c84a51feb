"""The order of events: append to both stores, kill one worker, give wrong answers, roll back, count."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
import threading
from pathlib import Path

from everturn.cli.demo import screen
from everturn.cli.demo.stores import FILES, SESSION, open_store
from everturn.cli.demo.verdict import DemoCounts, judge
from everturn.cli.output import command
from everturn.errors import MemoryStoreBackendError

WORKERS, TURNS = 6, 120
NAMES = {"naive": "a JSON list, read and written back", "everturn": "everturn"}
TIMEOUT = 120.0  # seconds, for the slowest machine


def run(folder: Path, chance: random.Random) -> None:
    """Run the whole demo. The files stay in the folder."""
    screen.line(f"One customer, {WORKERS} worker processes, {TURNS} turns each. One worker will be killed with -9.")
    verdicts: dict[str, DemoCounts] = {}
    for name, title in NAMES.items():
        screen.title(f"The conversation is stored by {title}")
        acknowledged = serve(name, folder, chance)
        verdicts[title] = judge(acknowledged, open_store(name, folder).history())
    screen.title("Then the bot gives wrong answers, and is rolled back. Each step is a process of its own:")
    for letter, step in zip("ABCDE", ("snapshot", "wrong_answers", "look", "rollback", "look"), strict=True):
        screen.line(f"  process {letter} {_step(step, folder)}")
    screen.verdicts(verdicts)
    path = shlex.quote(str(folder / FILES["everturn"]))
    screen.title("Try next:")
    everturn = command()
    screen.command(f"{everturn} log {path} {SESSION} -n 20", "the changes, as a graph")
    screen.command(f"{everturn} show {path} {SESSION} -n 6", "the latest messages")
    screen.command(f"{everturn} check sqlite:///memory.db", "test any store, ours or yours")


def serve(name: str, folder: Path, chance: random.Random) -> list[str]:
    """Run the workers, kill one of them, and return the turns that were acknowledged."""
    victim, moment = chance.randrange(WORKERS), chance.randrange(TURNS // 5, TURNS // 2)
    bars = screen.WorkerBars(WORKERS, TURNS)
    workers = [_start("serve", name, str(folder), str(number), str(TURNS)) for number in range(WORKERS)]
    acknowledged: list[list[str]] = [[] for _ in workers]

    def read_output(number: int) -> None:
        worker = workers[number]
        for said in worker.stdout or ():
            acknowledged[number].append(said.strip())
            bars.done[number] = len(acknowledged[number])
            if number == victim and len(acknowledged[number]) == moment:
                worker.kill()
                bars.killed = number

    try:
        for worker in workers:
            (worker.stdout and worker.stdout.readline()) or _failed(worker)  # ready
        with screen.live(bars):
            readers = [threading.Thread(target=read_output, args=(number,)) for number in range(WORKERS)]
            for reader in readers:
                reader.start()
            for worker in workers:
                if worker.stdin is not None:
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
            for reader in readers:
                reader.join(TIMEOUT)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()
    return [turn for turns in acknowledged for turn in turns]


def _start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "everturn.cli.demo.worker", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to this process, which ends them
    )


def _step(name: str, folder: Path) -> str:
    worker = _start(name, str(folder))
    said, _ = worker.communicate(timeout=TIMEOUT)
    return said.strip() if worker.returncode == 0 else _failed(worker)


def _failed(worker: subprocess.Popen[str]) -> str:
    raise MemoryStoreBackendError(
        f"a worker of the demo ended with code {worker.wait(TIMEOUT)}; its message is above", outcome="not_written"
    )
