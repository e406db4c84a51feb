"""Behind a real PgBouncer that pools transactions: no state of ours lives in a connection."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import everturn
from everturn.testing.servers import PostgresServer, free_port, wait_until
from tests.integration.writers import FACES, Ledger, Writers, every_kind, turn, turns, without_keys

PROGRAM = shutil.which("pgbouncer")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not on PATH (apt-get install pgbouncer)")


@pytest.fixture
def bouncer(server: PostgresServer, tmp_path: Path) -> Iterator[str]:
    port = free_port()
    config = tmp_path / "pgbouncer.ini"
    host, _, target_port = server.address.partition(":")
    config.write_text(
        f"[databases]\n* = host={host} port={target_port}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 100\nserver_reset_query =\n"
        f"logfile = {tmp_path / 'log'}\nignore_startup_parameters = extra_float_digits\n"
    )
    # auth_type any logs in as the user of the connection string.
    config.write_text(config.read_text().replace("port=" + target_port, f"port={target_port} user=postgres"))
    argv = [str(PROGRAM), str(config)]
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in (tmp_path, *tmp_path.parents):
            if path.owner() == "root" and str(path).startswith(str(tmp_path.parents[2])):
                path.chmod(0o755)
        os.chown(tmp_path, nobody.pw_uid, nobody.pw_gid)
        os.chown(config, nobody.pw_uid, nobody.pw_gid)
        argv[1:1] = ["-u", "nobody"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def is_up() -> bool:
        assert process.poll() is None, (tmp_path / "log").read_text() if (tmp_path / "log").exists() else "it ended"
        return "listening on" in ((tmp_path / "log").read_text() if (tmp_path / "log").exists() else "")

    try:
        wait_until(is_up, "pgbouncer to listen", 10)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("face", FACES)
def test_writers_behind_a_bouncer_lose_nothing(face: str, bouncer: str, schema: str) -> None:
    ledger = Ledger()
    url = f"{bouncer}?schema={schema}"
    with Writers(face, url, ledger, turns, every_kind, without_keys, count=8, timeout=20):
        ledger.progress(400)
    assert ledger.errors == []
    with everturn.open(url, timeout=20) as store:
        ledger.check(store)


def test_every_kind_of_change_and_read_works_behind_a_bouncer(bouncer: str, schema: str) -> None:
    async def main() -> None:
        async with await everturn.open_async(f"{bouncer}?schema={schema}") as store:
            await store.add_messages("a", turn("1"))
            snapshot = await store.save_snapshot("a", "s")
            await store.add_messages("a", turn("2"))
            await store.rollback_to_snapshot("a", snapshot)
            await store.undo("a")
            await store.trim("a", max_messages=2)
            await store.clear("a")
            await store.undo("a")
            await store.fork("a", "b")
            await store.set_ttl("a", 1000)
            assert len((await store.sessions(order="recent")).sessions) == 2
            assert len(await store.find("2")) == 4
            assert (await store.verify()).ok
            await store.compact()
            assert (await store.erase("a")).entries

    asyncio.run(main())
