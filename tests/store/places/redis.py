"""Valkey, Redis Cluster and fakeredis as places: one server for all tests, emptied before each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import fakeredis
import redis

import everturn
from everturn.backends.redis.stored_form import entry_value
from tests.store.places.place import Place, Stored

FACTS = ("life", "version", "last_seq", "state", "bytes", "dimension", "ttl", "expires_at", "created_at", "changed_at")
FACTS += ("forked_from", "parts")


def _digest(text: bytes) -> str:
    """Compute the digest of lua/_check.lua."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest()[:8]


class RedisEditor:
    """See docs/storage-redis.md. `client_of` gives a client of the node that has a key; `clients` are all of them."""

    def __init__(self, client_of: Callable[[str], Any], clients: Iterable[Any]) -> None:
        self._client_of = client_of
        self._clients = clients

    def _part(self, session_id: str, part: str) -> tuple[Any, str]:
        key = f"everturn:{{:{session_id}}}:{part}"
        return self._client_of(key), key

    def _log(self, session_id: str) -> dict[int, tuple[bytes, bytes]]:
        """By seq, the kind (with the life) and the value of each entry."""
        client, key = self._part(session_id, "log")
        return {int(name.partition(b"-")[0]): next(iter(fields.items())) for name, fields in client.xrange(key)}

    def entry(self, session_id: str, seq: int) -> Stored:
        kind, value = self._log(session_id)[seq]
        turn, time, _, checksum, body = value.split(b" ", 4)
        return Stored(kind.decode().rpartition(" ")[0], body, int(checksum), int(turn), int(time) / 1_000_000)

    def put_entry(self, session_id: str, seq: int, entry: Stored) -> None:
        """A stream's entries cannot be changed: it is written anew."""
        client, key = self._part(session_id, "log")
        log = self._log(session_id)
        facts = (entry.turn, round(entry.created_at * 1_000_000), entry.checksum)
        owner = client.hget(self._part(session_id, "meta")[1], "life")  # the entry itself may be gone
        log[seq] = entry.kind.encode() + b" " + owner, entry_value(seq, *facts, entry.body)
        expires_at = client.execute_command("PEXPIRETIME", self._part(session_id, "meta")[1])
        with client.pipeline(transaction=True) as pipe:
            pipe.delete(key)
            for number, (kind, value) in sorted(log.items()):
                pipe.xadd(key, {kind: value}, f"{number}-0")
            if expires_at > 0:
                pipe.execute_command("PEXPIREAT", key, expires_at)
            pipe.execute()

    def drop_entry(self, session_id: str, seq: int) -> None:
        client, key = self._part(session_id, "log")
        assert client.xdel(key, f"{seq}-0") == 1

    def drop_log(self, session_id: str) -> None:
        client, key = self._part(session_id, "log")
        client.delete(key)

    def drop_session(self, session_id: str) -> None:
        client, key = self._part(session_id, "meta")
        client.delete(key)

    def drop_change(self, session_id: str, version: int) -> None:
        client, key = self._part(session_id, "changes")
        assert client.xdel(key, f"{version}-0") == 1

    def set_state(self, session_id: str, **fields: int) -> None:
        client, key = self._part(session_id, "meta")
        state = client.hget(key, "state").split(b" ")
        for index, name in enumerate(("head", "cleared", "floor", "messages")):
            state[index] = b"%d" % fields.pop(name, int(state[index]))
        self._set_facts(session_id, **fields, state=b" ".join(state))

    def add_jump(self, session_id: str, seq: int, after: int) -> None:
        """As the scripts would have written it, but for what it counts; and counted."""
        client, key = self._part(session_id, "jumps")
        client.zremrangebyscore(key, seq, seq)
        client.zadd(key, {self._sealed(session_id, "jump", f"{seq} {after} 0 1 {after}"): seq})
        meta, meta_key = self._part(session_id, "meta")
        parts = meta.hget(meta_key, "parts").split(b" ")
        parts[2] = b"%d" % client.zcard(key)
        self._set_facts(session_id, parts=b" ".join(parts))

    def _sealed(self, session_id: str, name: str, text: str) -> str:
        client, key = self._part(session_id, "meta")
        life = client.hget(key, "life").decode()
        return f"{_digest(f'{life} {name} {text}'.encode())} {text}"

    def _set_facts(self, session_id: str, **fields: bytes | str | int) -> None:
        """Change fields of meta, and its check with them."""
        client, key = self._part(session_id, "meta")
        if fields:
            client.hset(key, mapping=fields)
        client.hset(key, "check", _digest(b"\n".join([key.encode(), *client.hmget(key, FACTS)])))

    def move_snapshots(self, session_id: str, head: int) -> None:
        client, key = self._part(session_id, "snapshots")
        for snapshot_id, value in client.hgetall(key).items():
            _, version, time, _, rest = value.decode().split(" ", 4)
            text = f"{version} {time} {head} {rest}"
            client.hset(key, snapshot_id, self._sealed(session_id, snapshot_id.decode(), text))

    def move_undo_steps(self, session_id: str, head: int) -> None:
        client, key = self._part(session_id, "meta")
        steps = (step.split(" ", 5) for step in client.hget(key, "undo").decode()[9:].split(";"))
        text = ";".join(" ".join([*step[:4], str(head), step[5]]) for step in steps)
        undo = self._sealed(session_id, "undo", text)
        parts = client.hget(key, "parts").split(b" ")
        parts[4] = b"%d" % len(undo)
        self._set_facts(session_id, undo=undo, parts=b" ".join(parts))

    def entries(self) -> int:
        return sum(client.xlen(key) for client in self._clients for key in client.scan_iter("*:log"))

    def remnants(self, *markers: str) -> dict[str, int]:
        """In the server's memory: every key, and all it holds. (The AOF is rewritten when the server sees fit.)"""
        stored = b"".join(
            key + repr(_READS[client.type(key)](client, key)).encode()
            for client in self._clients
            for key in client.scan_iter()
        )
        counts = {marker: stored.count(marker.encode()) for marker in markers}
        return {marker: count for marker, count in counts.items() if count}

    def size(self) -> int:
        return sum(len(client.dump(key)) for client in self._clients for key in client.scan_iter())

    def reader(self) -> AbstractContextManager[Callable[[str], bool]]:
        raise NotImplementedError("there are no read transactions")


