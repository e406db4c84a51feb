"""The protocol of Redis (RESP): commands to bytes, and bytes to replies, which hiredis reads. Sends nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, TypeAlias

import msgspec

from everturn.backends.redis.errors import refusal_in
from everturn.backends.redis.scripts import RETRY, Script

Part: TypeAlias = bytes | str | int


class ScriptCall(msgspec.Struct, frozen=True, gc=False):
    """A call of a script by its hash, with keys and arguments. `prefix` is the answer of `prefix_of`, if known already.

    `clock` is for scripts that begin with _late_requests.lua. It is empty if the server's time counts, else the time
    that counts. Such a script takes two moments as its last arguments. client.py adds them, for the node that it sends
    the call to.
    """

    script: Script
    keys: tuple[bytes, ...]
    args: Sequence[Part]
    prefix: bytes = b""
    clock: str | None = None

    def in_full(self) -> ScriptCall:
        """Return the call with the script's text, for a server that does not know the hash."""
        prefix = _strings((b"EVAL", self.script.text, b"%d" % len(self.keys), *self.keys))
        return msgspec.structs.replace(self, prefix=prefix)

    def again(self) -> ScriptCall:
        """Return the call as a retry, if it is a change. A server that refused it may get it a second time from a proxy
        and carry it out, because another client has loaded the script meanwhile."""
        if not self.script.is_change:
            return self
        return msgspec.structs.replace(self, args=[*self.args[:RETRY], b"r", *self.args[RETRY + 1 :]])

    def within(self, issued: Part, not_after: Part) -> ScriptCall:
        """Return the call, issued at one moment and not to be applied after another."""
        return ScriptCall(self.script, self.keys, [*self.args, issued, not_after], self.prefix)


Command: TypeAlias = Sequence[Part] | ScriptCall


def packed(commands: Sequence[Command]) -> bytes:
    """Return the commands as bytes to send, in one piece."""
    # Not by hiredis: it packs all parts of a call anew, which takes longer, and it crashes (3.5) if the handler of a
    # signal raises while it makes a text of a number.
    pieces: list[bytes] = []
    for command in commands:
        if isinstance(command, ScriptCall):
            keys, rest = command.keys, command.args
            prefix = command.prefix or prefix_of(command.script, keys)
            pieces.append(b"*%d\r\n%b" % (3 + len(keys) + len(rest), prefix))
        else:
            rest = command
            pieces.append(b"*%d\r\n" % len(command))
        texts = [part if type(part) is bytes else _text_of(part) for part in rest]
        pieces += [b"$%d\r\n%b\r\n" % (len(text), text) for text in texts]
    return b"".join(pieces)


def _text_of(part: Part) -> bytes:
    """Return a part as it is sent. Raises TypeError for None and for a float, which have no one form."""
    if isinstance(part, str):
        return str.encode(part)  # the characters, also of a subclass of str (an enumeration) that shows something else
    return bytes(part) if isinstance(part, bytes) else b"%d" % index(part)


def prefix_of(script: Script, keys: tuple[bytes, ...]) -> bytes:
    """Pack the parts that all calls of a script for one session share: the command, the hash and the keys."""
    return _strings((b"EVALSHA", script.sha, b"%d" % len(keys), *keys))


def _strings(parts: Sequence[bytes]) -> bytes:
    return b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def reply_reader() -> Any:
    """Make a reader of replies: `feed` takes bytes, `gets` gives a reply, or False while none is whole. Errors of the
    server come as Refusal."""
    from hiredis import Reader

    return Reader(replyError=refusal_in)  # type: ignore[arg-type]  # any value will do: it is not raised
