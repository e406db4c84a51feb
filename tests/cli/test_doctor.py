"""Doctor on a file and on real servers: facts and findings."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from everturn.backends.postgres import doctor as postgres
from everturn.backends.redis import doctor as redis
from everturn.backends.sqlite import doctor as sqlite
from everturn.testing.servers import postgres_server, valkey_server
from tests.cli.conftest import Run

SOUND = sqlite.FileFacts((3, 54, 0), (3, 54, 0), "wal", "FULL", 0, 0, 0, 10, 4096, "ext4", 10**12, 0o100600)


def test_a_file_that_is_well_is_said_to_be(run: Run, url: str) -> None:
    ran = run("doctor", url)
    assert ran.code == 0, ran.out
    assert "journal" in ran.out
    assert "wal, synchronous=FULL" in ran.out
    assert ran.lines[-2:] == ["no findings", f"Settings only; the data is checked by: everturn verify {url}"]


def test_a_file_that_everyone_may_change_is_not(run: Run, url: str) -> None:
    Path(url.removeprefix("sqlite:///")).chmod(0o666)
    ran = run("doctor", url, "--json")
    assert ran.code == 1
    (finding,) = json.loads(ran.out)["findings"]
    assert finding["fix"].startswith("chmod 600")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"library": (3, 51, 2)}, "WAL-reset"),
        ({"journal": "delete"}, "journal mode delete"),
        ({"synchronous": "NORMAL"}, "synchronous=NORMAL"),
        ({"file_system": "nfs4"}, "nfs4"),
        ({"wal_bytes": 100 * 2**20}, "the WAL is"),
        ({"wal_bytes": 10 * 2**20, "pinned_frames": 7}, "a reader pins it"),
        ({"pages": 5000, "free_pages": 4000}, "pages are free"),
        ({"room": 2**20}, "left on the disk"),
        ({"mode": 0o100602}, "everyone on this machine may change"),
        ({"mode": 0o100606}, "everyone on this machine may change"),
        ({"mode": 0o100644}, "everyone on this machine may read"),
    ],
)
def test_what_is_wrong_with_a_file(change: dict[str, object], told: str) -> None:
    assert list(sqlite.wrong_with(SOUND)) == []
    (found,) = sqlite.wrong_with(msgspec.structs.replace(SOUND, **change))
    assert told in found[0]


def test_a_real_valkey(run: Run) -> None:
    with valkey_server() as server:
        ran = run("doctor", server.url)
    assert ran.code == 1
    for told in ("Valkey 9", "no maxmemory is set", "it has no replica", "risk: ", "fix:  CONFIG SET"):
        assert told in ran.out, ran.out
    assert ran.err == ""  # what a store would warn of is in the report


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"redis_version": "5.0.1"}, "version 5.0.1"),
        ({"redis_version": "7.2.4", "maxmemory": "1000", "used_memory": "900"}, "are used"),
        ({"redis_version": "7.2.4", "maxmemory": "0"}, "no maxmemory"),
        ({"redis_version": "7.2.4", "role": "master", "connected_slaves": "0"}, "no replica"),
    ],
)
def test_what_is_wrong_with_a_redis(about: dict[str, str], told: str) -> None:
    (found,) = redis.wrong_with(about)
    assert told in found[0]


def test_a_real_postgres(run: Run) -> None:
    with postgres_server() as server:
        assert "everturn init" in run("doctor", server.url).err  # it looks, and creates nothing
        assert run("init", server.url).code == 0
        ran = run("doctor", server.url)
    for told in ("PostgreSQL 1", "fsync=on, synchronous_commit=on", "connections", "pgvector"):
        assert told in ran.out, ran.out
    assert ran.lines[-2] == "no findings"


def test_what_is_wrong_with_a_postgres() -> None:
    sound = postgres.PostgresFacts("18.1", 100, 3, "on", "on", False, False, 10**6, 0.0)
    assert list(postgres.wrong_with(sound, [postgres.TableRows("entries", 10**6, 10, True)])) == []
    crowded = msgspec.structs.replace(sound, connections=90, longest=1000.0)
    told = [found[0] for found in postgres.wrong_with(crowded, [postgres.TableRows("entries", 100, 50_000, False)])]
    assert ["connections are taken" in told[0], "open for 1000 s" in told[1], "are dead" in told[2]] == [True] * 3
