"""Permissions: the actions of IAM that everturn needs, and the least policy that grants them. Pure.

tests/integration/dynamodb/test_permissions.py compares them with the requests that a store really sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TO_USE = ("BatchGetItem", "BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem")
"""For every operation of a store."""
TO_READ = ("BatchGetItem", "GetItem", "Query")
"""For a store that is opened with read_only=true."""
TO_VERIFY = ("Scan",)
"""For `verify` of a whole table: it looks for items that belong to no session."""
TO_EXAMINE = ("DescribeContinuousBackups", "DescribeTable", "DescribeTimeToLive")
"""For `everturn doctor`."""
TO_CREATE = ("CreateTable", "DescribeTable", "UpdateTimeToLive")
"""For `everturn init`, and for stores that are opened with create=true."""

OPERATIONS = frozenset({*TO_USE, *TO_VERIFY, *TO_EXAMINE, *TO_CREATE, "TransactGetItems", "TransactWriteItems"})
"""Operations of DynamoDB's interface that are sent. A transaction needs the permissions of what is in it."""

STATEMENTS: Mapping[str, Iterable[str]] = {
    "EverturnStore": TO_USE,
    "EverturnVerify": TO_VERIFY,
    "EverturnDoctor": TO_EXAMINE,
}
EXAMPLE_TABLE = "arn:aws:dynamodb:eu-central-1:111122223333:table/everturn"


def policy(table_arn: str, statements: Mapping[str, Iterable[str]] = STATEMENTS) -> dict[str, Any]:
    """Make the policy of IAM that lets a worker use one table, and no other."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": name,
                "Effect": "Allow",
                "Action": [f"dynamodb:{action}" for action in actions],
                "Resource": table_arn,
            }
            for name, actions in statements.items()
        ],
    }


def actions_of(operation: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield the actions of IAM that a request needs: of a transaction, those of its items."""
    if operation not in ("TransactGetItems", "TransactWriteItems"):
        yield operation
        return
    for item in parameters["TransactItems"]:
        for name in item:
            yield "ConditionCheckItem" if name == "ConditionCheck" else f"{name}Item"
