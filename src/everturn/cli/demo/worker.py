"""One process of the demo: append turns, or do one step of the rollback. Prints every acknowledged turn.

python -m everturn.cli.demo.worker serve STORE FOLDER NUMBER TURNS
python -m everturn.cli.demo.worker STEP FOLDER
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from everturn.cli.demo.stores import FILES, SESSION, open_store

THINKING = (0.01, 0.04)  # seconds; a model takes longer, and leaves more time for things to go wrong


def serve(name: str, folder: Path, number: int, turns: int) -> None:
    """Read, think, store a turn; print it once the store has acknowledged it."""
    store = open_store(name, folder)
    say("ready")
    sys.stdin.readline()  # all begin together
    for count in range(turns):
        turn = f"{number}.{count}"
        store.history()
        time.sleep(random.uniform(*THINKING))  # noqa: S311 - no secret
        store.remember(turn, f"question {turn}", f"answer {turn}")
        say(turn)


def snapshot(folder: Path) -> None:
    import everturn

    with everturn.open(f"sqlite:///{folder / FILES['everturn']}") as store:
        taken = store.save_snapshot(SESSION, "before the new prompt")
    say(f"saves the snapshot {taken.label!r} of {taken.messages} messages")


def wrong_answers(folder: Path) -> None:
    import everturn

    with everturn.open(f"sqlite:///{folder / FILES['everturn']}") as store:
        for _ in range(3):
            store.save_context(SESSION, "Where is my order 1234?", "What is your order number?")
    say('starts with the new prompt; three times the bot asks "What is your order number?"')


def rollback(folder: Path) -> None:
    import everturn

    with everturn.open(f"sqlite:///{folder / FILES['everturn']}") as store:
        taken = store.list_snapshots(SESSION)[-1]
        store.rollback_to_snapshot(SESSION, taken)
    say(f"rolls back to {taken.label!r}")


def look(folder: Path) -> None:
    import everturn

    with everturn.open(f"sqlite:///{folder / FILES['everturn']}") as store:
        left = [message.text for message in store.get_history(SESSION)]
        snapshots = len(store.list_snapshots(SESSION))
    say(f"reads {len(left)} messages, the last {left[-1]!r}; {snapshots} snapshot is there")


STEPS = {"snapshot": snapshot, "wrong_answers": wrong_answers, "rollback": rollback, "look": look}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(what: str, *rest: str) -> None:
    if what == "serve":
        name, folder, number, turns = rest
        serve(name, Path(folder), int(number), int(turns))
    else:
        STEPS[what](Path(rest[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
