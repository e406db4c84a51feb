"""Clauses of isolation of what belongs to a session beside its messages: snapshots, what undo takes back, expiry.

isolation.py has the messages. Ids that a store refuses are left out.
"""

from __future__ import annotations

import time

from everturn.testing.contract.expiry import GRACE, TTLS
from everturn.testing.contract.isolation import filled, unharmed
from everturn.testing.kit.clause import ClauseRegistry, Untested
from everturn.testing.kit.kit import Kit
from everturn.testing.kit.remote_instance import Instance
from everturn.testing.workers.messages import Step

registry = ClauseRegistry("sequential", since=2)
SNAPSHOTS = ("save_snapshot", "rollback")
LONG = 600.0  # seconds


def alike(kit: Kit) -> list[str]:
    """Name sessions that nobody used before, and that differ by case, by their ends or by a wildcard."""
    name = kit.session()
    ends = ("0", ":1", "_", "%", " ", "*")
    return [name, *(f"{name}{end}" for end in ends), name.upper(), f"{name[:-1]}_"]


@registry.clause(
    "isolation-of-snapshots",
    "A session lists its own snapshots alone, and deleting one in it takes away no other session's.",
    incident="DELETE FROM snapshots WHERE id = ?: a handle from another user's log, and that user's way back is gone.",
    needs=[*SNAPSHOTS, "list_snapshots|delete_snapshot"],
)
def isolation_of_snapshots(kit: Kit) -> None:
    store = kit.open()
    written = filled(kit, store, alike(kit))
    handles = {name: store.save_snapshot(name) for name in written}
    if kit.offers("list_snapshots"):
        for name, handle in handles.items():
            listed = list(store.call("list_snapshots", name))
            story = f"session {name!r} has one snapshot, {handle!r}, and lists {listed!r:.200}"
            kit.check(listed == [handle], story, session=name)
    if not kit.offers("delete_snapshot"):
        return
    names = list(written)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        store.take(Step("delete_snapshot", name, (handles[other],)))  # refused or ignored: it is the other one's
    for name in names:
        store.append(name, kit.turn())
        back = store.take(Step("rollback", name, (handles[name],)))
        story = f"sessions with ids like {name!r} were asked to delete its snapshot, and it is gone: {back.fault}"
        kit.check(back.ok, story, session=name)
    unharmed(kit, store, written, "each was rolled back to its own snapshot")
    store.call("delete_snapshot", names[0], handles[names[0]])
    for name in names[1:]:
        store.rollback(name, handles[name])


@registry.clause(
    "isolation-of-undo",
    "Undo takes back a change of its own session, however alike the ids are.",
    incident="The undo stack under the id in lower case: one user's undo brings another one's messages to them.",
    needs=["undo", "clear"],
)
def isolation_of_undo(kit: Kit) -> None:
    store = kit.open()
    written = filled(kit, store, alike(kit))
    for name in written:
        store.clear(name)
    for name in kit.dice.sample(sorted(written), len(written)):
        store.call("undo", name)
    unharmed(kit, store, written, "all sessions with ids like it were cleared, and each was told to undo that")


@registry.clause(
    "isolation-of-expiry",
    "A session that expires takes no other with it, however alike the ids are.",
    incident="Expired rows deleted by LIKE 'user-1%': user-1 comes back after a year, and user-10 has no history.",
    needs=["ttl", "processes"],  # a store in one process has one ttl for each place
    weight=2,
)
def isolation_of_expiry(kit: Kit) -> None:
    place = kit.place()
    store, lasting = kit.open("A", at=place, ttl=TTLS[0]), kit.open("lasting", at=place, ttl=LONG)
    first, *others = alike(kit)
    store.append(first, kit.turn())
    written = filled(kit, lasting, others)
    gone_by = time.monotonic() + TTLS[0] + GRACE
    while store.read(first):
        if time.monotonic() > gone_by:
            raise Untested("nothing expires; see not-never")
        time.sleep(0.05)
    unharmed(kit, lasting, written, f"session {first!r} expired")
    store.append(first, kit.turn())
    unharmed(kit, lasting, written, f"session {first!r} expired and began anew")


@registry.clause(
    "snapshots-are-fresh",
    "An instance that has listed snapshots sees those that another process takes and deletes later.",
    incident="The list of snapshots cached for each worker: the way back that was just saved is not offered.",
    needs=["processes", *SNAPSHOTS, "list_snapshots"],
)
def snapshots_are_fresh(kit: Kit) -> None:
    early, late, session = kit.borrow("A"), kit.borrow("B"), kit.session()
    early.append(session, kit.turn())
    held = [early.save_snapshot(session)]
    for instance in (early, late):
        _lists(kit, instance, session, held, "one process took a snapshot")
    held.append(late.save_snapshot(session))
    for instance in (early, late):
        _lists(kit, instance, session, held, "another process took one more")
    if kit.offers("delete_snapshot"):
        early.rollback(session, held[1])
        late.call("delete_snapshot", session, held[0])
        gone = held.pop(0)
        for instance in (early, late):
            _lists(kit, instance, session, held, "another process deleted the first one")
        kit.refused(early, Step("rollback", session, (gone,)), "another process has deleted the snapshot")


def _lists(kit: Kit, store: Instance, session: str, held: list[object], story: str) -> None:
    listed = list(store.call("list_snapshots", session))
    same = len(listed) == len(held) and all(one in listed for one in held)
    kit.check(same, f"{story}: {len(held)} are there, and {listed!r:.200} is listed", session=session)
