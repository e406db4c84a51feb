"""Fork server: the process that workers are forked from. It imports the target once, so a worker costs one `os.fork`.

Runs as a script, started by `ForkServer` in controller.py. It runs no target code beyond the import, opens no store,
and starts no thread. When the kit's process is gone, it ends, and every worker with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

from everturn.testing.kit.target import Target, TargetError, load, offer_of
from everturn.testing.servers.dynamodb import take_credentials
from everturn.testing.workers.worker import Worker


def main(descriptor: int) -> None:
    """Import the target that the first message names. Then fork and end workers on request, until the kit is gone."""
    line = socket.socket(fileno=descriptor)
    pipe = Connection(os.dup(descriptor))
    path, target, root = pipe.recv()
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    try:
        factory, offer = _imported(target)
    except TargetError as exc:
        pipe.send(("failed", str(exc)))
        return
    take_credentials(offer.options)
    gc.freeze()  # else each worker's first garbage collection copies, page by page, all that the target imported
    pipe.send(("offer", offer))
    children: set[int] = set()
    while True:
        try:
            verb, argument = pipe.recv()
        except EOFError:
            break
        if verb == "fork":
            handle = socket.recv_fds(line, 1, 1)[1][0]
            pid = os.fork()
            if pid == 0:
                _be_worker(handle, factory, offer, watched=argument, close=(pipe, line))
            os.close(handle)
            children.add(pid)
            pipe.send(pid)
        elif verb == "import":
            for name in argument:
                with contextlib.suppress(Exception):  # some modules cannot be imported by name alone
                    importlib.import_module(name)
            pipe.send(None)
        elif verb == "end":
            children.discard(argument)
            pipe.send(_end(argument))
    for pid in children:
        _end(pid)
    shutil.rmtree(root, ignore_errors=True)  # the kit, which made it, may have been killed


def _imported(target: Target) -> tuple[Any, Any]:
    try:
        factory = load(target)
        return factory, offer_of(factory)
    except TargetError:
        raise
    except BaseException as exc:
        raise TargetError(f"importing {target.module} failed:\n{traceback.format_exc(limit=-4)}") from exc


def _be_worker(handle: int, factory: Any, offer: Any, *, watched: bool, close: tuple[Any, ...]) -> None:
    code = 1
    try:
        for inherited in close:
            inherited.close()
        Worker(Connection(handle), factory, offer).serve(watched=watched)
        code = 0
    except BaseException:  # noqa: BLE001 - a forked process must not run on into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end(pid: int) -> int:
    """Kill a worker, if it has not ended yet, and reap it. Until it is reaped, no other process gets its id."""
    try:
        os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
