"""Heals prompts (core/healing.py), and counts those that healing changed."""

from __future__ import annotations

import operator

from everturn import telemetry
from everturn.core import healing
from everturn.events import Source
from everturn.model import ChatMessage


def healed(messages: list[ChatMessage], source: Source) -> list[ChatMessage]:
    """Make a prompt that models accept out of these messages."""
    prompt = healing.heal(messages)
    if len(prompt) != len(messages) or any(map(operator.is_not, prompt, messages)):
        telemetry.count("everturn.heals", source.system, {})
    return prompt
