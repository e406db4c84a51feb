"""agno's `DynamoDb`: a turn is a run and the session, as an agent saves them; a history is the runs of the session."""

from typing import Any
from uuid import uuid4

from agno.db.base import SessionType
from agno.db.dynamo import DynamoDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session.agent import AgentSession

from benchmarks.contenders.on_dynamodb import driver
from everturn.bench.workload import PlainMessage


class AgnoDynamoDb:
    """One store for all sessions. It makes its tables itself."""

    def __init__(self, endpoint: str) -> None:
        """Make the client."""
        self._driver = driver(endpoint)
        self._store: Any = DynamoDb(
            db_client=self._driver, session_table="agno_sessions", runs_table="agno_runs", id="benchmark"
        )
        self._runs = 0

    def append(self, session_id: str, turn: list[PlainMessage]) -> None:
        messages = [Message(role=message["role"], content=message["content"]) for message in turn]
        run = RunOutput(run_id=str(uuid4()), agent_id="agent", session_id=session_id, messages=messages)
        self._store.upsert_session(AgentSession(session_id=session_id, agent_id="agent", created_at=1))
        self._store.upsert_run(run, session_id, run_index=self._runs)
        self._runs += 1

    def latest(self, session_id: str) -> int:
        """Read the latest ten runs."""
        session = self._store.get_session(session_id, SessionType.AGENT, runs_limit=10)
        return sum(len(run.messages or ()) for run in session.runs or ())

    def close(self) -> None:
        """Close the client."""
        self._driver.close()
