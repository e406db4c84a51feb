"""Clauses of expiry, for factories that take `ttl`: not too early, not never, by the times before and after each call.

All sessions are observed at the same time, once in a run, to save waiting.
"""

from __future__ import annotations

import time

import msgspec

from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.shapes import SentMessage
from everturn.testing.workers.messages import Outcome, Step

registry = ClauseRegistry("edge")
TTL = 1.0  # seconds; whole, because some backends count in those
TTLS = (TTL, 2.0, 4.0)  # of the first attempt, and of the next ones if a busy machine is too slow for it
GRACE = 3.0  # seconds that a backend may be late


class ExpiryRecord(msgspec.Struct):
    """Observations of sessions that expire, each with the times between which it was made."""

    ttl: float
    first: Outcome  # the append that everything is counted from
    refreshed: Outcome  # a second append to `busy`, half a life later
    turns: dict[str, list[tuple[SentMessage, ...]]]
    early: dict[str, Outcome]  # reads before anything may have expired
    late: dict[str, Outcome]  # reads of `busy` after the first life and within the second
    last: dict[str, Outcome]  # reads after everything must have expired
    anew: Outcome  # a turn stored in `quiet` after that,
    again: Outcome  # and what `quiet` holds then
    endless: Outcome

    @property
    def in_time(self) -> bool:
        """Whether every observation was made in time."""
        return (
            self.early["quiet"].ended < self.first.began + self.ttl
            and self.refreshed.ended < self.first.began + self.ttl
            and self.late["busy"].ended < self.refreshed.began + self.ttl
            and self.again.ended < self.anew.began + self.ttl
        )


def expiry_record(kit: Kit) -> ExpiryRecord:
    if "expiry" not in kit.environment.shared_results:
        for ttl in TTLS:
            played = kit.environment.shared_results["expiry"] = _observe(kit, ttl)
            if played.in_time:
                break
    found: ExpiryRecord = kit.environment.shared_results["expiry"]
    if not found.in_time:
        raise Untested(f"the machine was too slow, {len(TTLS)} times: what should have come in time did not")
    return found


def _observe(kit: Kit, ttl: float) -> ExpiryRecord:
    store = kit.open("A", at=kit.place(), ttl=ttl)
    without = kit.open("B", at=kit.place())
    turns = {name: [kit.turn()] for name in ("quiet", "busy", "endless")}
    ids = {name: kit.session() for name in turns}
    endless_kept = without.take(Step("append", ids["endless"], (turns["endless"][0],)))
    busy = store.take(Step("append", ids["busy"], (turns["busy"][0],)))
    first = store.take(Step("append", ids["quiet"], (turns["quiet"][0],)))
    for outcome in (endless_kept, busy, first):
        if not outcome.ok:
            raise Untested(f"with a ttl, an append raised {outcome.fault}")
    _sleep_until(busy.ended + ttl / 2)
    turns["busy"].append(kit.turn())
    refreshed = store.take(Step("append", ids["busy"], (turns["busy"][1],)))
    early = {name: store.take(Step("read", ids[name])) for name in ("busy", "quiet")}
    _sleep_until(first.ended + ttl + 0.05)
    late = {"busy": store.take(Step("read", ids["busy"]))}
    gone_by = refreshed.ended + ttl + GRACE
    last: dict[str, Outcome] = {}
    while time.monotonic() < gone_by:
        last = {name: store.take(Step("read", ids[name])) for name in ("busy", "quiet")}
        if all(outcome.ok and outcome.value == [] for outcome in last.values()):
            break
        time.sleep(0.05)
    turns["anew"] = [kit.turn()]
    anew = store.take(Step("append", ids["quiet"], (turns["anew"][0],)))
    again = store.take(Step("read", ids["quiet"]))
    endless = without.take(Step("read", ids["endless"]))
    return ExpiryRecord(ttl, first, refreshed, turns, early, late, last, anew, again, endless)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@registry.clause(
    "not-too-early",
    "Nothing expires before its time.",
    incident="Milliseconds given where seconds were meant: conversations vanish after four seconds.",
    needs=["ttl"],
)
def not_too_early(kit: Kit) -> None:
    seen = expiry_record(kit)
    read = seen.early["quiet"]
    kit.check(read.ok, f"reading a session that lives raised {read.fault}")
    kit.same(read.value, seen.turns["quiet"], f"within its {seen.ttl:g} s", session="quiet")


@registry.clause(
    "not-never",
    "What has a time to live is gone after it.",
    incident="RPUSH, then EXPIRE: a store that forgets the second keeps personal data for ever.",
    needs=["ttl"],
)
def not_never(kit: Kit) -> None:
    seen = expiry_record(kit)
    for name, read in seen.last.items():
        kit.check(
            read.ok and read.value == [],
            f"{read.began - seen.refreshed.ended:.1f} s after its last change, with a ttl of {seen.ttl:g} s, session "
            f"{name} still gives {read.fault or len(read.value)}",
            session=name,
        )


@registry.clause(
    "refreshed-by-a-turn",
    "A turn stored in time keeps the session alive for another ttl.",
    incident="EXPIRE only when the key is new: a conversation ends in the middle of a sentence.",
    needs=["ttl"],
)
def refreshed_by_a_turn(kit: Kit) -> None:
    seen = expiry_record(kit)
    read, turn = seen.late["busy"], seen.turns["busy"][1]
    kit.check(read.ok, f"reading a session that lives raised {read.fault}")
    kit.check(
        [message.content for message in read.value[-len(turn) :]] == [sent.content for sent in turn],
        f"a turn stored {read.ended - seen.refreshed.began:.1f} s ago, with a ttl of {seen.ttl:g} s, is not there",
        session="busy",
    )


@registry.clause(
    "no-ttl-no-expiry",
    "Where no time to live was given, nothing expires.",
    incident="A default of an hour that nobody had asked for.",
    needs=["ttl"],
)
def no_ttl_no_expiry(kit: Kit) -> None:
    seen = expiry_record(kit)
    kit.check(seen.endless.ok, f"reading it raised {seen.endless.fault}")
    kit.same(seen.endless.value, seen.turns["endless"], "it has no ttl", session="endless")


@registry.clause(
    "a-new-life",
    "A turn stored after expiry begins anew: nothing of what expired comes back with it.",
    incident="Expiry that hides and does not remove: the next hello brings back last year's conversation.",
    needs=["ttl"],
)
def a_new_life(kit: Kit) -> None:
    seen = expiry_record(kit)
    if any(read.value != [] for read in seen.last.values()):
        raise Untested("nothing ever expired")
    for outcome in (seen.anew, seen.again):
        kit.check(outcome.ok, f"after expiry, a call raised {outcome.fault}", session="quiet")
    kit.same(seen.again.value, seen.turns["anew"], "the old life had expired", session="quiet")
