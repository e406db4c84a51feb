"""The effect campaign: eight workers do effects under short leases, and are stopped and killed; servers fail over.

    python -m tests.crash.effect_campaign --place sqlite --effects 10000 --seed 1

The world is a file that only effects write to, a line each. No effect has two lines, and each that has none is in
doubt. No change that names a lease stands behind one of a later lease.
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
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import everturn
from tests.crash.effect_places import PLACES, Place
from tests.crash.effect_worker import KEYS, LINE, NOTES, SEEN, session_of, work
from tests.integration.children import PATIENCE, Child

WORKERS = 8
ASLEEP = 3  # workers that are stopped at a time, at most
KILLS, STOPS, FAULTS = (20, 80), (2, 12), (150, 450)  # lines in the world from one to the next
SLEEP = (0.01, 0.3)  # seconds that a worker is stopped: most sleep past their lease
STEP = 0.002  # seconds between two looks at the world


@dataclass
class Verdict:
    """The figures of a campaign, and its findings."""

    figures: dict[str, int | float]
    problems: list[str] = field(default_factory=list)


class Campaign:
    """One run at one place. The numbers of kills, stops and faults follow from the progress, not from the time."""

    def __init__(self, place: Place, effects: int, seed: int, folder: Path) -> None:
        self._place = place
        self._effects = effects
        self._seed = seed
        self._dice = random.Random(f"effects {seed}")
        self._world = folder / "world"
        self._notes = folder / f"world{NOTES}"
        self._world.touch()
        self._notes.touch()
        self._workers: list[Child] = []
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
        faults.start()
        try:
            self._go_on()
        finally:
            self._over.set()
            faults.join()
            for worker in self._workers:
                worker.kill_all()
        if self._failures:
            raise self._failures[0]
        self.counts["seconds"] = round(time.monotonic() - began)
        return self._judged()

    @property
    def _lines(self) -> int:
        return self._world.stat().st_size // LINE

    # --- workers -----------------------------------------------------------------------------------------------------

    def _start(self) -> Child:
        self._started += 1
        options, seed = json.dumps(self._place.options), f"{self._seed} {self._started}"
        return Child(work, self._place.url, options, self._world, self._effects, seed)

    def _go_on(self) -> None:
        kill, stop = self._dice.randint(*KILLS), self._dice.randint(*STOPS)
        lines, progress = 0, time.monotonic()
        self._workers = [self._start() for _ in range(WORKERS)]
        while self._workers and not self._failures:
            time.sleep(STEP)
            self._wake()
            self._workers = [worker for worker in self._workers if not self._has_ended(worker)]
            now, before = time.monotonic(), lines
            lines = self._lines
            progress = now if lines > before or len(self._workers) < WORKERS else progress
            if now - progress > PATIENCE:
                raise AssertionError(f"no effect was done for {PATIENCE:g} s, at {lines} of {self._effects}")
            if lines >= stop:
                stop = lines + self._dice.randint(*STOPS)
                self._stop()
            if lines >= kill:
                kill = lines + self._dice.randint(*KILLS)
                self._kill()

    def _has_ended(self, worker: Child) -> bool:
        code = worker.poll()
        if code is None:
            return False
        complaint = worker.stderr.read()
        worker.kill_all()
        assert code == 0, f"a worker failed ({code}):\n{complaint}"
        return True

    def _stop(self) -> None:
        awake = [worker for worker in self._workers if worker.pid not in self._asleep]
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

    def _kill(self) -> None:
        if self._workers:
            worker = self._workers.pop(self._dice.randrange(len(self._workers)))
            worker.kill_all()
            self._asleep.pop(worker.pid, None)
            self._workers.append(self._start())
            self.counts["kills"] += 1

    # --- servers -----------------------------------------------------------------------------------------------------

    def _make_faults(self) -> None:
        """Make faults of the servers, in a thread of their own: workers are stopped and killed meanwhile."""
        dice, due = random.Random(f"faults {self._seed}"), 0
        if not self._place.faults(dice):
            return
        try:
            while not self._over.wait(0.02):
                if self._lines >= due:
                    faults = self._place.faults(dice)
                    due = self._lines + dice.randint(*FAULTS)
                    self.counts[faults[self.counts["faults"] % len(faults)]()] += 1
                    self.counts["faults"] += 1
        except BaseException as exc:  # noqa: BLE001 - the campaign ends with it
            self._failures.append(exc)

    # --- the verdict -------------------------------------------------------------------------------------------------

    def _judged(self) -> Verdict:
        done = Counter(int(line.split()[0]) for line in self._world.read_text().splitlines())
        texts = {int(line.split()[0]): line for line in self._world.read_text().splitlines(keepends=True)}
        problems = [f"effect {number} was done {times} times" for number, times in done.items() if times > 1]
        finished, doubtful, attempts = set[int](), set[int](), 0
        with ExitStack() as stack:
            store = stack.enter_context(everturn.open(self._place.url, **self._place.options | {"timeout": 60}))
            for first in range(0, self._effects, KEYS):
                session_id = session_of(first)
                for effect in store.get_effects(session_id):
                    number, attempts = int(effect.key), attempts + effect.attempt
                    if effect.status == "finished":
                        finished.add(number)
                        if effect.result != texts.get(number):
                            problems.append(f"effect {number} ended with {effect.result!r}, not {texts.get(number)!r}")
                    elif effect.status == "started":
                        doubtful.add(number)
                    else:
                        problems.append(f"effect {number} is {effect.status} at the end")
                problems += fence_breaks(session_id, [str(one.content) for one in store.get_history(session_id)])
            problems += [f"verify: {problem}" for problem in store.verify().problems]
        missing = set(range(self._effects)) - set(done)
        problems += [f"effect {number} was not done, and is not in doubt" for number in sorted(missing - doubtful)]
        figures: dict[str, int | float] = {
            "effects": self._effects,
            "done": len(done),
            "finished": len(finished),
            "in doubt, done": len(doubtful & set(done)),
            "in doubt, not done": len(doubtful & missing),
            "attempts": attempts,
            **{SEEN[letter]: times for letter, times in sorted(Counter(self._notes.read_text()).items())},
            **dict(sorted(self.counts.items())),
        }
        return Verdict(figures, problems)


def fence_breaks(session_id: str, history: list[str]) -> list[str]:
    """Find changes that came behind one of a later lease, or share their token with another holder."""
    found = [(int(token), holder) for token, holder in (text.split() for text in history)]
    return [
        f"{session_id}: lease {token} of {holder} changed it behind lease {before} of {by}"
        for (before, by), (token, holder) in pairwise(found)
        if token < before or (token == before and holder != by)
    ]


def run(name: str, effects: int, seed: int) -> Verdict:
    """Run a campaign at a place of its own."""
    with tempfile.TemporaryDirectory(prefix="everturn-effects-") as folder, PLACES[name](Path(folder)) as place:
        return Campaign(place, effects, seed, Path(folder)).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--place", default="all", choices=[*PLACES, "all"])
    parser.add_argument("--effects", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    bad = 0
    for name in PLACES if args.place == "all" else [args.place]:
        verdict = run(name, args.effects, args.seed)
        bad += len(verdict.problems)
        print(f"{name}: {json.dumps(verdict.figures)}", flush=True)
        for problem in verdict.problems[:50]:
            print(f"  {problem}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
