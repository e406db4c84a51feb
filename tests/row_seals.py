"""Gives rows that a test changed by hand the checksums of what they say now, as a fault of our own would.

Then it is seen that a row is also compared with others. (A disk does not do this: docs/decisions/029.)
"""

from __future__ import annotations

import re
from importlib.resources import files

import apsw

from everturn.backends.sqlite import schema


def seal(db: apsw.Connection) -> None:
    """Compute counts and checksums of all rows again, except those of entries, as the migration to version 3 does."""
    script = files("everturn.backends.sqlite").joinpath("schema/003.sql").read_text("utf-8")
    schema.offer_checksums(db)
    for statement in re.findall(r"^UPDATE (?!entries)[^;]+;", script, re.MULTILINE):
        db.execute(statement.replace("undo_steps, last_jump)", "undo_steps, last_jump, facts, effects)"))
