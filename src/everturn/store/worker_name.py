"""The name of a store for the people who look for its worker: machine, process and a random part. Not a credential."""

from __future__ import annotations

import re
from os import getpid, uname, urandom

LONGEST_MACHINE = 63  # characters, as of a label in DNS; names of pods are longer at times


class NamedWorker:
    """A store that has a name. Effects that it began, and leases that it holds, carry this name."""

    @property
    def worker_name(self) -> str:
        """Name of this worker: `web-7f9c-pid-12-2a1d08ac`. A fork has another. In a container every process is 1."""
        pid = getpid()
        if self._named[0] != pid:
            machine = re.sub(r"[^A-Za-z0-9._-]", "-", uname().nodename)[:LONGEST_MACHINE]
            self._named = pid, f"{machine}-pid-{pid}-{urandom(4).hex()}"
        return self._named[1]

    _named: tuple[int, str] = (0, "")
