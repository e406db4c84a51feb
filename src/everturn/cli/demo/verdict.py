"""Acknowledged turns compared with stored messages. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec


class DemoCounts(msgspec.Struct, frozen=True):
    """Turns of one store. A turn is lost if it was acknowledged and its question or answer is not there, doubled if one
    of them is there twice, torn if a question is not followed by its answer."""

    acknowledged: int
    lost: int
    doubled: int
    torn: int

    @property
    def sound(self) -> bool:
        return self.lost == self.doubled == self.torn == 0


def judge(acknowledged: Sequence[str], messages: Sequence[str]) -> DemoCounts:
    there = Counter(messages)
    lost = sum(not (there[f"question {turn}"] and there[f"answer {turn}"]) for turn in acknowledged)
    doubled = sum(number > 1 for number in there.values())
    torn = sum(
        message.startswith("question ")
        and (place + 1 == len(messages) or messages[place + 1] != message.replace("question", "answer", 1))
        for place, message in enumerate(messages)
    )
    return DemoCounts(len(acknowledged), lost, doubled, torn)
