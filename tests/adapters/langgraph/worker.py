"""One process of several that talk in one thread through a graph. Takes a url, a name, how many turns, how durable.

It tells what was acknowledged, and how often another was quicker.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import everturn
from everturn import VersionConflict
from everturn.adapters.langgraph import EverturnSaver
from tests.adapters.langgraph.scenarios import CONFIG, chat, say


def main(url: str, name: str, turns: str, durability: Any) -> None:
    acknowledged: list[str] = []
    conflicts = 0
    with everturn.open(url) as store:
        graph = chat(EverturnSaver(store))
        print("ready", flush=True)
        sys.stdin.readline()
        for turn in range(int(turns)):
            while True:
                try:
                    graph.invoke(say(f"{name} {turn}"), CONFIG, durability=durability)
                except VersionConflict:
                    conflicts += 1
                else:
                    acknowledged.append(f"{name} {turn}")
                    break
    print(json.dumps({"acknowledged": acknowledged, "conflicts": conflicts}))
