"""A key of application, user and session without separators: two tenants read one conversation."""

from __future__ import annotations

import json

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Adk, made

CAUGHT_BY = ("applications",)


class Broken(Adk):
    def session(self, app_name: str, user_id: str, session_id: str) -> str:
        return json.dumps([app_name + user_id, session_id])


factory = made(Core, Broken)
