"""Verification: examines a session as it is stored, and looks for items of no session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everturn.backend import REMEMBERED
from everturn.backends._shared.verification import SURPRISES, ExaminedSession, examine
from everturn.backends.dynamodb.log_reader import LogReader
from everturn.backends.dynamodb.stored_form import (
    HEAD,
    RECEIPTS,
    cleanup_key,
    head_of,
    is_sound,
    key_sk,
    names_key,
    session_key,
    sk_of,
    versions_of,
)
from everturn.backends.dynamodb.table import Table
from everturn.core.codec import EntryRow
from everturn.core.signal_exceptions import is_interruption
from everturn.errors import CorruptEntry, MemoryStoreBackendError
from everturn.model import SUMMARY, Problem
from everturn.transfer.session_lines import ChangePart, SnapshotPart


async def verify_session(log: LogReader) -> tuple[int, list[Problem]]:
    """Count the stored entries of a session, and list its problems (Backend.verify)."""
    head = log.head
    name = head.session_id
    problems: list[Problem] = []
    rows: list[EntryRow] = []
    changes: list[ChangePart] = []
    snapshots: list[SnapshotPart] = []
    lost: list[bool] = []
    listed: list[int] = []

    @contextmanager
    def noting() -> Iterator[None]:
        """Note damage that keeps a part from being read, and go on with the others."""
        try:
            yield
        except MemoryStoreBackendError:
            raise
        except (CorruptEntry, *SURPRISES) as exc:
            if is_interruption(exc):
                raise
            problems.append(Problem(name, None, str(exc)))

    with noting():
        jumps = await log.jumps()
    if problems:
        return 0, problems  # the rest is nothing without the jumps
    if head.last_seq:
        with noting():
            async for page in log.blocks(1, head.last_seq):
                rows += await log.rows(page, 1, head.last_seq)
    with noting():
        async for some in log.changes_back(1000):
            changes += some
    changes.reverse()
    with noting():
        there = {part.version for part in changes}
        first = max(1, head.version - REMEMBERED + 1)
        if lacking := [version for version in range(first, head.version + 1) if version not in there]:
            raise ValueError(f"the change that made version {lacking[0]} is lost")
    with noting():
        lost = await log.unreadable(changes) if changes else []
    with noting():
        snapshots = await log.snapshots()
    with noting():
        await log.effects()
    with noting():
        await log.check_notes()
    with noting():
        listed = await log.summaries(1, head.last_seq)
        problems += (
            Problem(name, row[0], "the summary is not in the list of summaries")
            for row in rows
            if row[4] == SUMMARY and row[0] not in listed
        )
    with noting():
        await check_keys(log, changes)
    roots = [
        (head.state, "the head"),
        *((part.state, f"snapshot {part.id}") for part in snapshots),
        *((step.before, f"the undo step of version {step.id}") for step in head.undo),
    ]
    stored = ExaminedSession(
        *(name, head.version, head.last_seq, jumps, roots),
        [part.state for part, is_lost in zip(changes, lost or [True] * len(changes), strict=True) if not is_lost],
        [part.version for part in changes],
    )
    kinds, found = examine(stored, rows)
    return len(kinds), problems + found


async def check_keys(log: LogReader, changes: list[ChangePart]) -> None:
    """Look whether every key of a remembered change is stored. Raises ValueError if one is damaged or lost."""
    used = {key_sk(log.head, part.key): part.version for part in changes if part.key is not None}
    items = await log.table.get_many([(log.pk, sk) for sk in used], log.deadline)
    for sk, version in used.items():
        if version not in versions_of(items.get((log.pk, sk), {})):
            raise ValueError(f"the key of version {version} is lost")


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
    unnamed: set[str] = set()
    while True:
        answer = await table.client.send("scan", wanted, deadline)
        for item in answer["Items"]:
            if item["sk"]["S"] == HEAD:
                unnamed.add(item["pk"]["S"])
            elif item["sk"]["S"] != RECEIPTS:
                logs.add((item["pk"]["S"], item["sk"]["S"][1:].partition("/")[0]))
        if "LastEvaluatedKey" not in answer:
            break
        wanted["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
    notes = await table.all(cleanup_key(table.namespace), None, None, deadline)
    problems = [Problem(None, None, f"the note {sk_of(note)!r} is damaged") for note in notes if not is_sound(note)]
    noted = {part for item in notes for part in sk_of(item).split("/")}
    names = {table.key_of(sk_of(item)) for item in await table.all(names_key(table.namespace), None, None, deadline)}
    unnamed -= names
    heads = await table.get_many({(pk, HEAD): None for pk in unnamed | {pk for pk, _ in logs}}, deadline)
    for pk, log in sorted(part for part in logs if part[0] not in names or (part[0], HEAD) in heads):
        found = heads.get((pk, HEAD))
        if found is not None and not is_sound(found):
            continue  # its own verification reports it
        stored = head_of(found)
        if log not in noted and (stored is None or stored.head.log != log):
            problems.append(Problem(None, None, f"items of the log {log} in {pk!r}, which no session names"))
    for pk in sorted(unnamed):
        found = heads.get((pk, HEAD))
        stored = head_of(found) if found is not None and is_sound(found) else None
        if stored is None or stored.head.life:
            problems.append(Problem(pk.removeprefix(prefix), None, "it is not in the list of sessions"))
    return problems
