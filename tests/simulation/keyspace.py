"""The data of one simulated Redis server, and the commands that the store's scripts use. Pure; its clock is given.

A command it does not know is a fault of the simulator, and raised as one. test_keyspace.py compares it with a real one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from tests.simulation.values import Id, Sorted, Stream, high, id_of, listed, low, stream_id


class ServerError(Exception):
    """An error that the server answers with."""


class Keyspace:
    """Keys, values and expiries. `clock` tells the server's time in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.values: dict[bytes, Any] = {}
        self.expiries: dict[bytes, int] = {}  # milliseconds
        self.is_readonly = False
        self.writes = 0  # commands that changed something, or may have

    # --- as a whole --------------------------------------------------------------------------------------------------

    def image(self) -> tuple[dict[bytes, Any], dict[bytes, int]]:
        """A copy of all data."""
        values = {key: value if type(value) is bytes else value.copy() for key, value in self.values.items()}
        return values, dict(self.expiries)

    def load(self, image: tuple[dict[bytes, Any], dict[bytes, int]]) -> None:
        values, expiries = image
        self.values = {key: value if type(value) is bytes else value.copy() for key, value in values.items()}
        self.expiries = dict(expiries)

    def follow(self, master: Keyspace) -> None:
        """Be a replica that is never behind: it has the master's own data, and changes nothing."""
        self.values, self.expiries, self.is_readonly = master.values, master.expiries, True

    def purge(self) -> None:
        """Remove what has expired. Before every request: then no command needs to look."""
        if self.expiries and not self.is_readonly:
            now = int(self.clock() * 1000)
            for key in [key for key, at in self.expiries.items() if at <= now]:
                del self.expiries[key]
                del self.values[key]

    def run(self, name: bytes, args: tuple[bytes, ...]) -> Any:
        """Carry out one command. Raises ServerError for an error reply."""
        command = COMMANDS.get(name) or COMMANDS.get(name.upper())
        if command is None:
            raise NotImplementedError(f"the simulated server has no {name!r}; teach it in keyspace.py")
        function, writes = command
        if writes:
            if self.is_readonly:
                raise ServerError("READONLY You can't write against a read only replica.")
            self.writes += 1
        return function(self, *args)

    def _typed(self, key: bytes, kind: type) -> Any:
        value = self.values.get(key)
        if value is not None and type(value) is not kind:
            raise ServerError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def _made(self, key: bytes, kind: type) -> Any:
        value = self._typed(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def _gone_if_empty(self, key: bytes) -> None:
        if not self.values[key]:
            self._remove(key)

    def _remove(self, key: bytes) -> bool:
        self.expiries.pop(key, None)
        return self.values.pop(key, None) is not None

    # --- keys --------------------------------------------------------------------------------------------------------

    def exists(self, *keys: bytes) -> int:
        return sum(key in self.values for key in keys)

    def unlink(self, *keys: bytes) -> int:
        return sum([self._remove(key) for key in keys])

    def rename(self, old: bytes, new: bytes) -> bytes:
        if old not in self.values:
            raise ServerError("ERR no such key")
        value, at = self.values.pop(old), self.expiries.pop(old, None)
        self._remove(new)
        self.values[new] = value
        if at is not None:
            self.expiries[new] = at
        return b"OK"

    def persist(self, key: bytes) -> int:
        return int(self.expiries.pop(key, None) is not None)

    def pexpireat(self, key: bytes, at: bytes) -> int:
        if key not in self.values:
            return 0
        self.expiries[key] = int(at)
        if int(at) <= int(self.clock() * 1000):
            self._remove(key)
        return 1

    def pexpire(self, key: bytes, milliseconds: bytes) -> int:
        return self.pexpireat(key, b"%d" % (int(self.clock() * 1000) + int(milliseconds)))

    def pttl(self, key: bytes) -> int:
        if key not in self.values:
            return -2
        return self.expiries[key] - int(self.clock() * 1000) if key in self.expiries else -1

    def type(self, key: bytes) -> bytes:
        names = {bytes: b"string", dict: b"hash", Stream: b"stream", Sorted: b"zset"}
        value = self.values.get(key)
        return b"none" if value is None else names[type(value)]

    def scan(self, _cursor: bytes, *how: bytes) -> list[Any]:
        options = {how[i].upper(): how[i + 1] for i in range(0, len(how), 2)}
        pattern = options.get(b"MATCH", b"*").decode()
        for char in "{}":
            pattern = pattern.replace(f"\\{char}", char)
        return [b"0", [key for key in sorted(self.values) if fnmatch.fnmatchcase(key.decode(), pattern)]]

    def time(self) -> list[bytes]:
        micros = int(self.clock() * 1_000_000)
        return [b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)]

    def get(self, key: bytes) -> bytes | None:
        return self._typed(key, bytes)  # type: ignore[no-any-return]

    def set(self, key: bytes, value: bytes, *how: bytes) -> bytes | None:
        options = [option.upper() for option in how]
        if b"NX" in options and key in self.values:
            return None
        self._remove(key)
        self.values[key] = value
        if b"PX" in options:
            self.pexpire(key, how[options.index(b"PX") + 1])
        if b"EX" in options:
            self.pexpire(key, b"%d" % (1000 * int(how[options.index(b"EX") + 1])))
        if b"PXAT" in options:
            self.pexpireat(key, how[options.index(b"PXAT") + 1])
        return b"OK"

    # --- hashes ------------------------------------------------------------------------------------------------------

    def hget(self, key: bytes, field: bytes) -> bytes | None:
        return (self._typed(key, dict) or {}).get(field)  # type: ignore[no-any-return]

    def hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        values = self._typed(key, dict) or {}
        return [values.get(field) for field in fields]

    def hset(self, key: bytes, *pairs: bytes) -> int:
        if not pairs or len(pairs) % 2:
            raise ServerError("ERR wrong number of arguments for 'hset' command")
        values = self._made(key, dict)
        before = len(values)
        values.update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(values) - before

    def hsetnx(self, key: bytes, field: bytes, value: bytes) -> int:
        return 0 if field in (self._typed(key, dict) or {}) else self.hset(key, field, value)

    def hdel(self, key: bytes, *fields: bytes) -> int:
        values = self._typed(key, dict)
        if values is None:
            return 0
        count = sum([values.pop(field, None) is not None for field in fields])
        self._gone_if_empty(key)
        return count

    def hexists(self, key: bytes, field: bytes) -> int:
        return int(field in (self._typed(key, dict) or {}))

    def hlen(self, key: bytes) -> int:
        return len(self._typed(key, dict) or {})

    def hkeys(self, key: bytes) -> list[bytes]:
        return list(self._typed(key, dict) or {})

    def hvals(self, key: bytes) -> list[bytes]:
        return list((self._typed(key, dict) or {}).values())

    def hgetall(self, key: bytes) -> list[bytes]:
        return [part for pair in (self._typed(key, dict) or {}).items() for part in pair]

    def hstrlen(self, key: bytes, field: bytes) -> int:
        return len((self._typed(key, dict) or {}).get(field, b""))

    def hincrby(self, key: bytes, field: bytes, by: bytes) -> int:
        values = self._made(key, dict)
        number = int(values.get(field, b"0")) + int(by)
        values[field] = b"%d" % number
        return number

    def hscan(self, key: bytes, _cursor: bytes, *how: bytes) -> list[Any]:
        """All in one page. `how` may name a pattern, as MATCH, and a COUNT, which bounds nothing here."""
        pattern = dict(zip(how[::2], how[1::2], strict=True)).get(b"MATCH", b"*")
        pairs = (self._typed(key, dict) or {}).items()
        return [b"0", [part for pair in pairs if fnmatch.fnmatchcase(pair[0], pattern) for part in pair]]

    # --- streams -----------------------------------------------------------------------------------------------------

    def xadd(self, key: bytes, name: bytes, *fields: bytes) -> bytes:
        stream = self._made(key, Stream)
        number = id_of(name, 0)
        if number <= stream.last:
            if not stream.ids and stream.last == (0, 0):
                del self.values[key]
            raise ServerError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        stream.ids.append(number)
        stream.rows[number] = list(fields)
        stream.last = number
        return stream_id(number)

    def _rows(self, stream: Stream | None, names: list[Id], how: tuple[bytes, ...]) -> list[Any]:
        if stream is None:
            return []
        count = int(how[1]) if how else None
        return [[stream_id(name), stream.rows[name]] for name in names[:count]]

    def xrange(self, key: bytes, first: bytes, last: bytes, *how: bytes) -> list[Any]:
        stream = self._typed(key, Stream)
        return self._rows(stream, stream.between(low(first), high(last)) if stream else [], how)

    def xrevrange(self, key: bytes, last: bytes, first: bytes, *how: bytes) -> list[Any]:
        stream = self._typed(key, Stream)
        return self._rows(stream, stream.between(low(first), high(last))[::-1] if stream else [], how)

    def xlen(self, key: bytes) -> int:
        stream = self._typed(key, Stream)
        return len(stream.ids) if stream else 0

    def xdel(self, key: bytes, *names: bytes) -> int:
        stream = self._typed(key, Stream)
        count = 0
        for name in names:
            number = id_of(name, 0)
            if stream and number in stream.rows:
                del stream.rows[number]
                stream.ids.remove(number)
                count += 1
        return count

    def xtrim(self, key: bytes, how: bytes, *rest: bytes) -> int:
        stream = self._typed(key, Stream)
        if stream is None:
            return 0
        bound = next(part for part in rest if part not in (b"=", b"~"))
        doomed = (
            [name for name in stream.ids if name < id_of(bound, 0)]
            if how.upper() == b"MINID"
            else stream.ids[: max(0, len(stream.ids) - int(bound))]
        )
        for name in doomed:
            del stream.rows[name]
        stream.ids = stream.ids[len(doomed) :]
        return len(doomed)

    # --- sorted sets -------------------------------------------------------------------------------------------------

    def zadd(self, key: bytes, *pairs: bytes) -> int:
        members = self._made(key, Sorted)
        before = len(members)
        members.update({pairs[i + 1]: float(pairs[i]) for i in range(0, len(pairs), 2)})
        return len(members) - before

    def zrange(self, key: bytes, first: bytes, last: bytes, *how: bytes) -> list[bytes]:
        options = [option.upper() for option in how]
        if not set(options) <= {b"REV", b"WITHSCORES"}:
            raise NotImplementedError(f"ZRANGE with {options}; teach it in keyspace.py")
        members = self._typed(key, Sorted) or Sorted()
        ranked = sorted(((score, member) for member, score in members.items()), reverse=b"REV" in options)
        stop = int(last)
        found = ranked[int(first) : None if stop == -1 else stop + 1]
        if b"WITHSCORES" in options:
            return [part for score, member in found for part in (member, b"%.17g" % score)]
        return [member for _, member in found]

    def zrevrange(self, key: bytes, first: bytes, last: bytes, *how: bytes) -> list[bytes]:
        return self.zrange(key, first, last, b"REV", *how)

    def zrangebyscore(self, key: bytes, first: bytes, last: bytes, *how: bytes) -> list[bytes]:
        members = self._typed(key, Sorted) or Sorted()
        return listed(members, members.between(first, last), how)

    def zrevrangebyscore(self, key: bytes, last: bytes, first: bytes, *how: bytes) -> list[bytes]:
        members = self._typed(key, Sorted) or Sorted()
        return listed(members, members.between(first, last)[::-1], how)

    def zcount(self, key: bytes, first: bytes, last: bytes) -> int:
        return len(self.zrangebyscore(key, first, last))

    def zcard(self, key: bytes) -> int:
        return len(self._typed(key, Sorted) or ())

    def zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = (self._typed(key, Sorted) or {}).get(member)
        return None if score is None else b"%.17g" % score

    def zrem(self, key: bytes, *doomed: bytes) -> int:
        members = self._typed(key, Sorted)
        if members is None:
            return 0
        count = sum([members.pop(member, None) is not None for member in doomed])
        self._gone_if_empty(key)
        return count

    def zremrangebyscore(self, key: bytes, first: bytes, last: bytes) -> int:
        return self.zrem(key, *self.zrangebyscore(key, first, last))


_READS = (
    "exists pttl type scan time get hget hmget hexists hlen hkeys hvals hgetall hstrlen hscan xrange xrevrange xlen "
    "zrange zrevrange zrangebyscore zrevrangebyscore zcount zcard zscore"
)
_WRITES = (
    "unlink rename persist pexpireat pexpire set hset hsetnx hdel hincrby xadd xdel xtrim zadd zrem zremrangebyscore"
)
COMMANDS: dict[bytes, tuple[Callable[..., Any], bool]] = {
    name.upper().encode(): (getattr(Keyspace, name), writes)
    for names, writes in ((_READS, False), (_WRITES, True))
    for name in names.split()
}
COMMANDS[b"DEL"] = COMMANDS[b"UNLINK"]
COMMANDS[b"HMSET"] = COMMANDS[b"HSET"]
