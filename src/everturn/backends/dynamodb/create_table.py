"""Prepares a table: looks at the version of its stored form, and creates it if that is wanted.

A table is one pair of keys, and nothing else: no index. docs/storage-dynamodb.md has it for CloudFormation and
Terraform.
"""

from __future__ import annotations

import time
from typing import Any

from everturn.backends.dynamodb import errors
from everturn.backends.dynamodb.client import DynamoDBClient
from everturn.backends.dynamodb.stored_form import PURGE
from everturn.errors import MemoryStoreBackendError, SchemaTooNew

FORM = 1  # version of the stored form
FORM_KEY = {"pk": {"S": "everturn"}, "sk": {"S": "form"}}
_POLL = 0.05
_ABSENT = "there is no such table"


def definition(table: str) -> dict[str, Any]:
    """Return the parameters of CreateTable."""
    return {
        "TableName": table,
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        "BillingMode": "PAY_PER_REQUEST",
    }


async def prepare(client: DynamoDBClient, deadline: float, *, create: bool, read_only: bool) -> None:
    """Look at the table, and note the version of the stored form in it if it is new. Raises SchemaTooNew.

    Without `create`, a table that is not there is an error that says how to make it.
    """
    wanted = {"TableName": client.table, "Key": FORM_KEY, "ConsistentRead": True}
    try:
        answer = await client.send("get_item", wanted, deadline)
    except MemoryStoreBackendError as exc:
        if not create or read_only or _ABSENT not in str(exc):
            raise
        await _create(client, deadline)
        answer = {}
    found = answer.get("Item")
    if found is None and not read_only:
        item = {**FORM_KEY, "version": {"N": str(FORM)}}
        try:
            await client.send(
                "put_item",
                {"TableName": client.table, "Item": item, "ConditionExpression": "attribute_not_exists(pk)"},
                deadline,
                writes=True,
            )
        except errors.ConditionNotMet:
            answer = await client.send("get_item", wanted, deadline)
            found = answer.get("Item")
    if found is not None and int(found["version"]["N"]) > FORM:
        version = found["version"]["N"]
        raise SchemaTooNew(
            f"{client.name} has the stored form {version}, and this everturn knows {FORM}; use a newer everturn. "
            "Nothing was changed",
            found=int(version),
            supported=FORM,
        )


async def _create(client: DynamoDBClient, deadline: float) -> None:
    """Create the table, and wait until it can be used."""
    try:
        await client.send("create_table", definition(client.table), deadline, writes=True)
    except MemoryStoreBackendError as exc:
        if "ResourceInUseException" not in str(exc):  # another process was faster
            raise
    while True:
        answer = await client.send("describe_table", {"TableName": client.table}, deadline)
        if answer["Table"]["TableStatus"] == "ACTIVE":
            break
        if time.monotonic() >= deadline:
            text = f"{client.name}: the table was created, and is not ready yet; open it again"
            raise MemoryStoreBackendError(text, outcome="not_written")
        await client.sleep(_POLL)
    purge = {"Enabled": True, "AttributeName": PURGE}
    try:
        await client.send(
            "update_time_to_live", {"TableName": client.table, "TimeToLiveSpecification": purge}, deadline, writes=True
        )
    except MemoryStoreBackendError as exc:
        if "ValidationException" not in str(exc):  # another process has switched it on
            raise
