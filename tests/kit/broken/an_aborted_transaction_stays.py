"""PostgreSQL, a connection for each thread, and no rollback after an error of the server."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.kit.sound.postgres_rows import Rows

CAUGHT_BY = ("after-a-fault",)


class Broken(Rows):
    def __init__(self, prefix: str, url: str) -> None:
        super().__init__(prefix, url)
        self.kept = threading.local()

    def add_messages(self, session_id: str, messages: Sequence[Any]) -> None:
        if not hasattr(self.kept, "db"):
            self.kept.db = psycopg.connect(self.url)
        rows = json.dumps([dict(message) for message in messages])
        sql = "INSERT INTO $_sessions VALUES (%s, 0) ON CONFLICT DO NOTHING"
        self.kept.db.execute(self.sql(sql), (session_id,))
        sql = (
            "WITH one AS (UPDATE $_sessions SET last = last + 1000 WHERE session = %s RETURNING last) "
            "INSERT INTO $_messages SELECT %s, last + place, body FROM one, "
            "jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS of (body, place)"
        )
        self.kept.db.execute(self.sql(sql), (session_id, session_id, rows))
        self.kept.db.commit()


def factory(where: Path, postgres_url: str) -> Broken:
    return Broken(where.name, postgres_url)


factory.share_threads = True  # type: ignore[attr-defined]
