"""Commands as bytes, and bytes as replies: the protocol, by hiredis where it is installed. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everturn.backends.redis.faults import refusal_in

Command = Sequence[bytes | str | int]


def packed(commands: Sequence[Command]) -> bytes:
    """The commands as they go over the wire, in one piece."""
    if len(commands) == 1:
        return pack(tuple(commands[0]))
    return b"".join([pack(tuple(command)) for command in commands])


def _pack_slowly(command: tuple[Any, ...]) -> bytes:
    pieces = [b"*%d\r\n" % len(command)]
    for part in command:
        piece = part if isinstance(part, bytes) else str(part).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(piece), piece))
    return b"".join(pieces)


pack: Callable[[Any], bytes] = _pack_slowly
reply_reader: Callable[[], Any] | None = None
"""Makes what takes bytes (`feed`) and gives replies (`gets`, False while one is not whole), errors as Refusal."""
try:
    from hiredis import Reader
    from hiredis import pack_command as pack
except ImportError:
    pass
else:

    def reply_reader() -> Any:
        return Reader(replyError=refusal_in)  # type: ignore[arg-type]  # a value will do: it is not raised
