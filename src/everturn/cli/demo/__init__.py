"""`everturn demo`: the incident, replayed live: six workers, one conversation, two stores, a kill -9, a rollback.

    __init__.py   the command and the order of events
    stores.py     the two ways to remember: a list read, changed and written back; and everturn
    worker.py     one worker process: take a question, think, answer, remember
    verdict.py    what was acknowledged beside what is there
    screen.py     how it looks, with and without a terminal

Nothing is faked: every worker is a process of its own, and the verdict is read back from the files.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def demo(
    seed: Annotated[int | None, typer.Option(help="Fixes who is killed, and when.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Where to leave the files; else a new temporary directory.")] = None,
) -> None:
    """Replay the incident in about 15 seconds.

    Six processes serve one conversation, first over a list that is read, changed and written back, then over
    everturn on a SQLite file. One of them is killed with -9. Then the bot goes astray and is rolled back, each step
    from a process of its own. The table at the end counts what was acknowledged, lost, doubled and torn.

    \b
    Examples:
      everturn demo
      everturn demo --seed 7 | cat
    """
    from everturn.cli.demo import story

    folder = keep or Path(tempfile.mkdtemp(prefix="everturn-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    story.tell(folder, random.Random(seed))  # noqa: S311 - it chooses who is killed, it guards no secret
