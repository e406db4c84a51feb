"""A link with delay between a client and a server on this machine: how servers are used, unlike loopback.

Each way takes 0.25 ms longer, so a round trip takes 0.5 ms longer, as between two machines of one data centre. Threads
that sleep, and not an event loop: the loop's timers count in whole milliseconds.
"""

import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from urllib.parse import urlsplit, urlunsplit

ONE_WAY = 0.00025  # seconds
CHUNK = 2**16


@contextmanager
def delayed(url: str, one_way: float = ONE_WAY) -> Iterator[str]:
    """Yield a URL that leads to the same server over the delayed link, which runs in a process of its own."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    link = context.Process(target=_serve, args=(theirs, parts.hostname, parts.port, one_way), daemon=True)
    link.start()
    theirs.close()
    try:
        port = ours.recv()
        credentials, at, _ = parts.netloc.rpartition("@")
        yield urlunsplit(parts._replace(netloc=f"{credentials}{at}127.0.0.1:{port}"))
    finally:
        link.kill()
        link.join()
        ours.close()


def _serve(pipe: Connection, host: str, port: int, one_way: float) -> None:
    """Accept connections until this process is ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((host, port))
            for source, target in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_carry, args=(source, target, one_way), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket, one_way: float) -> None:
    """Pass bytes on, each chunk so many seconds later. One request is under way at a time: no chunk waits."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK):
            time.sleep(one_way)
            target.sendall(chunk)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
