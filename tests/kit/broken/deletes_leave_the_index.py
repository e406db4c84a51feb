"""A deletion that leaves the index of the search alone: what a user took back is still found."""

from __future__ import annotations

from typing import Any

from tests.kit.sound.core import Core, encoded
from tests.kit.sound.shapes import Items, made

CAUGHT_BY = ("deleted-items",)


class Broken(Items):
    def get(self, namespace: tuple[str, ...], key: str) -> Any:
        found = super().get(namespace, key)
        return None if found is None or "deleted" in found.value else found

    def delete(self, namespace: tuple[str, ...], key: str) -> None:
        with self.core.change() as db:
            row = (encoded({"deleted": True, "value": "old"}), encoded(namespace), key)
            db.execute("UPDATE items SET value = ? WHERE namespace = ? AND key = ?", row)


factory = made(Core, Broken)
