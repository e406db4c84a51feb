"""The command `demo`: six workers, one conversation, two stores, a kill -9, a rollback.

__init__.py  the command
scenario.py  the order of events
stores.py    the two stores: a list that is read, changed and written back; and everturn
worker.py    one worker process: take a question, think, answer, store
verdict.py   acknowledged turns compared with stored ones
screen.py    output, with and without a terminal

Nothing is faked: every worker is a process of its own, and the counts are read back from the files.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from everturn.errors import InvalidInput


def demo(
    seed: Annotated[int | None, typer.Option(help="Repeat a demo: fixes which worker is killed, and when.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="An empty directory for the files; default: a new temporary one.")
    ] = None,
) -> None:
    """Watch two stores lose turns, or not: 15 seconds.

    Six processes append to one conversation: first to a list that is read, changed and written back, then to everturn
    on a SQLite file. One process is killed with -9. Then the bot gives wrong answers and the session is rolled back,
    each step from a process of its own. The table at the end counts turns that were acknowledged, lost, stored twice,
    and torn (a question without its answer).

    \b
    Examples:
      everturn demo
      everturn demo --seed 7 | cat
    """
    from everturn.cli.demo import scenario

    folder = keep or Path(tempfile.mkdtemp(prefix="everturn-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty, and would be counted as well; name another", path="keep")
    scenario.run(folder, random.Random(seed))  # noqa: S311 - it chooses who is killed, it guards no secret
