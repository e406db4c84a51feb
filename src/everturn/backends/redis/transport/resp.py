"""Commands as bytes, and bytes as replies, which hiredis reads where it is installed. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeAlias

import msgspec

from everturn.backends.redis.errors import refusal_in
from everturn.backends.redis.scripts import Script

Part: TypeAlias = bytes | str | int


class Call(msgspec.Struct, frozen=True, gc=False):
    """A script by its hash, with its keys and arguments. `opening` is what `opening_of` makes of it, if at hand.

    `clock` is for scripts that begin with clock.lua: empty if the server's time counts, or the time that does. The two
    moments that they take behind their own arguments are added by the sender, for the node it sends them to.
    """

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[Part]
    opening: bytes = b""
    clock: str | None = None

    def in_full(self) -> Call:
        """The same by its text, for a server that has not seen it."""
        opening = _opening((b"EVAL", self.script.text, b"%d" % len(self.keys), *self.keys))
        return msgspec.structs.replace(self, opening=opening)

    def within(self, issued: Part, not_after: Part) -> Call:
        """The same, issued at one moment and not to be applied after another."""
        return Call(self.script, self.keys, [*self.args, issued, not_after], self.opening)


Command: TypeAlias = Sequence[Part] | Call


def packed(commands: Sequence[Command]) -> bytes:
    """The commands as they go over the wire, in one piece."""
    # Not by hiredis: it takes longer, for it is given all parts of a call anew, and it crashes (3.5) if a signal's
    # handler raises while it makes a text of a number.
    pieces: list[bytes] = []
    for command in commands:
        if isinstance(command, Call):
            keys, rest = command.keys, command.args
            opening = command.opening or opening_of(command.script, keys)
            pieces.append(b"*%d\r\n%b" % (3 + len(keys) + len(rest), opening))
        else:
            rest = command
            pieces.append(b"*%d\r\n" % len(command))
        for part in rest:
            text = part if type(part) is bytes else _text_of(part)
            pieces.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(pieces)


def _text_of(part: Part) -> bytes:
    """A part as it is sent. Raises TypeError for what has no one form: None, a float."""
    if isinstance(part, str):
        return str.encode(part)  # and not what a subclass of str shows: the member of an enumeration, its name
    return bytes(part) if isinstance(part, bytes) else b"%d" % index(part)


def opening_of(script: Script, keys: tuple[bytes, ...]) -> bytes:
    """What the calls of a script for one session have in common: most of their parts."""
    return _opening((b"EVALSHA", script.sha, b"%d" % len(keys), *keys))


def _opening(parts: Sequence[bytes]) -> bytes:
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
