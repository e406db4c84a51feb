"""The order of events: serve over both stores, kill one worker, go astray, come back, count."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

from everturn.cli.demo import screen
from everturn.cli.demo.stores import FILES, SESSION, open_store
from everturn.cli.demo.verdict import Verdict, judge
from everturn.cli.output import command
from everturn.errors import MemoryStoreBackendError

WORKERS, TURNS = 6, 120
NAMES = {"naive": "a list, read and written back", "everturn": "everturn"}
PATIENCE = 120.0  # seconds, for the slowest machine


def tell(folder: Path, chance: random.Random) -> None:
    """The whole demo, in the folder, which is left there to be looked at."""
    screen.line(f"One customer, {WORKERS} worker processes, {TURNS} turns each. One worker will be killed with -9.")
    verdicts: dict[str, Verdict] = {}
    for name, title in NAMES.items():
        screen.title(f"The conversation is kept by {title}")
        acknowledged = serve(name, folder, chance)
        verdicts[title] = judge(acknowledged, open_store(name, folder).history())
    screen.title("Then the bot goes astray. Each step in a process of its own:")
    for letter, step in zip("ABCDE", ("snapshot", "astray", "look", "rollback", "look"), strict=True):
        screen.line(f"  process {letter} {_step(step, folder)}")
    screen.verdicts(verdicts)
    path = folder / FILES["everturn"]
    screen.title("Go on with:")
    everturn = command()
    screen.command(f"{everturn} log {path} {SESSION} -n 20", "how it came to be")
    screen.command(f"{everturn} show {path} {SESSION} -n 6", "what the bot remembers")
    screen.command(f"{everturn} check sqlite:///memory.db", "the contract, against any store: ours or yours")


def serve(name: str, folder: Path, chance: random.Random) -> list[str]:
    """Let the workers serve, kill one of them, and return the turns that were acknowledged."""
    victim, moment = chance.randrange(WORKERS), chance.randrange(TURNS // 5, TURNS // 2)
    serving = screen.Serving(WORKERS, TURNS)
    workers = [_start("serve", name, str(folder), str(number), str(TURNS)) for number in range(WORKERS)]
    heard: list[list[str]] = [[] for _ in workers]

    def listen(number: int) -> None:
        worker = workers[number]
        for said in worker.stdout or ():
            heard[number].append(said.strip())
            serving.done[number] = len(heard[number])
            if number == victim and len(heard[number]) == moment:
                worker.kill()
                serving.killed = number

    try:
        for worker in workers:
            (worker.stdout and worker.stdout.readline()) or _failed(worker)  # ready
        with screen.live(serving):
            ears = [threading.Thread(target=listen, args=(number,)) for number in range(WORKERS)]
            for ear in ears:
                ear.start()
            for worker in workers:
                if worker.stdin is not None:
                    worker.stdin.write("go\n")
                    worker.stdin.flush()
            for ear in ears:
                ear.join(PATIENCE)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    pipe.close()
    return [turn for turns in heard for turn in turns]


def _start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "everturn.cli.demo.worker", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: we end them
    )


def _step(name: str, folder: Path) -> str:
    worker = _start(name, str(folder))
    said, _ = worker.communicate(timeout=PATIENCE)
    return said.strip() if worker.returncode == 0 else _failed(worker)


def _failed(worker: subprocess.Popen[str]) -> str:
    raise MemoryStoreBackendError(
        f"a worker of the demo ended with code {worker.wait(PATIENCE)}; its message is above", outcome="not_written"
    )
