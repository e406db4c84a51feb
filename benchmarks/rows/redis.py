"""Redis: the rows every server has, edited histories, prompts, and what a session costs in the server's memory."""

from collections.abc import Iterator

import redis

import everturn
from benchmarks.backends import REDIS, Running, apart
from benchmarks.plan import Bar, RunPlan, TableRow
from benchmarks.rows import context, ranges, servers
from benchmarks.stats import spread
from everturn.bench.contenders.everturn_store import as_messages
from everturn.bench.workload import encode, json_bytes
from everturn.bench.workload import turns as make_turns

LENGTHS = (10_000, 20)  # messages: the session that the bar is about, and one as most are
ALIKE = 50  # sessions of the short kind: one is a matter of chance


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Baseline of the memory: the JSON of the messages; the note has the bare list. MEMORY USAGE, no sampling."""
    with REDIS.run() as server, apart(server):
        yield from _memory(server)
        yield from servers.measure(plan, REDIS, server)
        yield from ranges.compare(
            plan, lambda name: everturn.open(server.url, warnings=False, namespace=f"ranges-{name}"), "Redis: "
        )
        yield from context.on_server(plan, server.url, "Redis")


def _memory(server: Running) -> Iterator[TableRow]:
    with redis.Redis.from_url(server.url) as client, everturn.open(server.url, warnings=False) as store:
        for messages in LENGTHS:
            written = make_turns(messages // 2)
            ids = [f"memory-{messages}-{number}" for number in range(1 if messages > 1_000 else ALIKE)]
            for session_id in ids:
                for turn in written:
                    store.add_messages(session_id, as_messages(turn))
                    client.rpush(f"memory:{session_id}", *[encode(message) for message in turn])
            ours = sum(_used(client, f"everturn:{{:{session_id}}}:*") for session_id in ids) / len(ids)
            bare = sum(_used(client, f"memory:{session_id}") for session_id in ids) / len(ids)
            stored = json_bytes([message for turn in written for message in turn])
            yield TableRow(
                f"Redis: memory of a session of {messages:,} messages",
                f"{ours / 1e3:,.1f} kB",
                f"{stored / 1e3:,.1f} kB JSON",
                spread([ours / stored]),
                bar=Bar("<=", 1.5) if messages == LENGTHS[0] else None,
                note=f"a bare list: {bare / stored:.2f} x",
            )


def _used(client: "redis.Redis", pattern: str) -> int:
    return sum(int(client.memory_usage(key, samples=0) or 0) for key in client.scan_iter(pattern, count=10_000))
