"""A search for a prefix as text, without the separator behind it: user1 is given the memories of user10."""

from __future__ import annotations

from tests.kit.sound.core import Core
from tests.kit.sound.shapes import Items, made

CAUGHT_BY = ("item-namespaces",)


class Broken(Items):
    def is_below(self, namespace: tuple[str, ...], prefix: tuple[str, ...]) -> bool:
        return "/".join(namespace).startswith("/".join(prefix))


factory = made(Core, Broken)
