"""Bytes on disk over bytes of JSON stored, after a checkpoint: one session, and 100 grown side by side."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

import everturn
from benchmarks.plan import Bar, Plan, Row
from benchmarks.stats import spread
from everturn.bench.contenders.bare import BareSqlite
from everturn.bench.contenders.everturn_store import as_messages, url
from everturn.bench.workload import json_bytes
from everturn.bench.workload import turns as make_turns

TURNS = 5_000


def measure(plan: Plan) -> Iterator[Row]:
    """Baseline: the JSON of the messages themselves, `{"role":..,"content":..}` without spaces.

    Turns of two 200-byte messages, written one at a time in turn over the sessions, which splits pages the
    way life does. All files of the store are counted, after close and a truncating checkpoint. A size does
    not vary: there is no spread.
    """
    written = make_turns(TURNS)
    for sessions in (1, 100):
        ids = [f"session-{number}" for number in range(sessions)]
        path = plan.path(f"size/{sessions}")
        with everturn.open(url(path), synchronous="OFF") as store:  # quicker, and the same file
            for number, turn in enumerate(written):
                store.add_messages(ids[number % sessions], as_messages(turn))
        bare_path = plan.path(f"size/bare-{sessions}")
        with closing(BareSqlite(bare_path)) as bare:
            for number, turn in enumerate(written):
                bare.add(ids[number % sessions], turn)
        stored = json_bytes([message for turn in written for message in turn])
        ours, theirs = _settled_bytes(path), _settled_bytes(bare_path)
        yield Row(
            f"file size, {2 * len(written):,} messages, "
            + ("one session" if sessions == 1 else f"{sessions} interleaved"),
            f"{ours / 1e6:.2f} MB",
            f"{stored / 1e6:.2f} MB JSON",
            spread([ours / stored]),
            bar=Bar("<=", 1.5),
            note=f"bare clustered table: {theirs / stored:.2f} x",
        )


def _settled_bytes(path: Path) -> int:
    for file in path.glob("*.db"):
        with closing(apsw.Connection(str(file))) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in path.iterdir())
