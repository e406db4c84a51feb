"""A worker of the effect campaign: does effects, most of them under leases of 50 ms, until each has been begun.

effect_campaign.py starts eight of these, and stops, kills and replaces them. Nothing here waits for anybody: a worker
that finds a lease held, an effect in doubt or a server gone goes on with something else.
"""

from __future__ import annotations

import json
import os
import random
import time
from typing import Any

import everturn
from everturn import ChatMessage, EffectInDoubt, Lease, LeaseHeld, LeaseLost, MemoryStoreBackendError

LEASE = 0.05  # seconds
KEYS = 25  # effects of one session
WINDOW = 4  # sessions that are worked on at a time: fewer than workers, so that they meet
NO_LEASE = 0.2  # share of visits that take none: there only the store decides who begins
FAILS = 0.05  # share of tries that end before anything was done in the world
LINGERS = 0.05  # share of tries that outlast their lease, before or after the world has changed
REST = 0.02  # seconds after an error of the server


class NotDoneError(Exception):
    """Nothing was done in the world: the effect may begin again."""


def session_of(number: int) -> str:
    """The session of an effect. Its key there is its number."""
    return f"session-{number // KEYS}"


def line_of(number: int, who: str) -> str:
    """The line that doing an effect leaves in the world, of the same length for all."""
    return f"{number:06} {who:>24}\n"


LINE = len(line_of(0, ""))
NOTES = ".notes"
SEEN = {"H": "lease held", "L": "lease lost", "D": "seen in doubt", "P": "seen in progress", "E": "server errors"}


def work(url: str, options: str, world: str, effects: str, seed: str) -> None:
    """Do effects until all of them have been begun, and none of them failed last."""
    files = [os.open(name, os.O_WRONLY | os.O_APPEND) for name in (world, f"{world}{NOTES}")]
    with opened(url, json.loads(options)) as store:
        Worker(store, *files, int(effects), random.Random(f"{seed} {os.getpid()}")).run()


def opened(url: str, options: dict[str, Any]) -> everturn.MemoryStore:
    """Open the store, as soon as there is a server."""
    while True:
        try:
            return everturn.open(url, **options)
        except MemoryStoreBackendError:
            if is_orphan():
                raise
            time.sleep(REST)


def is_orphan() -> bool:
    """Whether the campaign was killed: nobody would end this process."""
    return os.getppid() == 1


class Worker:
    """One process of eight. `world` is a file that only effects write to, `notes` has a letter for each refusal."""

    def __init__(self, store: everturn.MemoryStore, world: int, notes: int, effects: int, dice: random.Random) -> None:
        self._store = store
        self._world = world
        self._notes = notes
        self._dice = dice
        self._visits = 0
        self._pending: dict[str, list[str]] = {}
        for number in range(effects):
            self._pending.setdefault(session_of(number), []).append(str(number))

    def run(self) -> None:
        while self._pending and not is_orphan():
            session_id = self._dice.choice(list(self._pending)[:WINDOW])
            try:
                self._visit(session_id)
            except LeaseHeld:
                self._note("H")
            except LeaseLost:
                self._note("L")
            except MemoryStoreBackendError:
                self._note("E")
                time.sleep(REST)

    def _note(self, letter: str) -> None:
        os.write(self._notes, letter.encode())

    @property
    def _name(self) -> str:
        return f"{os.getpid()}-{self._visits}"

    def _visit(self, session_id: str) -> None:
        """Do some effects of a session, if there are any left."""
        self._visits += 1
        found = {effect.key: effect.status for effect in self._store.get_effects(session_id)}
        left = [key for key in self._pending[session_id] if found.get(key, "failed") == "failed"]
        if not left:
            del self._pending[session_id]
        elif self._dice.random() < NO_LEASE:
            self._do(session_id, left[0], None)
        else:
            with self._store.lease(session_id, seconds=LEASE, wait=LEASE) as lease:
                for key in left[:3]:
                    self._say(session_id, lease)
                    self._do(session_id, key, lease)
                self._say(session_id, lease)

    def _say(self, session_id: str, lease: Lease) -> None:
        """Append the token of the lease: their order in the history shows that none came behind a later one."""
        self._linger()
        said = ChatMessage("user", f"{lease.token} {self._name}")
        self._store.add_messages(session_id, [said], lease=lease)

    def _do(self, session_id: str, key: str, lease: Lease | None) -> None:
        def do() -> str:
            if self._dice.random() < FAILS:
                raise NotDoneError
            self._linger()
            line = line_of(int(key), self._name)
            os.write(self._world, line.encode())
            self._linger()
            return line

        try:
            self._store.once(session_id, key, do, request={"effect": key}, failures=NotDoneError, lease=lease)
        except NotDoneError:
            pass
        except EffectInDoubt as exc:
            self._note("P" if exc.in_progress else "D")

    def _linger(self) -> None:
        if self._dice.random() < LINGERS:
            time.sleep(self._dice.uniform(0, 2 * LEASE))
