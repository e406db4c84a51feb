"""The namespace of a checkpoint is ignored: a subgraph resumes with the messages of its parent."""

from __future__ import annotations

import json
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import LangGraph, made

CAUGHT_BY = ("subgraphs",)


class Broken(LangGraph):
    def session(self, config: Any) -> str:
        return json.dumps([config["configurable"]["thread_id"], ""])


factory = made(Core, Broken)
