"""Runs schedules on their backends, with whatever a backend needs for many of them (a server, a folder)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from tests.simulation.schedules import Schedule
from tests.simulation.world import Outcome

BACKENDS = ("redis", "sqlite", "postgres")


class Runner:
    """Runs schedules of one backend, one after the other."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._stack = ExitStack()
        self._make: Any = None

    def __enter__(self) -> Self:
        match self.backend:
            case "redis":
                from tests.simulation.redis_world import RedisWorld

                self._make = RedisWorld
            case "sqlite":
                from tests.simulation.sqlite_world import Files, SqliteWorld

                files = self._stack.enter_context(Files())
                self._make = lambda schedule: SqliteWorld(schedule, files)
            case "postgres":
                from tests.simulation.postgres_world import Database, PostgresWorld

                database = self._stack.enter_context(Database())
                self._make = lambda schedule: PostgresWorld(schedule, database)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, schedule: Schedule) -> Outcome:
        outcome: Outcome = self._make(schedule).run()
        return outcome
