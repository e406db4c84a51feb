"""Under LangGraph, whose own savers are contenders already. `benchmarks.contenders.checkpoints` defines a turn."""

from langgraph.checkpoint.base import BaseCheckpointSaver

from benchmarks.contenders.checkpoints import CheckpointerContender
from everturn.adapters.langgraph import EverturnSaver
from everturn.bench.contenders import Place
from everturn.bench.contenders.everturn_store import open_store


class EverturnUnderLangGraph(CheckpointerContender):
    """`EverturnSaver`, one for all threads."""

    def __init__(self, place: Place) -> None:
        """Open the store."""
        self._store = open_store(place)
        self.saver: BaseCheckpointSaver[int] = EverturnSaver(self._store)

    def load(self, session_id: str) -> tuple[float, int]:
        """Load by a saver that has not seen the thread: one that has knows its messages already."""
        self.saver = EverturnSaver(self._store)
        return super().load(session_id)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class LangGraphValkeySaver(CheckpointerContender):
    """`ValkeySaver` of LangChain's package for AWS: Redis' own saver needs modules that a plain server has not."""

    def __init__(self, url: str) -> None:
        """Connect."""
        from langgraph_checkpoint_aws import ValkeySaver

        self._context = ValkeySaver.from_conn_string(url)
        self.saver = self._context.__enter__()

    def close(self) -> None:
        """Close the store."""
        self._context.__exit__(None, None, None)
