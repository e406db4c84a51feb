"""everturn: a store with one session, which it wrote itself."""

import everturn
from benchmarks.contenders.on_dynamodb import REGION
from everturn.bench.contenders.everturn_store import as_messages
from everturn.bench.workload import PlainMessage


class Everturn:
    """A turn is one `add_messages`."""

    def __init__(self, endpoint: str) -> None:
        """Open a store on a table of its own."""
        self._store = everturn.open(f"dynamodb://everturn?region={REGION}&endpoint={endpoint}&create=true", timeout=60)

    def append(self, session_id: str, turn: list[PlainMessage]) -> None:
        self._store.add_messages(session_id, as_messages(turn))

    def latest(self, session_id: str) -> int:
        """Read the latest 20 messages. Returns how many came."""
        return len(self._store.get_history(session_id, limit=20))

    def close(self) -> None:
        """Close the store."""
        self._store.close()
