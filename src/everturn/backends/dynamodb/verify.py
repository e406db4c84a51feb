"""Verification: examines a session as it is stored, and looks for items of no session."""

from __future__ import annotations

from typing import Any

from everturn.backends._shared.verification import ExaminedSession, examine
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.stored_form import HEAD, RECEIPTS, cleanup_key, session_key
from everturn.backends.dynamodb.table import Table, read_head
from everturn.core.codec import EntryRow
from everturn.model import Problem
from everturn.transfer.session_lines import ChangePart


async def verify_session(log: LogReader) -> tuple[int, list[Problem]]:
    """Count the stored entries of a session, and list its problems (Backend.verify)."""
    head = log.head
    name = head.session_id
    problems: list[Problem] = []
    rows: list[EntryRow] = []
    if head.last_seq:
        async for page in log.blocks(1, head.last_seq):
            rows += await log.rows(page, 1, head.last_seq)
    changes: list[ChangePart] = []
    async for some in log.changes_back(1000):
        changes += some
    changes.reverse()
    lost = await log.unreadable(changes) if changes else []
    snapshots = await log.snapshots()
    if len(snapshots) != head.snapshots:
        problems.append(Problem(name, None, f"it has {len(snapshots)} snapshots, where {head.snapshots} were taken"))
    roots = [
        (head.state, "the head"),
        *((part.state, f"snapshot {part.id}") for part in snapshots),
        *((step.before, f"the undo step of version {step.id}") for step in head.undo),
    ]
    stored = ExaminedSession(
        *(name, head.version, head.last_seq, await log.jumps(), roots),
        [part.state for part, is_lost in zip(changes, lost, strict=True) if not is_lost],
        [part.version for part in changes],
    )
    kinds, found = examine(stored, rows)
    return len(kinds), problems + found


async def verify_strays(table: Table, deadline: float) -> list[Problem]:
    """Look for items that belong to no session and are not noted for removal. Reads the keys of the whole table."""
    prefix = session_key(table.namespace, "")
    wanted: dict[str, Any] = {
        "TableName": table.client.table,
        "ProjectionExpression": "pk, sk",
        "FilterExpression": "begins_with(pk, :prefix)",
        "ExpressionAttributeValues": {":prefix": {"S": prefix}},
        "ConsistentRead": True,
    }
    logs: set[tuple[str, str]] = set()
    while True:
        answer = await table.client.send("scan", wanted, deadline)
        for item in answer["Items"]:
            if item["sk"]["S"] not in (HEAD, RECEIPTS):
                logs.add((item["pk"]["S"], item["sk"]["S"][1:].partition("/")[0]))
        if "LastEvaluatedKey" not in answer:
            break
        wanted["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    noted = {
        part
        for item in await table.all(cleanup_key(table.namespace), None, None, deadline, only="sk")
        for part in item["sk"]["S"].split("/")
    }
    heads = await table.get_many({(pk, HEAD): None for pk, _ in logs}, deadline)
    problems: list[Problem] = []
    for pk, log in sorted(logs):
        stored = read_head(pk.removeprefix(prefix), heads.get((pk, HEAD)))
        if log not in noted and (stored is None or stored.head.log != log):
            problems.append(Problem(None, None, f"items of the log {log} in {pk!r}, which no session names"))
    return problems
