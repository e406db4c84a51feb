"""A group of servers that hold the same sessions: faults to all of them, and waiting until the group is whole again.

cluster.py and sentinel.py define when a group is whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from everturn.testing.servers.server import wait_until
from everturn.testing.servers.valkey import ValkeyServer
from everturn.testing.servers.valkey_command import CommandError

_HEAL_PATIENCE = 60.0


class ServerGroup(ABC):
    """Servers that hold the same sessions together. A fault to the group is a fault to each of them."""

    def __init__(self, members: Sequence[ValkeyServer]) -> None:
        self._members = tuple(members)

    def kill(self) -> None:
        """SIGKILL every server."""
        for member in self._members:
            member.kill()

    def pause(self) -> None:
        """SIGSTOP every server that runs."""
        for member in self._members:
            if member.running:
                member.pause()

    def resume(self) -> None:
        """Let every paused server go on."""
        for member in self._members:
            member.resume()

    def restart(self) -> None:
        """Start every server again, on the same port and data, and return when the group is whole."""
        self.kill()
        for member in self._members:
            member.restart()
        self.wait_until_whole()

    def is_whole(self) -> bool:
        """Whether the servers that answer serve everything, and agree with each other."""
        return not self._lacking()

    def wait_until_whole(self, timeout: float = _HEAL_PATIENCE) -> None:
        """Return when `is_whole`. Raises TimeoutError that names the missing part."""
        wait_until(self.is_whole, lambda: f"all is well, but {'; '.join(self._lacking())}", timeout)

    def _lacking(self) -> list[str]:
        try:
            return list(self._faults())
        except (OSError, CommandError) as error:
            # A server that just now goes down, comes up, or loads its data.
            return [f"a server says {error}"]

    @abstractmethod
    def _faults(self) -> Iterator[str]:
        """Ask the servers, and yield everything that is wrong."""
