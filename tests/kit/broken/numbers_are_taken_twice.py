"""Strands FileSessionManager 1.62.0: a message whose number is taken is written over the first."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Strands, made_without_ttl

CAUGHT_BY = ("checkpoint-lost-update",)


class Broken(Strands):
    insert = "INSERT OR REPLACE INTO numbered VALUES (?, ?, ?, ?)"


factory = made_without_ttl(Core, shape=Broken)
