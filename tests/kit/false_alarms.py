"""Sound stores, many seeds, no failure: `python -m tests.kit.false_alarms [SEEDS] [TARGET...]`, or `make false-alarms`.

A kit that raises false alarms is switched off. Ours on every backend and both faces, one by hand in each shape, lists
in memory, and stores of unusual style: picky ids, limits, compression, a file for each message, HTTP, jsonb.
"""

from __future__ import annotations

import sys
import time

from everturn.testing.contract import CLAUSES
from everturn.testing.kit.environment import Environment
from everturn.testing.kit.runner import QUICK_SECONDS, Chosen, Runner, run_all
from everturn.testing.kit.target import parse
from everturn.testing.results import RunReport

SEEDS = 50
SOUND = "tests.kit.sound"
TARGETS = (
    *("sqlite:///memory.db", "sqlite://", "redis://", "postgresql://", "dynamodb://"),
    *(f"{SOUND}.ours:{name}" for name in ("sqlite", "redis", "postgres", "dynamodb")),
    *(f"{SOUND}.shapes:{name}" for name in ("lists", "pairs", "singles", "langchain", "agents", "llamaindex")),
    *(f"{SOUND}.shapes:{name}" for name in ("adk", "langgraph", "history", "workflows", "strands", "items")),
    *(f"{SOUND}.memory:{name}" for name in ("threads", "tasks")),
    *(f"{SOUND}.files:factory", f"{SOUND}.redis_lists:factory"),
    *(f"{SOUND}.compaction:{name}" for name in ("lists", "agents")),
    f"{SOUND}.resume:lists",
    *(f"{SOUND}.styles:{name}" for name in ("picky", "identifiers", "limited", "compressed")),
    *(f"{SOUND}.styles:{name}" for name in ("gzip_files", "file_per_message")),
    *(f"{SOUND}.postgres_rows:{name}" for name in ("jsonb", "serializable")),
    *(f"{SOUND}.compressed_redis:factory", f"{SOUND}.http_service:factory"),
)


def quick_run(target: str, seed: int) -> RunReport:
    chosen = [Chosen(clause) for clause in CLAUSES]
    with Environment(parse(target), seed=seed, quick=True) as run:
        return run_all(Runner(run, chosen, budget=QUICK_SECONDS), chosen)


def main(seeds: int, targets: list[str]) -> int:
    alarms = 0
    for target in targets or TARGETS:
        began = time.monotonic()
        for seed in range(seeds):
            report = quick_run(target, seed)
            for clause in report.clauses:
                if clause.status in {"broken", "untested"}:
                    alarms += 1
                    story = clause.violations[0].story if clause.violations else ""
                    print(f"{target} seed {seed}: {clause.id} {clause.status} {clause.detail}\n{story}", flush=True)
        print(f"{target:<40} {seeds} runs, {(time.monotonic() - began) / seeds:.1f} s each", flush=True)
    return 1 if alarms else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    count = int(words.pop(0)) if words and words[0].isdigit() else SEEDS
    sys.exit(main(count, words))
