"""Expiry, where a factory takes `ttl`: neither early nor never, judged by timestamps on both sides of each call.

All sessions of the layer live and die at the same time, in one scene that a run plays once.
"""

from __future__ import annotations

import time

import msgspec

from everturn.testing.clauses import Book, Untested
from everturn.testing.dialects import Said
from everturn.testing.kit import Instance, Kit
from everturn.testing.orders import Outcome, Step

book = Book("edge")
TTL = 2.0  # seconds; whole, because some engines count in those
GRACE = 3.0  # what an engine may take longer to let go


class Scene(msgspec.Struct):
    """What was seen of the sessions, each observation with the times between which it was made."""

    first: Outcome  # the append that everything is counted from
    refreshed: Outcome  # a second append to `busy`, half a life later
    turns: dict[str, list[tuple[Said, ...]]]
    early: dict[str, Outcome]  # reads before anything may have expired
    late: dict[str, Outcome]  # reads of `busy` after the first life and within the second
    last: dict[str, Outcome]  # reads after everything must have expired
    endless: Outcome


def scene(kit: Kit) -> Scene:
    if "expiry" not in kit.target.shared:
        kit.target.shared["expiry"] = _played(kit)
    found: Scene = kit.target.shared["expiry"]
    return found


def _played(kit: Kit) -> Scene:
    store = kit.open("A", ttl=TTL)
    without = kit.open("B", at=kit.place())
    turns = {name: [kit.turn()] for name in ("quiet", "busy", "endless")}
    endless_kept = without.take(Step("append", "endless", (turns["endless"][0],)))
    busy = store.take(Step("append", "busy", (turns["busy"][0],)))
    first = store.take(Step("append", "quiet", (turns["quiet"][0],)))
    for outcome in (endless_kept, busy, first):
        if not outcome.ok:
            raise Untested(f"with a ttl, an append raised {outcome.fault}")
    _sleep_until(busy.ended + TTL / 2)
    turns["busy"].append(kit.turn())
    refreshed = store.take(Step("append", "busy", (turns["busy"][1],)))
    early = {name: store.take(Step("read", name)) for name in ("busy", "quiet")}
    _sleep_until(first.ended + TTL + 0.1)
    late = {"busy": store.take(Step("read", "busy"))}
    gone_by = refreshed.ended + TTL + GRACE
    last: dict[str, Outcome] = {}
    while time.monotonic() < gone_by:
        last = {name: store.take(Step("read", name)) for name in ("busy", "quiet")}
        if all(outcome.ok and outcome.value == [] for outcome in last.values()):
            break
        time.sleep(0.05)
    return Scene(first, refreshed, turns, early, late, last, without.take(Step("read", "endless")))


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@book.clause(
    "not-too-early",
    "Nothing expires before its time.",
    incident="Milliseconds given where seconds were meant: conversations vanish after four seconds.",
    needs=["ttl"],
)
def not_too_early(kit: Kit) -> None:
    seen = scene(kit)
    read = seen.early["quiet"]
    if read.ended >= seen.first.began + TTL:
        raise Untested("the machine was too slow: the read before expiry came after it")
    kit.check(read.ok, f"reading a session that lives raised {read.fault}")
    kit.same(read.value, seen.turns["quiet"], f"within its {TTL:g} s", session="quiet")


@book.clause(
    "not-never",
    "What has a time to live is gone after it.",
    incident="RPUSH, then EXPIRE: a store that forgets the second keeps personal data for ever.",
    needs=["ttl"],
)
def not_never(kit: Kit) -> None:
    seen = scene(kit)
    for name, read in seen.last.items():
        kit.check(
            read.ok and read.value == [],
            f"{read.began - seen.refreshed.ended:.1f} s after its last change, with a ttl of {TTL:g} s, session {name} "
            f"still gives {read.fault or len(read.value)}",
            session=name,
        )


@book.clause(
    "refreshed-by-a-turn",
    "A turn stored in time keeps the session alive for another ttl.",
    incident="EXPIRE only when the key is new: a conversation ends in the middle of a sentence.",
    needs=["ttl"],
)
def refreshed_by_a_turn(kit: Kit) -> None:
    seen = scene(kit)
    read, turn = seen.late["busy"], seen.turns["busy"][1]
    if seen.refreshed.ended >= seen.first.began + TTL or read.ended >= seen.refreshed.began + TTL:
        raise Untested("the machine was too slow: what should have come in time did not")
    kit.check(read.ok, f"reading a session that lives raised {read.fault}")
    kit.check(
        [message.content for message in read.value[-len(turn) :]] == [said.content for said in turn],
        f"a turn stored {read.ended - seen.refreshed.began:.1f} s ago, with a ttl of {TTL:g} s, is not there",
        session="busy",
    )


@book.clause(
    "no-ttl-no-expiry",
    "Where no time to live was given, nothing expires.",
    incident="A default of an hour that nobody had asked for.",
    needs=["ttl"],
)
def no_ttl_no_expiry(kit: Kit) -> None:
    seen = scene(kit)
    kit.check(seen.endless.ok, f"reading it raised {seen.endless.fault}")
    kit.same(seen.endless.value, seen.turns["endless"], "it has no ttl", session="endless")


@book.clause(
    "a-new-life",
    "A turn stored after expiry begins anew: nothing of what expired comes back with it.",
    incident="Expiry that hides and does not remove: the next hello brings back last year's conversation.",
    needs=["ttl"],
)
def a_new_life(kit: Kit) -> None:
    store = kit.open("A", ttl=1.0)
    session, old, new = kit.session(), kit.turn(), kit.turn()
    stored = store.take(Step("append", session, (old,)))
    if not stored.ok:
        raise Untested(f"with a ttl, an append raised {stored.fault}")
    _gone(store, session, stored.ended + 1.0 + GRACE)
    appended = store.take(Step("append", session, (new,)))
    read = store.take(Step("read", session))
    if read.ended >= appended.began + 1.0:
        raise Untested("the machine was too slow: the new life had expired before it was read")
    kit.check(read.ok, f"reading the new life raised {read.fault}")
    kit.same(read.value, [new], "the old life had expired", session=session)


def _gone(store: Instance, session: str, by: float) -> None:
    while (read := store.take(Step("read", session))).value != []:
        if time.monotonic() >= by:
            raise Untested(f"it never expired: {read.fault or len(read.value)}")
        time.sleep(0.05)
