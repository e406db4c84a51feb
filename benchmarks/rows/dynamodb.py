"""DynamoDB: requests and request units of a turn and of a read, beside bare boto3 and the peers, on one stand-in.

Seconds on a stand-in would say nothing of AWS. Units are those that the stand-in tells for each request.
"""

import importlib
import os
from collections.abc import Iterator
from typing import Any

from benchmarks.contenders.on_dynamodb.metered_proxy import MeteredProxy
from benchmarks.plan import Bar, RunPlan, TableRow
from benchmarks.rounds import progress
from benchmarks.stats import spread
from everturn.bench.workload import turns as make_turns
from everturn.testing.servers import ServerError, dynamodb_server
from everturn.testing.servers.dynamodb import CREDENTIALS, stand_in_program

HOME = "benchmarks.contenders.on_dynamodb"
OURS, BARE = ("everturn", "everturn_store:Everturn"), ("bare boto3, one PutItem", "bare:BareBoto3")
PEERS = (
    ("langgraph-checkpoint-aws DynamoDBSaver", "langgraph:LangGraphDynamoDBSaver"),
    ("agno DynamoDb", "agno:AgnoDynamoDb"),
)
LENGTHS = (20, 200)  # messages; a checkpointer that writes the state with every turn takes minutes for more
MEASURED = 10  # turns, and reads
LATEST = 20


def measure(plan: RunPlan) -> Iterator[TableRow]:
    """Averages of ten calls, one writer, a session of 20 and of 200 messages of 200 bytes. The figure is requests."""
    try:
        stand_in_program("dynoxide")  # the stand-in whose units were compared with those of the items
    except ServerError as exc:
        yield TableRow("DynamoDB", "", str(exc))
        return
    os.environ |= CREDENTIALS
    with dynamodb_server("dynoxide") as server, MeteredProxy(server.endpoint) as proxy:
        yield TableRow("DynamoDB: the stand-in", server.kind, "", note="AWS itself was not used")
        told: dict[tuple[str, int, str], tuple[float, str]] = {}
        entrants = (OURS, BARE, *(PEERS if plan.peers else ()))
        absent: dict[str, str] = {}
        for title, target in entrants:
            try:
                told |= _measured(title, target, proxy)
            except ImportError as exc:
                absent[title] = f"not installed: {exc.name}"
    for length in LENGTHS:
        for work, bar in (("append a turn", Bar("<=", 1.0)), ("read the 20 latest", Bar("<=", 1.0))):
            requests, ours = told[OURS[0], length, work]
            others = [f"{title}: {told[title, length, work][1]}" for title, _ in entrants[2:] if title not in absent]
            yield TableRow(
                f"DynamoDB: {work}, of {length:,} messages",
                ours,
                f"{told[BARE[0], length, work][1]} bare",
                spread([requests]),
                unit=" requests",
                bar=bar,
                note="; ".join(others),
            )
    for title, why in absent.items():
        yield TableRow(f"DynamoDB: {title}", "", why)


def _measured(title: str, target: str, proxy: MeteredProxy) -> dict[Any, tuple[float, str]]:
    """Fill a session of each length, then count some turns and some reads."""
    module, _, name = target.partition(":")
    contender = getattr(importlib.import_module(f"{HOME}.{module}"), name)(proxy.endpoint)
    meter = proxy.meter
    told: dict[Any, tuple[float, str]] = {}
    for length in LENGTHS:
        progress(f"writing {length:,} messages to {title}")
        session = f"session-{length}"
        written = make_turns(length // 2 + MEASURED)
        for turn in written[: length // 2]:
            contender.append(session, turn)
        meter.begin()
        for turn in written[length // 2 :]:
            contender.append(session, turn)
        told[title, length, "append a turn"] = meter.requests / MEASURED, meter.line(MEASURED)
        meter.begin()
        for _ in range(MEASURED):
            if contender.latest(session) != LATEST:
                raise AssertionError(f"{title} did not return the latest {LATEST} messages")
        told[title, length, "read the 20 latest"] = meter.requests / MEASURED, meter.line(MEASURED)
    contender.close()
    return told
