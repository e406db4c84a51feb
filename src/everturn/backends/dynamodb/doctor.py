"""doctor: the settings of a table, what they risk, and the permissions that the credentials lack. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from everturn.backends._shared.server_warnings import Examination, Finding
from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.create_table import definition
from everturn.backends.dynamodb.stored_form import PURGE
from everturn.backends.dynamodb.table import Table
from everturn.core.numbers import size
from everturn.errors import MemoryStoreBackendError

Answer = Mapping[str, Any]
PROBE = {"pk": {"S": "everturn"}, "sk": {"S": "probe"}}  # the key of an item that is never there


class TableFacts(msgspec.Struct, frozen=True):
    """The answers about a table. None: we may not ask. `denied`: the actions that the credentials do not allow."""

    table: Answer | None = None
    backups: Answer | None = None
    purge: Answer | None = None
    denied: tuple[str, ...] = ()


async def examine(table: Table, deadline: float) -> Examination:
    """Return facts of the table, and findings."""
    facts = await ask(table, deadline)
    found = (Finding(table.client.name, *wrong) for wrong in wrong_with(facts, table.client.table))
    return Examination(tuple(facts_of(facts)), tuple(found))


async def ask(table: Table, deadline: float) -> TableFacts:
    """Ask for the settings, and try each permission by a request that changes nothing."""
    name = table.client.table
    named = {"TableName": name}
    denied: list[str] = []

    async def answer(action: str, operation: str, parameters: dict[str, Any], *, writes: bool = False) -> Any:
        try:
            return await table.client.send(operation, parameters, deadline, writes=writes)
        except errors.ConditionNotMet:
            return {}  # permitted, and not done
        except MemoryStoreBackendError as exc:
            if errors.is_denied(exc):
                denied.append(action)
                return None
            if errors.is_unsupported(exc):
                return None  # a stand-in
            raise

    described = await answer("DescribeTable", "describe_table", named)
    backups = await answer("DescribeContinuousBackups", "describe_continuous_backups", named)
    purge = await answer("DescribeTimeToLive", "describe_time_to_live", named)
    is_probe = {":pk": PROBE["pk"], ":sk": PROBE["sk"]}
    asked = {**named, "KeyConditionExpression": "pk = :pk AND sk = :sk", "ExpressionAttributeValues": is_probe}
    await answer("Query", "query", asked)
    await answer("BatchGetItem", "batch_get_item", {"RequestItems": {name: {"Keys": [PROBE]}}})
    await answer("Scan", "scan", {**named, "Limit": 1, "ProjectionExpression": "pk"})
    deleted = {"RequestItems": {name: [{"DeleteRequest": {"Key": PROBE}}]}}
    await answer("BatchWriteItem", "batch_write_item", deleted, writes=True)
    # Each on a condition that is never met. DynamoDB looks at the permissions first.
    never = {"TableName": name, "ConditionExpression": "attribute_exists(pk)"}
    update = {"Key": PROBE, "UpdateExpression": "REMOVE waiting"}
    probes = ("PutItem", "Put", {"Item": PROBE}), ("DeleteItem", "Delete", {"Key": PROBE})
    for action, kind, part in (*probes, ("UpdateItem", "Update", update)):
        await answer(action, "transact_write_items", {"TransactItems": [{kind: {**never, **part}}]}, writes=True)
    return TableFacts((described or {}).get("Table"), backups, purge, tuple(denied))


def facts_of(facts: TableFacts) -> Iterator[tuple[str, str]]:
    """Yield the facts that one asks for first. Pure."""
    about = facts.table
    if about is not None:
        yield "table", f"{about.get('TableArn', about['TableName'])}, {about['TableStatus']}"
        yield "billing", _billing(about)
        items = f"{int(about.get('ItemCount', 0)):,} items (told every six hours)"
        yield "size", f"{size(int(about.get('TableSizeBytes', 0)))}, {items}"
        yield "indexes", ", ".join(_indexes(about)) or "none (none is needed)"
        yield "encryption", (about.get("SSEDescription") or {}).get("SSEType", "AWS owned key")
        yield "deletion protection", "on" if about.get("DeletionProtectionEnabled") else "off"
        yield "replicas", ", ".join(_replicas(about)) or "none"
    if facts.backups is not None:
        yield "point-in-time recovery", "on" if _recovers(facts.backups) else "off"
    if facts.purge is not None:
        yield "time to live", _purges(facts.purge) or "off"
    yield "permissions", f"lacking: {', '.join(facts.denied)}" if facts.denied else "all that everturn needs"


def wrong_with(facts: TableFacts, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield findings: the fault, the risk, and the fix. A setting that is not known is no finding. Pure."""
    cli = f"--table-name {name}"
    if facts.denied:
        yield (
            f"the credentials lack {', '.join(facts.denied)}",
            "operations that need them fail, or doctor cannot look",
            "grant the least policy: everturn docs storage-dynamodb",
        )
    if facts.table is not None:
        yield from _wrong_with_table(facts.table, cli)
    if facts.backups is not None and not _recovers(facts.backups):
        yield (
            "point-in-time recovery is off",
            "what a mistake deletes or overwrites cannot be had back",
            (
                f"aws dynamodb update-continuous-backups {cli} --point-in-time-recovery-specification "
                "PointInTimeRecoveryEnabled=true"
            ),
        )
    if facts.purge is not None and _purges(facts.purge) != PURGE:
        yield (
            f"the time to live is {_purges(facts.purge) or 'off'}",
            "traces of erased sessions stay for ever; with another attribute, items may vanish",
            f"aws dynamodb update-time-to-live {cli} --time-to-live-specification Enabled=true,AttributeName={PURGE}",
        )


