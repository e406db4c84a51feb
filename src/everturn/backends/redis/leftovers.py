"""Where copies of what was erased may be: in files that a server rewrites when it sees fit.

It asks and tells; it makes no server rewrite anything: that takes what all its sessions take, for the sake of one.
"""

from __future__ import annotations

from collections.abc import Iterator

from everturn.backends.redis.checks import Answers, answers_of
from everturn.backends.redis.sending import Sender
from everturn.errors import MemoryStoreBackendError

SILENT = "whatever the server keeps on disk and on replicas: it does not tell (INFO)"


async def keeper_of(sender: Sender, key: bytes, deadline: float) -> Answers:
    """What the server that has the key says of itself; nothing, if it cannot be asked: to erase, it need not be."""
    try:
        return await answers_of(sender, await sender.topology.node_for(key, deadline), deadline)
    except MemoryStoreBackendError:
        return Answers({})


def files_of(server: Answers) -> Iterator[str]:
    """Pure. The files in which the server keeps what was written to it, and what makes it write them anew."""
    if not server.about:
        yield SILENT
        return
    if server.about.get("aof_enabled") == "1":
        yield "the server's append-only file, until it is rewritten (BGREWRITEAOF)"
    if server.save != "":
        yield "the server's RDB file, until the next save (BGSAVE)"
    if server.replicas:
        yield "the files of its replicas, likewise"
