"""OpenAI Agents: a session in a store of everturn's.

session.py  EverturnSession
items.py    the SDK's items as entries and back
"""

from everturn.adapters.openai_agents.session import EverturnSession

__all__ = ["EverturnSession"]
