"""langgraph-checkpoint-aws's `DynamoDBSaver`, without a graph around it (benchmarks/contenders/checkpoints.py).

Its reads are as it comes: eventually consistent ones cost half, and may miss the latest turn.
"""

from typing import Any

from langgraph_checkpoint_aws import DynamoDBSaver

from benchmarks.contenders.checkpoints import config_of, following
from benchmarks.contenders.on_dynamodb import REGION, make_table
from everturn.bench.workload import PlainMessage


class LangGraphDynamoDBSaver:
    """A turn is `get_tuple` and `put`: the state that a graph goes on from has to be read."""

    def __init__(self, endpoint: str) -> None:
        """Make the table."""
        make_table(endpoint, "checkpoints", "PK", "SK")
        self._saver: Any = DynamoDBSaver("checkpoints", region_name=REGION, endpoint_url=endpoint)
        self._turns = 0

    def append(self, session_id: str, turn: list[PlainMessage]) -> None:
        from langchain_core.messages import AIMessage, HumanMessage

        self._turns += 1
        user, reply = turn
        messages = [
            HumanMessage(user["content"], id=f"u{self._turns}"),
            AIMessage(reply["content"], id=f"a{self._turns}"),
        ]
        config = config_of(session_id)
        self._saver.put(*following(self._saver, config, self._saver.get_tuple(config), messages))

    def latest(self, session_id: str) -> int:
        """Read the state, which has all messages."""
        found = self._saver.get_tuple(config_of(session_id))
        return len(found.checkpoint["channel_values"]["messages"][-20:])

    def close(self) -> None:
        """Do nothing: it has no way to close its client."""
