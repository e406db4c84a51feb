"""All items of a namespace in one row, which is read, extended and written back: of four workers one's items stay."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Items, made

CAUGHT_BY = ("items-at-once",)


class Broken(Items):
    def all_of(self, namespace: tuple[str, ...]) -> dict[str, Any]:
        found = self.core.read(json.dumps(namespace))
        return found[0] if found else {}

    def put(self, namespace: tuple[str, ...], key: str, value: Any) -> None:
        self.core.replace(json.dumps(namespace), [{**self.all_of(namespace), key: value}])

    def get(self, namespace: tuple[str, ...], key: str) -> Any:
        value = self.all_of(namespace).get(key)
        return None if value is None else SimpleNamespace(namespace=namespace, key=key, value=value)

    def search(self, namespace_prefix: tuple[str, ...], /, *, limit: int = 10, offset: int = 0) -> list[Any]:
        named = self.all_of(namespace_prefix)
        found = [SimpleNamespace(namespace=namespace_prefix, key=key, value=value) for key, value in named.items()]
        return found[offset : offset + limit]


factory = made(Core, Broken)
