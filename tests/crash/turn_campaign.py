"""The turn campaign: workers write turns to sessions that they share, and are stopped and killed; servers have faults.

    python -m tests.crash.turn_campaign --place dynamodb --turns 2000 --seed 1

Each worker says in a file what it begins and what it was told. At the end every turn that was acknowledged is there,
once, whole, in the order in which its worker was told; none is there that was `not_written`.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import everturn
from tests.crash.effect_places import PLACES, Place
from tests.crash.turn_worker import acknowledged, turn, work
from tests.integration.children import PATIENCE, Child

WORKERS = 6
ASLEEP = 2  # workers that are stopped at a time, at most
KILLS, STOPS, FAULTS = (30, 90), (5, 20), (20, 60)  # turns acknowledged from one to the next
SLEEP = (0.05, 3.0)  # seconds that a worker is stopped; longer than it keeps a place in a queue
STEP = 0.005  # seconds between two looks at the file


@dataclass
class Verdict:
    """The figures of a campaign, and its findings."""

    figures: dict[str, int | float]
    problems: list[str] = field(default_factory=list)


class Campaign:
    """One run at one place. The numbers of kills, stops and faults follow from the progress, not from the time."""

    def __init__(self, place: Place, turns: int, seed: int, folder: Path) -> None:
        self._place = place
        self._turns = turns
        self._seed = seed
        self._dice = random.Random(f"turns {seed}")
        self._told = folder / "told"
        self._told.write_text("\n")
        self._asleep: dict[int, tuple[float, Child]] = {}
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._started = 0
        self.counts: Counter[str] = place.counts

    def run(self) -> Verdict:
        """Run it to its end, and judge."""
        began = time.monotonic()
        everturn.open(self._place.url, **self._place.options).close()
        faults = threading.Thread(target=self._make_faults)
        workers: list[Child] = []
        faults.start()
        try:
            self._go_on(workers)
        finally:
            self._over.set()
            faults.join()
            for worker in workers:
                worker.kill_all()
        if self._failures:
            raise self._failures[0]
        self.counts["seconds"] = round(time.monotonic() - began)
        return self._judged()

    def _start(self) -> Child:
        self._started += 1
        options = json.dumps(self._place.options)
        return Child(work, self._place.url, options, self._told, self._turns, f"{self._seed}-{self._started}")

    def _go_on(self, workers: list[Child]) -> None:
        workers += [self._start() for _ in range(WORKERS)]
        kill, stop = self._dice.randint(*KILLS), self._dice.randint(*STOPS)
        kept, progress = 0, time.monotonic()
        while workers and not self._failures:
            time.sleep(STEP)
            self._wake()
            workers[:] = [worker for worker in workers if not self._has_ended(worker)]
            now, before = time.monotonic(), kept
            kept = acknowledged(self._told)
            progress = now if kept > before or len(workers) < WORKERS else progress
            assert now - progress < PATIENCE, f"no turn was kept for {PATIENCE:g} s, at {kept} of {self._turns}"
            if kept >= stop:
                stop = kept + self._dice.randint(*STOPS)
                self._stop(workers)
            if kept >= kill and len(workers) == WORKERS:
                kill = kept + self._dice.randint(*KILLS)
                worker = workers.pop(self._dice.randrange(WORKERS))
                worker.kill_all()
                self._asleep.pop(worker.pid, None)
                workers.append(self._start())
                self.counts["kills"] += 1

    def _has_ended(self, worker: Child) -> bool:
        code = worker.poll()
        if code is None:
            return False
        complaint = worker.stderr.read()
        worker.kill_all()
        assert code == 0, f"a worker failed ({code}):\n{complaint}"
        return True

    def _stop(self, workers: list[Child]) -> None:
        awake = [worker for worker in workers if worker.pid not in self._asleep]
        if awake and len(self._asleep) < ASLEEP:
            worker = self._dice.choice(awake)
            worker.send_signal(signal.SIGSTOP)
            self._asleep[worker.pid] = time.monotonic() + self._dice.uniform(*SLEEP), worker
            self.counts["stops"] += 1

    def _wake(self) -> None:
        for pid, (until, worker) in list(self._asleep.items()):
            if time.monotonic() >= until:
                worker.send_signal(signal.SIGCONT)
                del self._asleep[pid]

    def _make_faults(self) -> None:
        """Make faults of the servers, in a thread of their own: workers are stopped and killed meanwhile."""
        dice, due = random.Random(f"faults {self._seed}"), 0
        try:
            while not self._over.wait(0.02):
                faults = self._place.faults(dice)
                if faults and (kept := acknowledged(self._told)) >= due:
                    due = kept + dice.randint(*FAULTS)
                    self.counts[faults[self.counts["faults"] % len(faults)]()] += 1
                    self.counts["faults"] += 1
        except BaseException as exc:  # noqa: BLE001 - the campaign ends with it
            self._failures.append(exc)

    # --- the verdict -------------------------------------------------------------------------------------------------

    def _judged(self) -> Verdict:
        outcomes = outcomes_of(self._told.read_text())
        problems: list[str] = []
        with everturn.open(self._place.url, **self._place.options | {"timeout": 120}) as store:
            for session_id in sorted({session_id for session_id, _ in outcomes}):
                messages = [str(message.content) for message in store.get_history(session_id)]
                problems += findings(session_id, messages, outcomes)
            problems += [f"verify: {problem}" for problem in store.verify().problems]
        figures: dict[str, int | float] = {
            **dict(sorted(Counter(outcomes.values()).items())),
            **dict(sorted(self.counts.items())),
        }
        return Verdict(figures, problems)


def outcomes_of(told: str) -> dict[tuple[str, str], str]:
    """What each turn came to, by its session and key, in the order in which they were begun; a killed worker's last
    is `begun` alone."""
    found: dict[tuple[str, str], str] = {}
    for line in told.split("\n"):
        if line:
            outcome, session_id, key = line.split(" ")
            found[session_id, key] = outcome
    return found


def findings(session_id: str, messages: list[str], outcomes: dict[tuple[str, str], str]) -> list[str]:
    """Say what of a history is not as its writers were told."""
    here = {key: outcome for (name, key), outcome in outcomes.items() if name == session_id}
    keys = [text.split(" ")[0] for text in messages[::2]]
    torn = [
        key
        for key, *pair in zip(keys, messages[::2], messages[1::2], strict=False)
        if pair != [str(message.content) for message in turn(key)]
    ]
    times = Counter(keys)
    problems = [f"{session_id}: {key} is torn" for key in torn]
    problems += [f"{session_id}: a message too few or too many"] if len(messages) % 2 else []
    problems += [f"{session_id}: {key} is there {count} times" for key, count in times.items() if count > 1]
    problems += [f"{session_id}: {key} is lost" for key, told in here.items() if told == "kept" and key not in times]
    problems += [
        f"{session_id}: {key} was not written, and is there" for key in times if here.get(key) == "not_written"
    ]
    problems += [f"{session_id}: nobody wrote {key}" for key in times if key not in here]
    latest: dict[str, int] = {}
    for key in keys:
        worker, number = key.split(".")[0], int(key.split(".")[1])
        if number <= latest.get(worker, 0):
            problems.append(f"{session_id}: {key} is behind number {latest[worker]} of its worker")
        latest[worker] = number
    return problems


def run(name: str, turns: int, seed: int) -> Verdict:
    """Run a campaign at a place of its own."""
    with tempfile.TemporaryDirectory(prefix="everturn-turns-") as folder, PLACES[name](Path(folder)) as place:
        return Campaign(place, turns, seed, Path(folder)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", default="all", choices=[*PLACES, "all"])
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    bad = 0
    for name in PLACES if args.place == "all" else [args.place]:
        verdict = run(name, args.turns, args.seed)
        bad += len(verdict.problems)
        print(f"{name}: {json.dumps(verdict.figures)}", flush=True)
        for problem in verdict.problems[:50]:
            print(f"  {problem}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
