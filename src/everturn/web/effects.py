"""The lease of a session, and the list of its effects, on its page and on that of a rollback."""

from __future__ import annotations

from collections.abc import Sequence

from everturn.errors import Unsupported
from everturn.model import Effect
from everturn.model.held_lease import HeldLease
from everturn.store.aio import AsyncMemoryStore
from everturn.ui.descriptions import effect_in_words
from everturn.ui.html import Node, shown, tag

MOST = 100  # effects on a page, the latest


async def effects_of(store: AsyncMemoryStore, session_id: str) -> list[Effect]:
    """List the effects of a session; none where the backend keeps none."""
    try:
        return await store.get_effects(session_id)
    except Unsupported:
        return []


async def lease_of(store: AsyncMemoryStore, session_id: str) -> HeldLease | None:
    """Look who holds the lease of a session; None where the backend does not tell."""
    try:
        return await store.get_lease(session_id)
    except Unsupported:
        return None


def effect_list(title: str, effects: Sequence[Effect]) -> Node:
    """A section that lists effects, the latest first; nothing if there are none."""
    if not effects:
        return None
    items = [
        tag("li", tag("strong", shown(effect.key)), tag("span", " ", shown(effect_in_words(effect))))
        for effect in reversed(effects[-MOST:])
    ]
    rest = tag("p", f"and {len(effects) - MOST:,} earlier ones") if len(effects) > MOST else None
    return tag("section", tag("h2", title), tag("ul", items), rest, class_="snapshots effects")
