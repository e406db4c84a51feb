"""OpenAI Agents: a session in a store of everturn's.

session.py  EverturnSession
items.py    the SDK's items as entries and back
"""

from everturn.adapters._shared.sync_async import require

require("openai-agents", (0, 10), "openai-agents")

from everturn.adapters.openai_agents.session import EverturnSession  # noqa: E402 - after the check

__all__ = ["EverturnSession"]
