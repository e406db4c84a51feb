"""Bare boto3: a turn is one PutItem of both messages, numbered by its writer. No transaction, no call id, no head."""

import json

from benchmarks.contenders.on_dynamodb import driver, make_table
from everturn.bench.workload import PlainMessage


class BareBoto3:
    """The least that a single writer needs."""

    def __init__(self, endpoint: str) -> None:
        """Make the table."""
        make_table(endpoint, "bare", "pk", "sk")
        self._driver = driver(endpoint)
        self._turns = 0

    def append(self, session_id: str, turn: list[PlainMessage]) -> None:
        self._turns += 1
        item = {"pk": {"S": session_id}, "sk": {"S": f"{self._turns:012d}"}, "turn": {"S": json.dumps(turn)}}
        self._driver.put_item(TableName="bare", Item=item, ConditionExpression="attribute_not_exists(pk)")

    def latest(self, session_id: str) -> int:
        """Read the latest ten turns."""
        found = self._driver.query(
            TableName="bare",
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": session_id}},
            ScanIndexForward=False,
            ConsistentRead=True,
            Limit=10,
        )
        return sum(len(json.loads(item["turn"]["S"])) for item in found["Items"])

    def close(self) -> None:
        """Close the client."""
        self._driver.close()
