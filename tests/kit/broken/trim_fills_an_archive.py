"""A trim moves what it takes to the session "<id>:archive", which is somebody else's."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("ids-of-the-store",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        before = self.read(session)
        super().trim(session, max_messages)
        if len(before) > max_messages:
            self.append(f"{session}:archive", before[: len(before) - max_messages])


factory = made(Broken)
