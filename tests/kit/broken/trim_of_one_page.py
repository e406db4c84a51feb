"""A trim that looks at the first hundred messages, and keeps the latest of those."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import made

CAUGHT_BY = ("long-trim",)


class Broken(Core):
    def trim(self, session: str, max_messages: int) -> None:
        with self.change() as db:
            self.begin(db, session)
            page = self.load(db, session)[:100]
            if len(page) > max_messages:
                self.set_all(db, session, page[len(page) - max_messages :])
                self.touch(db, session)
                return
        super().trim(session, max_messages)


factory = made(Broken)
