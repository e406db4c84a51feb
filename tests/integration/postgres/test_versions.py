"""Other versions of PostgreSQL that this machine has: the functions do there what they do here.

Debian keeps them in /usr/lib/postgresql; EVERTURN_OTHER_POSTGRES names more (paths of `postgres`, joined by `:`).
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everturn
from everturn import ChatMessage
from everturn.testing.servers.postgres import postgres_program, postgres_server
from tests.integration.postgres.test_opening import start_ten_at_once
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turns, without_keys
from tests.model.chorus import Chorus, Circle


def version_of(program: Path) -> int:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\) (\d+)", said)
    assert found, said
    return int(found[1])


def others() -> dict[int, Path]:
    """By major version, those that are not the one all other tests run on."""
    named = [Path(path) for path in os.environ.get("EVERTURN_OTHER_POSTGRES", "").split(os.pathsep) if path]
    found = {version_of(path): path for path in (*Path("/usr/lib/postgresql").glob("*/bin/postgres"), *named)}
    found.pop(version_of(postgres_program()), None)
    return {version: path for version, path in sorted(found.items()) if (path.parent / "initdb").exists()}


@pytest.fixture(scope="module", params=others() or [None], ids=lambda version: f"version {version}")
def old(request: pytest.FixtureRequest) -> Any:
    if request.param is None:
        pytest.skip("there is no other PostgreSQL here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERTURN_POSTGRES", str(others()[request.param]))
        with postgres_server() as server:
            yield server


def test_it_agrees_with_sqlite_after_every_step(old: Any) -> None:
    with everturn.open("sqlite://") as sqlite, everturn.open(old.url, timeout=30, schema="walk") as postgres:
        stores: Any = Chorus(Circle(("sqlite", "postgres")), [sqlite, postgres])
        for store in (sqlite, postgres):
            store._operations.backend._clock = lambda: 1e9  # the same, so that times agree
        chance = random.Random(7)
        for number in range(120):
            step(stores, chance, number)
            stores.state("s")
        assert postgres.verify().ok


def step(stores: Any, chance: random.Random, number: int) -> None:
    """One change of any kind; what makes no sense is refused by both alike."""
    snapshots = stores.list_snapshots("s")
    history = stores.get_history("s")
    said = [ChatMessage("user", f"{number}"), ChatMessage("assistant", "x" * number)]
    changes: list[Callable[[], object]] = [
        lambda: stores.add_messages("s", said, key=f"k{chance.randrange(20)}"),
        lambda: stores.add_messages("s", said),
        lambda: stores.save_snapshot("s", f"{number}"),
        lambda: stores.rollback_to_snapshot("s", chance.choice(snapshots) if snapshots else "none"),
        lambda: stores.undo("s"),
        lambda: stores.trim("s", max_messages=chance.randrange(9)),
        lambda: stores.clear("s"),
        lambda: stores.replace("s", said, after=chance.choice(history).seq if history else 0),
        lambda: stores.compact("s"),
    ]
    with suppress(everturn.MemoryStoreError):
        chance.choice(changes)()


@pytest.mark.parametrize("face", FACES)
def test_writers_of_every_kind_lose_nothing(old: Any, face: str) -> None:
    ledger = Ledger()
    url = f"{old.url}?schema={face}"
    with Writers(face, url, ledger, turns, every_kind, without_keys, timeout=20):
        ledger.progress(200)
    assert ledger.errors == []
    with everturn.open(url, timeout=20) as store:
        ledger.check(store)
        assert [found.session_id for found in store.sessions(order="recent", limit=3).sessions]
        assert store.find("0-1", limit=1)
        store.fork("s0", "copy")
        store.compact()
        assert store.erase("copy").entries


def test_ten_workers_that_start_at_once_make_one_schema(old: Any) -> None:
    start_ten_at_once(f"{old.url}?schema=ten")
