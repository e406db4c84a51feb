"""Clauses of isolation: no operation on a session touches another, however similar their ids are."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from everturn.testing.kit.clause import ClauseRegistry
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential")
Written: TypeAlias = dict[str, list[tuple[SentMessage, ...]]]

FAMILIES: dict[str, tuple[str, ...]] = {
    "case": ("session", "Session", "SESSION", "sessioN"),
    "prefix": ("a", "aa", "a:", "a:b", "a:b:c", "a-", "a-1", "a-10"),
    "wildcard": ("%", "_", "*", "?", "a%", "a_", "a*", "ab", "[ab]", "a?", "\\%", "\\", ".*"),
    "unicode form": (
        *(unicodedata.normalize(form, "caf\u00e9") for form in ("NFC", "NFD")),
        "cafe",
        "\ufb01",
        "fi",
        "\u017f",
        "s",
        "K",
        "\u212a",
    ),
    "white space": ("x", " x", "x ", " x ", "x\n", "x\t", "\u00a0x", "x\u200b", "  x"),
    "separator": ("a/b", "a//b", "a.b", "a|b", "a,b", "a;b", "a b", "a\x1fb", "{a}", "{a}b", "../a", "a'b", 'a"b'),
    "number": ("1", "01", "1.0", "+1", "1e0", "True", "None", "null", "0", "-0"),
}


def filled(kit: Kit, store: Instance, names: Sequence[str], turns: int = 2) -> Written:
    """Append to each session, one after the other. Returns those whose ids the store did not refuse."""
    written: Written = {name: [] for name in names}
    for _ in range(turns):
        fresh = {name: kit.turn() for name in written}
        outcomes = store.run(*(Step("append", name, (turn,)) for name, turn in fresh.items()))
        for (name, turn), outcome in zip(fresh.items(), outcomes, strict=True):
            if outcome.ok:
                written[name].append(turn)
            else:
                del written[name]
    return written


def families(kit: Kit, store: Instance, most: int | None = None) -> Iterator[tuple[str, Written]]:
    """Fill families of similar ids, at most so many, in the order of the dice. Yields those of which at least two
    ids were not refused; and before them, for stores that are picky, one of ordinary ids."""
    order = kit.dice.sample(sorted(FAMILIES), len(FAMILIES))
    ordinary = tuple(kit.session() for _ in range(4))
    found, refused = 0, 0
    for family, names in (("number at the end", ordinary), *((name, FAMILIES[name]) for name in order)):
        if most is not None and found > most:
            break
        written = filled(kit, store, names)
        refused += len(names) - len(written)
        if len(written) > 1:
            found += 1
            yield family, written
    if refused:
        kit.notes.append(f"{refused} ids were refused; {found - 1} of {len(FAMILIES)} families have two that were not")


def unharmed(kit: Kit, store: Instance, written: Written, story: str) -> None:
    outcomes = store.run(*(Step("read", name) for name in written))
    for (name, turns), outcome in zip(written.items(), outcomes, strict=True):
        kit.check(outcome.ok, f"{story}; then reading {name!r} raised {outcome.fault}", session=name)
        kit.same(outcome.value, turns, f"session {name!r}: {story}", session=name)


def isolated(
    kit: Kit, act: Callable[[Instance, str, Any], list[tuple[SentMessage, ...]] | None], *, snapshots: bool
) -> None:
    """For each family, let `act` change one session after the other; all others stay as they are.

    `act` gets a snapshot of the session where `snapshots` are taken, and returns what the session holds then (None: do
    not look).
    """
    store = kit.open()
    for family, written in families(kit, store, 3 if kit.quick else None):
        taken: dict[str, Any] = {}
        if snapshots:
            outcomes = store.run(*(Step("save_snapshot", name) for name in written))
            taken = {name: outcome.value for name, outcome in zip(written, outcomes, strict=True) if outcome.ok}
            fresh = {name: kit.turn() for name in written}
            store.run(*(Step("append", name, (turn,)) for name, turn in fresh.items()))
            for name, turn in fresh.items():
                written[name].append(turn)
        for name in kit.dice.sample(sorted(written), 2):
            left = act(store, name, taken.get(name))
            if left is None:
                del written[name]
            else:
                written[name] = left
            unharmed(kit, store, written, f"ids differ by {family}, and {name!r} was changed")


@registry.clause(
    "isolation",
    "Sessions whose ids differ by case, prefix, wildcard, Unicode form, white space or separator share nothing.",
    incident="LIKE 'user_1%': one customer reads another's conversation.",
)
def isolation(kit: Kit) -> None:
    store = kit.open()
    for family, written in families(kit, store):
        unharmed(kit, store, written, f"ids differ by {family}")


@registry.clause(
    "isolation-of-clear",
    "Clearing a session touches no other, however alike their ids.",
    incident="KEYS user:1* and DEL: clearing user 1 clears users 10 to 19.",
    needs=["clear"],
)
def isolation_of_clear(kit: Kit) -> None:
    def act(store: Instance, name: str, _: Any) -> list[tuple[SentMessage, ...]]:
        store.clear(name)
        return []

    isolated(kit, act, snapshots=False)


@registry.clause(
    "isolation-of-trim",
    "Trimming a session touches no other, however alike their ids.",
    incident="DELETE ... WHERE id NOT IN (the latest n), without the session: everybody's history is trimmed.",
    needs=["trim"],
)
def isolation_of_trim(kit: Kit) -> None:
    def act(store: Instance, name: str, _: Any) -> None:
        store.trim(name, 1)

    isolated(kit, act, snapshots=False)


@registry.clause(
    "isolation-of-rollback",
    "Rolling a session back touches no other, however alike their ids.",
    incident="A rollback that restores the whole table: one customer's rewind is everybody's.",
    needs=["save_snapshot", "rollback"],
)
def isolation_of_rollback(kit: Kit) -> None:
    def act(store: Instance, name: str, snapshot: Any) -> list[tuple[SentMessage, ...]] | None:
        store.rollback(name, snapshot)
        return None

    isolated(kit, act, snapshots=True)


@registry.clause(
    "isolation-of-replace",
    "Replacing or taking back messages of a session touches no other, however alike their ids.",
    incident="LlamaIndex SQLAlchemyChatStore commits the delete of set_messages on its own, for whatever key matches.",
    needs=["replace|pop"],
)
def isolation_of_replace(kit: Kit) -> None:
    def act(store: Instance, name: str, _: Any) -> None:
        if kit.offers("replace"):
            store.call("replace", name, kit.turn())
        if kit.offers("pop"):
            store.call("pop", name)

    isolated(kit, act, snapshots=False)
