"""OpenAI Agents SDK: a session in a store of everturn's: `Runner.run(..., session=EverturnSession("a", store))`.

session.py        EverturnSession, the SDK's interface; _shared/openai_items.py turns items into messages and back
compaction.py     EverturnCompactionSession, which folds its oldest items behind a summary
once_per_call.py  once_per_call, for tools: a call is an effect, done once
"""

from everturn.adapters._shared.sync_async import require

require("openai-agents", (0, 10), "openai-agents")

from everturn.adapters.openai_agents.compaction import EverturnCompactionSession  # noqa: E402 - after the check
from everturn.adapters.openai_agents.once_per_call import once_per_call  # noqa: E402
from everturn.adapters.openai_agents.session import EverturnSession  # noqa: E402 - after the check

__all__ = ["EverturnCompactionSession", "EverturnSession", "once_per_call"]
