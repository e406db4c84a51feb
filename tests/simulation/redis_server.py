"""A simulated Redis server: runs the store's own Lua scripts over a keyspace. It knows no network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from lupa import lua51

from everturn.backends.redis.errors import Refusal, refusal_in
from everturn.backends.redis.transport.resp import Command, packed
from tests.simulation.keyspace import Keyspace, ServerError

_INFO = b"role:%b\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n"


class _Interpreter:
    """One Lua for all servers: scripts keep no state. A script is compiled once."""

    def __init__(self) -> None:
        self._lua = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._compile = self._lua.eval(
            b"function(text, call, pcall) redis = {call = call, pcall = pcall}; return assert(loadstring("
            b"'local KEYS, ARGV = ...; ' .. text)) end"
        )
        self._scripts: dict[bytes, Any] = {}
        self._space: Keyspace | None = None
        self._table_from = self._lua.table_from
        self._lua_type = lua51.lua_type

    def run(self, space: Keyspace, text: bytes, keys: Sequence[bytes], args: Sequence[bytes]) -> Any:
        script = self._scripts.get(text)
        if script is None:
            script = self._scripts[text] = self._compile(text, self._call, self._pcall)
        self._space = space
        return self._reply(script(self._table_from(keys), self._table_from(args)))

    def _call(self, name: bytes, *args: Any) -> Any:
        space = self._space
        assert space is not None
        return self._table(space.run(name, tuple([_part(arg) for arg in args])))

    def _pcall(self, name: bytes, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except ServerError as exc:
            return self._table_from({b"err": str(exc).encode()})

    def _table(self, value: Any) -> Any:
        if value is None:
            return False
        if type(value) is list:
            return self._table_from([self._table(item) for item in value])
        return value

    def _reply(self, value: Any) -> Any:
        if value is None or value is False:
            return None
        if value is True:
            return 1
        if isinstance(value, float):
            return int(value)
        if isinstance(value, bytes | int):
            return value
        found = []
        index = 1
        while (item := value[index]) is not None:
            found.append(self._reply(item))
            index += 1
        if not found and (error := value[b"err"]) is not None:
            raise ServerError(error.decode())
        return found


def _part(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, float):
        return b"%d" % int(value) if value.is_integer() else b"%.17g" % value
    return value.encode() if isinstance(value, str) else b"%d" % value


_interpreter: _Interpreter | None = None


def _lua() -> _Interpreter:
    global _interpreter  # noqa: PLW0603 - made on first use: it takes a millisecond, and every process needs one
    if _interpreter is None:
        _interpreter = _Interpreter()
    return _interpreter


class RedisServer:
    """One node. `clock` tells its time in seconds; whoever sends is trusted to be let in."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.space = Keyspace(clock)
        self._known: dict[bytes, bytes] = {}  # scripts it was sent, by their hash

    def forget_scripts(self) -> None:
        self._known.clear()

    def execute(self, commands: Sequence[Command], most: int | None = None) -> list[Any]:
        """A reply for each command, errors as Refusal; no more than the first few, if the connection was cut."""
        self.space.purge()
        return [self._one(words_of(packed([command]))) for command in commands[:most]]

    def _one(self, words: list[bytes]) -> Any:
        name, *rest = words
        try:
            match name:
                case b"EVALSHA":
                    text = self._known.get(rest[0])
                    if text is None:
                        return Refusal("NOSCRIPT", "NOSCRIPT No matching script. Please use EVAL.")
                    return self._script(text, rest)
                case b"EVAL":
                    text = rest[0]
                    self._known[hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()] = text
                    return self._script(text, rest)
                case b"INFO":
                    return _INFO % (b"slave" if self.space.is_readonly else b"master")
                case b"CONFIG":
                    return [rest[1], b""]
                case b"WAIT":
                    return 0
            return self.space.run(name, tuple(rest))
        except ServerError as exc:
            return refusal_in(str(exc))

    def _script(self, text: bytes, rest: list[bytes]) -> Any:
        first = 2 + int(rest[1])
        try:
            return _lua().run(self.space, text, rest[2:first], rest[first:])
        except lua51.LuaError as exc:
            if isinstance(exc.__cause__ or exc.__context__, ServerError):
                raise
            raise ServerError(f"ERR user_script: {str(exc).splitlines()[0]}") from exc  # `error` in the script


def words_of(request: bytes) -> list[bytes]:
    """The parts of a command as it goes over the wire."""
    head, _, rest = request.partition(b"\r\n")
    words, at = [], 0
    for _ in range(int(head[1:])):
        end = rest.index(b"\r\n", at)
        size, start = int(rest[at + 1 : end]), end + 2
        words.append(rest[start : start + size])
        at = start + size + 2
    return words