_READS: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"hash": lambda client, key: client.hgetall(key),
    b"stream": lambda client, key: client.xrange(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1),
}


class Valkey(Place):
    finds_everywhere = orders_by_change = keeps_the_expired = has_readers = False
    far = keeps_names = True
    examples = 15

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._empty()

    def _empty(self) -> None:
        self.servers.valkey.command("FLUSHALL")

    @property
    def url(self) -> str:
        return str(self.servers.valkey.url)

    @property
    def editor(self) -> RedisEditor:
        client = redis.Redis.from_url(self.url)
        self._opened.append(client)
        return RedisEditor(lambda _: client, [client])


class AsyncValkey(Valkey):
    blocking = False


class Cluster(Valkey):
    def _empty(self) -> None:
        for node in self.servers.cluster.nodes:
            node.command("FLUSHALL")

    @property
    def url(self) -> str:
        return str(self.servers.cluster.url)

    @property
    def editor(self) -> RedisEditor:
        cluster = self.servers.cluster
        clients = {node.node_id: redis.Redis.from_url(node.url) for node in cluster.nodes}
        self._opened += clients.values()
        return RedisEditor(lambda key: clients[cluster.master_of(key).node_id], clients.values())


class AsyncCluster(Cluster):
    blocking = False


class Fake(Valkey):
    """fakeredis, with Lua: no server at all. Its client is given to the store."""

    shared = False

    def _empty(self) -> None:
        self._server = fakeredis.FakeServer()

    def _open(self, **options: Any) -> Any:
        client = fakeredis.FakeRedis(server=self._server, decode_responses=True)
        return everturn.from_client(client, **{"warnings": "off"} | options)

    @property
    def editor(self) -> RedisEditor:
        client = fakeredis.FakeRedis(server=self._server)
        return RedisEditor(lambda _: client, [client])
