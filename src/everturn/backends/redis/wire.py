"""Commands as bytes, and bytes as replies, which hiredis reads where it is installed. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from everturn.backends.redis.faults import refusal_in
from everturn.backends.redis.names import KNOWN
from everturn.backends.redis.scripts import Script

Part: TypeAlias = bytes | str | int


class Call(msgspec.Struct, frozen=True, gc=False):
    """A script by its hash, with its keys and arguments."""

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[Part]

    def in_full(self) -> Sequence[Part]:
        """The same by its text, for a server that has not seen it."""
        return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)


Command: TypeAlias = Sequence[Part] | Call


def packed(commands: Sequence[Command]) -> bytes:
    """The commands as they go over the wire, in one piece."""
    # Not by hiredis: it takes longer, for it is given all parts of a call anew, and it crashes (3.5) if a signal's
    # handler raises while it makes a text of a number.
    pieces: list[bytes] = []
    for command in commands:
        if isinstance(command, Call):
            keys, rest = command.keys, command.args
            pieces.append(b"*%d\r\n%b" % (3 + len(keys) + len(rest), _opening(command.script.sha, keys)))
        else:
            rest = command
            pieces.append(b"*%d\r\n" % len(command))
        for part in rest:
            text = part if type(part) is bytes else str(part).encode()
            pieces.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(pieces)


@lru_cache(4 * KNOWN)
def _opening(sha: bytes, keys: tuple[bytes, ...]) -> bytes:
    """What the calls of a script for one session have in common: most of their parts."""
    parts = (b"EVALSHA", sha, b"%d" % len(keys), *keys)
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


reply_reader: Callable[[], Any] | None = None
"""Makes what takes bytes (`feed`) and gives replies (`gets`, False while one is not whole), errors as Refusal."""
try:
    from hiredis import Reader
except ImportError:
    pass
else:

    def reply_reader() -> Any:
        return Reader(replyError=refusal_in)  # type: ignore[arg-type]  # a value will do: it is not raised
