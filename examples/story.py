"""A night on call, in a few seconds: six workers, a kill -9, a bot that went astray, and the way back.

Run it with `make try`. Every worker is a process of its own; they share one SQLite file and nothing else.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import everturn
from everturn import ChatMessage

WORKERS, TURNS = 6, 60
SESSION = "customer-42"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="everturn-") as folder:
        url = f"sqlite:///{Path(folder) / 'memory.db'}"
        print(f"One conversation, {WORKERS} worker processes, {TURNS} turns each, one SQLite file.\n")
        acknowledged = serve(url)
        judge(url, acknowledged)
        go_astray_and_return(url)
    print("\nAll of it through the public API; the code is examples/story.py, the promises are in docs/guarantees.md.")


# --- six workers, one conversation -----------------------------------------------------------------------------------


def serve(url: str) -> list[str]:
    """Start the workers, kill one of them at a random moment, and return the turns that were acknowledged."""
    everturn.open(url).close()
    workers = [start("work", url, str(number)) for number in range(WORKERS)]
    number = random.randrange(WORKERS)
    heard = [workers[number].stdout.readline() for _ in range(random.randrange(5, TURNS // 2))]  # type: ignore[union-attr]
    workers[number].send_signal(signal.SIGKILL)
    said = [worker.communicate()[0].split() for worker in workers]
    said[number] = "".join(heard).split() + said[number]
    print(f"worker {number} was killed with -9 after {len(said[number])} acknowledged turns")
    return [turn for turns in said for turn in turns]


def work(url: str, number: str) -> None:
    """What a worker does: append turns, and say which were acknowledged."""
    with everturn.open(url) as store:
        for count in range(TURNS):
            turn = f"{number}.{count}"
            question = ChatMessage("user", f"question {turn}")
            answer = ChatMessage("assistant", f"answer {turn}")
            store.add_messages(SESSION, [question, answer], key=turn)
            print(turn, flush=True)


def judge(url: str, acknowledged: list[str]) -> None:
    """Compare what was acknowledged with what is there."""
    with everturn.open(url) as store:
        history = store.get_history(SESSION)
        sound = store.verify().ok
    questions = [message.text.removeprefix("question ") for message in history[::2]]
    answers = [message.text.removeprefix("answer ") for message in history[1::2]]
    stored = Counter(questions)
    torn = sum(question != answer for question, answer in zip(questions, answers, strict=True))
    lost = sum(turn not in stored for turn in acknowledged)
    doubled = sum(count > 1 for count in stored.values())
    verdict = "finds nothing wrong" if sound else "FINDS DAMAGE"
    print(f"acknowledged {len(acknowledged)}, lost {lost}, doubled {doubled}, torn {torn}; verify {verdict}\n")


# --- the bot goes astray, and is brought back from other processes ---------------------------------------------------


def go_astray_and_return(url: str) -> None:
    """Each step in a process of its own, as it would be at night."""
    steps = ("snapshot", "astray", "rollback", "look", "undo", "look", "rollback", "look")
    for letter, name in zip("ABCDEFGH", steps, strict=True):
        print(f"process {letter}   {start('step', url, name).communicate()[0]}", end="")


def step(url: str, name: str) -> None:
    with everturn.open(url) as store:
        if name == "snapshot":
            snapshot = store.save_snapshot(SESSION, "before the new prompt")
            print(f"saves the snapshot {snapshot.label!r} at {snapshot.messages} messages")
        elif name == "astray":
            for _ in range(3):
                store.save_context(SESSION, "Where is my order?", "What is your order number?")
            print("asks for the order number three times; the customer had given it")
        elif name == "rollback":
            snapshot = store.list_snapshots(SESSION)[0]
            store.rollback_to_snapshot(SESSION, snapshot)
            print(f"rolls back to {snapshot.label!r}: one pointer moves, nothing is deleted")
        elif name == "undo":
            store.undo(SESSION)
            print("changes its mind: undo")
        else:
            count = store.info(SESSION).messages
            labels = [snapshot.label for snapshot in store.list_snapshots(SESSION)]
            print(f"sees {count} messages, and the snapshots {labels}")


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", url, number]:
            work(url, number)
        case ["step", url, name]:
            step(url, name)
        case _:
            main()
