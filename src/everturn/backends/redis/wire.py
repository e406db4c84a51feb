"""Commands as bytes, and bytes as replies: the protocol, by hiredis where it is installed. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everturn.backends.redis.faults import refusal_in

Command = Sequence[bytes | str | int]


def packed(commands: Sequence[Command]) -> bytes:
    """The commands as they go over the wire, in one piece."""
    if len(commands) == 1:
        return pack(commands[0])
    return b"".join([pack(command) for command in commands])


def _pack_slowly(command: Command) -> bytes:
    pieces = [b"*%d\r\n" % len(command)]
    for part in command:
        piece = part if isinstance(part, bytes) else str(part).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(piece), piece))
    return b"".join(pieces)


pack: Callable[[Command], bytes] = _pack_slowly
reply_reader: Callable[[], Any] | None = None
"""Makes what takes bytes (`feed`) and gives replies (`gets`, False while one is not whole), errors as Refusal."""
try:
    from hiredis import Reader, pack_command
except ImportError:
    pass
else:

    def pack(command: Command) -> bytes:
        # No numbers: hiredis 3.5 lets Python make them texts, and crashes if a signal's handler raises meanwhile.
        texts: Any = tuple([str(part) if type(part) is int else part for part in command])
        packed: bytes = pack_command(texts)
        return packed

    def reply_reader() -> Any:
        return Reader(replyError=refusal_in)  # type: ignore[arg-type]  # a value will do: it is not raised
