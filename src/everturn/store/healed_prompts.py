"""Heals prompts (core/healing.py), and counts those that healing changed."""

from __future__ import annotations

from everturn import telemetry
from everturn.core import healing
from everturn.events import Source
from everturn.model import ChatMessage


def healed(messages: list[ChatMessage], source: Source) -> list[ChatMessage]:
    """Make a prompt that models accept out of these messages."""
    prompt = healing.heal(messages)
    if healing.has_healed(prompt, messages):
        count_healed(source)
    return prompt


def count_healed(source: Source) -> None:
    """Count a prompt that healing changed."""
    telemetry.count("everturn.heals", source.system, {})