def _wrong_with_table(about: Answer, cli: str) -> Iterator[tuple[str, str, str]]:
    if about["KeySchema"] != definition("")["KeySchema"]:
        yield (
            "its keys are not pk and sk",
            "no session can be stored in it",
            "make another table by everturn init",
        )
    if found := list(_indexes(about)):
        yield (
            f"it has indexes ({', '.join(found)})",
            "each doubles the cost of writes; a local one ends every session at 10 GB",
            "remove them; everturn needs none",
        )
    if found := list(_replicas(about)):
        yield (
            f"it is replicated to {', '.join(found)}",
            "if two regions write one session, one of them loses turns: the later write wins",
            "let workers of one region write, and the others be a standby",
        )
    if not about.get("DeletionProtectionEnabled"):
        yield (
            "deletion protection is off",
            "one command deletes every session",
            f"aws dynamodb update-table {cli} --deletion-protection-enabled",
        )
    if (about.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED") != "PAY_PER_REQUEST":
        yield (
            f"its capacity is fixed: {_billing(about)}",
            "when it is used up, calls wait, and fail after `timeout`",
            f"aws dynamodb update-table {cli} --billing-mode PAY_PER_REQUEST, or scale it automatically",
        )


def _billing(about: Answer) -> str:
    mode = (about.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    if mode == "PAY_PER_REQUEST":
        return "on demand"
    given = about.get("ProvisionedThroughput") or {}
    return f"{given.get('ReadCapacityUnits', 0)} read and {given.get('WriteCapacityUnits', 0)} write units"


def _indexes(about: Answer) -> Iterator[str]:
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        yield from (index["IndexName"] for index in about.get(kind) or ())


def _replicas(about: Answer) -> Iterator[str]:
    return (replica["RegionName"] for replica in about.get("Replicas") or ())


def _recovers(backups: Answer) -> bool:
    told = backups["ContinuousBackupsDescription"].get("PointInTimeRecoveryDescription") or {}
    return bool(told.get("PointInTimeRecoveryStatus") == "ENABLED")


def _purges(purge: Answer) -> str:
    told = purge["TimeToLiveDescription"]
    return str(told.get("AttributeName", "")) if told.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else ""
