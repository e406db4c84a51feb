"""Contenders on a stand-in for DynamoDB, counted in requests and request units: that is what DynamoDB bills.

Each makes the tables it needs, and takes the URL of the stand-in. All run in one process, one after the other.
"""

from typing import Any

from everturn.backends.dynamodb.create_table import definition

REGION = "us-east-1"


def driver(endpoint: str) -> Any:
    """Make a client of boto3."""
    import boto3

    return boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint)


def make_table(endpoint: str, name: str, partition: str, sort: str | None = None, *indexes: str) -> None:
    """Create a table with string keys, billed by request; an index for each further attribute."""
    named = [name for name in (partition, sort, *indexes) if name]
    keys = [(partition, "HASH"), *([(sort, "RANGE")] if sort else [])]
    made: dict[str, Any] = {
        **definition(name),
        "KeySchema": [{"AttributeName": attribute, "KeyType": kind} for attribute, kind in keys],
        "AttributeDefinitions": [{"AttributeName": attribute, "AttributeType": "S"} for attribute in named],
    }
    driver(endpoint).create_table(**made)
